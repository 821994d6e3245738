"""Matching in plain Python: what durable_rules must agree with, and what serves where it can't be installed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..knowledge.model import Value
from .program import Program


class ReferenceMatcher:
    """Judges each step of a stratum one after the other."""

    name = "reference"

    def __init__(self, program: Program) -> None:
        self._program = program

    def match(self, stratum: int, known: Mapping[str, Value]) -> Collection[str]:
        """Ids of the steps of a stratum that fire on these facts."""
        return {step.id for step in self._program.strata[stratum] if step.fires(known)}
