"""Files and recipes as starting points of a request, for every command that takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..advice.results import Answer
from ..errors import RequestError
from ..intake.notes import Note, summary
from ..intake.read import read_input
from ..knowledge import load
from ..knowledge.model import Text

AnswerT = TypeVar("AnswerT", bound=Answer)


def start_from(file: Path | None, options: Mapping[str, Any]) -> tuple[dict[str, Any] | None, tuple[Note, ...]]:
    """What ``FILE`` or ``--recipe`` says, as a request; None where neither is given.

    Raises:
        RequestError: both are given, or the input can't be understood.
    """
    recipe, kind = options.get("recipe"), options.get("kind")
    if file is not None and recipe is not None:
        raise RequestError("--recipe", recipe, "stands beside a file", "Give one of them.")
    if recipe is not None:
        return read_input(str(recipe), "recipe", bridge=options.get("bridge"))
    if file is None:
        return None, ()
    return read_input(file, kind, bridge=options.get("bridge"))


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
