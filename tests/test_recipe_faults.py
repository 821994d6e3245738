"""The list of faults in shipped recipes is fresh, and its tool notices a line that isn't the recipe's."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mbridge_advisor.evidence.source import BRIDGE, SourceError
from mbridge_advisor.knowledge import load

TOOL = Path(__file__).parents[1] / "tools" / "recipe_faults.py"
_spec = importlib.util.spec_from_file_location("recipe_faults", TOOL)
assert _spec is not None
assert _spec.loader is not None
tool = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tool)
BASE = load()


@dataclass
class Text:
    """A source with one text for every file."""

    text: str
    repo: str = BRIDGE
    layout: Any = "repository"
    commit: str | None = None

    def read(self, path: str) -> bytes | None:
        return self.text.encode() if self.text else None

    def files(self) -> Iterable[str]:
        return ()


def test_the_kept_list_is_what_the_rules_say() -> None:
    """If not: `python tools/recipe_faults.py --bridge-source ..`."""
    kept = json.loads(tool.DATA.read_text(encoding="utf-8"))
    found = list(tool.faults(BASE))
    assert {f["id"] for f in found} == tool.listed().keys() == {f["id"] for f in kept["faults"]}
    by_id = {f["id"]: f for f in kept["faults"]}
    for fault in found:
        assert fault["faults"], fault["id"]
        assert fault["faults"] == by_id[fault["id"]]["faults"]
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(kept)


def fault(**changes: Any) -> dict[str, Any]:
    row = {
        "recipe": "some_config",
        "path": "src/a.py",
        "line": 2,
        "release": "v0.6.0",
        "commit": "c" * 40,
        "places": [],
    }
    return {**row, **changes}


def test_lines_are_looked_up() -> None:
    source = {"v0.6.0": Text("# a file\ndef some_config():\n    return 1\n")}
    assert tool.verified(BASE, fault(), source)["url"].endswith("/src/a.py#L2")
    with pytest.raises(SourceError, match="defines some_config at"):
        tool.verified(BASE, fault(line=3), source)
    with pytest.raises(SourceError, match="defines other at"):
        tool.verified(BASE, fault(recipe="other"), source)
    with pytest.raises(SourceError, match="has no line 9"):
        tool.verified(BASE, fault(places=[{"path": "src/a.py", "line": 9, "at": "v0.6.0"}]), source)
    with pytest.raises(SourceError, match=r"has no src/a\.py"):
        tool.verified(BASE, fault(), {"v0.6.0": Text("")})
