"""The fitted constants of the memory and time models, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import yaml

from ..errors import KnowledgeError, Problem
from ..knowledge.locate import find_root

Calibration = Mapping[str, float]


def read(path: Path) -> dict[str, float]:
    """Constant name -> value from a ``calibration.yaml`` (the fits and citations there are for people).

    Raises:
        KnowledgeError: the file can't be read or a constant has no number.
    """
    try:
        constants = yaml.safe_load(path.read_text(encoding="utf-8"))["constants"]
        return {c["name"]: float(c["value"]) for c in constants}
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise KnowledgeError(
            [Problem(str(path), None, "constants", f"can't be read ({error})", "a list of constants")]
        ) from error


@lru_cache(maxsize=1)
def default() -> Calibration:
    """The constants of the knowledge base in use."""
    return read(find_root() / "knowledge" / "facts" / "calibration.yaml")
