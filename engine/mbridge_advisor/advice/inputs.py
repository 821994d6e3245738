"""Answers about an input that :mod:`mbridge_advisor.intake` has read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..intake.notes import Note, summary
from ..knowledge import load
from ..knowledge.model import Text
from .results import Answer

AnswerT = TypeVar("AnswerT", bound=Answer)


def with_notes(result: AnswerT, notes: Iterable[Note]) -> AnswerT:
    """The answer with a summary of what became of the input."""
    return replace(result, notes=(*summary(notes), *result.notes))


def unpinned(request: dict[str, Any]) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """The request without what ``advise`` searches for, and a note that says so."""
    from ..search.space import OPEN

    base = load()
    dropped: list[str] = []
    out = dict(request)
    for section in ("grid", "training"):
        part = out.get(section)
        if not isinstance(part, Mapping):
            continue
        searched = [k for k in part if k == "recompute" or (k in base.by_field and base.by_field[k].name in OPEN)]
        dropped += searched
        out[section] = {k: v for k, v in part.items() if k not in searched}
    why = Text(f"left open for the search: {', '.join(dropped)}", f"以下取值交由搜索决定：{'、'.join(dropped)}")
    return out, (Note("grid", "left_open", why=why),) if dropped else ()
