"""Files and recipes as starting points of a request, for every command that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..intake.notes import Note
from ..intake.read import read_input


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
