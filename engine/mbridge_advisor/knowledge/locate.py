"""Where the knowledge base is."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from ..errors import KnowledgeError, Problem

VARIABLE = "MBRIDGE_ADVISOR_KNOWLEDGE"

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def own_root() -> Path:
    """The folder with the ``knowledge/`` and ``schemas/`` that belong to this code.

    That is ``_data`` inside an installed package, else the checkout around ``engine/``.
    """
    for root in (_PACKAGE / "_data", _PACKAGE.parents[1]):
        if (root / "schemas").is_dir() and (root / "knowledge").is_dir():
            return root
    raise KnowledgeError(
        [
            Problem(
                "knowledge",
                None,
                "",
                "was not found beside the package",
                f"an installed wheel, a checkout or {VARIABLE}",
            )
        ]
    )


def find_root(root: Path | None = None) -> Path:
    """The folder that holds ``knowledge/``: the given one, or what MBRIDGE_ADVISOR_KNOWLEDGE names, or our own.

    Raises:
        KnowledgeError: there is no knowledge base.
    """
    named = root or (Path(value) if (value := os.environ.get(VARIABLE)) else None)
    if named is None:
        return own_root()
    if not (named / "knowledge" / "vocabulary.yaml").is_file():
        whence = "" if root else f" (from {VARIABLE})"
        raise KnowledgeError(
            [
                Problem(
                    str(named), None, "", f"holds no knowledge base{whence}", "a folder with knowledge/vocabulary.yaml"
                )
            ]
        )
    return named.resolve()
