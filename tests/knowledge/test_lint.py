"""The knowledge base has no mistakes: shape, names, types, references, and every example holds."""

from __future__ import annotations

from mbridge_advisor.knowledge.lint import lint
from mbridge_advisor.knowledge.locate import own_root


def test_the_knowledge_base_is_right() -> None:
    assert [str(problem) for problem in lint(own_root())] == []
