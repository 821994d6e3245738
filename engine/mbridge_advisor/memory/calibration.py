"""The fitted constants of the memory and time models, by name."""

from __future__ import annotations

from collections.abc import Mapping


def default() -> Mapping[str, float]:
    """The constants of the knowledge base in use."""
    from ..knowledge.load import load  # what is given constants doesn't need it

    return load().calibration_values
