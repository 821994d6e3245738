"""Errors that a caller can act on.

Every error that reaches a user names the field, the value, the reason and the way out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class AdvisorError(Exception):
    """Base of all errors that this package raises on purpose."""

    def to_dict(self) -> dict[str, Any]:
        """The error as data: ``{"error": kind, "message": text, ...}``."""
        return {"error": type(self).__name__, "message": str(self)}


class RequestError(AdvisorError):
    """The request can't be understood.

    Attributes:
        field: path of the field in the request, e.g. ``cluster.gpus``.
        value: what was given (shortened for display); None where nothing was.
        reason: why it can't be used.
        way_out: what to write instead.
    """

    def __init__(self, field: str, value: Any, reason: str, way_out: str) -> None:
        self.field, self.value, self.reason, self.way_out = field, value, reason, way_out
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        super().__init__(f"{field}{'' if value is None else f': {shown}'} {reason}. {way_out}")

    def to_dict(self) -> dict[str, Any]:
        value = self.value
        # JSON has neither lists of anything here nor infinity.
        if not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
            value = repr(value)[:200]
        return {
            **super().to_dict(),
            "field": self.field,
            "value": value,
            "reason": self.reason,
            "way_out": self.way_out,
        }


class ExpressionError(AdvisorError):
    """An expression is outside the whitelisted language, or its types or units don't fit."""

    def __init__(self, source: str, reason: str, column: int | None = None) -> None:
        self.source, self.reason, self.column = source, reason, column
        shown = source if len(source) <= 120 else source[:117] + "..."
        where = "" if column is None else f" (column {column + 1})"
        super().__init__(f"{shown!r}{where}: {reason}")


@dataclass(frozen=True)
class Problem:
    """One mistake in a knowledge file.

    Attributes:
        file: path of the file as given to the loader.
        line: 1-based line, or None where there is none.
        path: path inside the document, e.g. ``rules[3].when[0]``.
        reason: what is wrong.
        expected: what was expected.
    """

    file: str
    line: int | None
    path: str
    reason: str
    expected: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        tail = f" Expected: {self.expected}" if self.expected else ""
        return f"{place}: {self.path or '(document)'}: {self.reason}.{tail}"


class KnowledgeError(AdvisorError):
    """The knowledge base has mistakes; all that were found are in ``problems``."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        head = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''} in the knowledge base"
        super().__init__("\n".join([head, *map(str, self.problems)]))

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "problems": [vars(p) for p in self.problems]}


class WriteError(AdvisorError):
    """A file can't be written."""
