"""What a rule has earned at a release. Apart from the rest, because every answer needs it and it must load fast."""

from __future__ import annotations

from ..knowledge.model import Knowledge, Status


def tag_of(knowledge: Knowledge, name: str, revision: str) -> Status:
    """What a rule or quantity has earned at a release, as the packaged matrix says; ``doc_only`` where it says nothing.

    Args:
        knowledge: a loaded knowledge base.
        name: rule id or name of a quantity.
        revision: release tag.
    """
    matrix = knowledge.matrix
    for part in ("rules", "quantities"):
        cell = matrix.get(part, {}).get(name, {}).get(revision)
        if cell is not None:
            return "code_verified" if cell.get("tag") == "code_verified" else "doc_only"
    return "doc_only"
