"""The coverage of the inventory names rules and quantities that exist, and forgets none."""

from __future__ import annotations

from pathlib import Path

import yaml
from mbridge_advisor.knowledge import load

BASE = load()
COVERAGE = yaml.safe_load((Path(BASE.root) / "knowledge" / "evidence" / "inventory_coverage.yaml").read_text())


def test_every_entry_is_modelled_or_says_why_not() -> None:
    for name, entry in COVERAGE["coverage"].items():
        assert entry.keys() & {"rules", "quantities", "not_modelled"}, name
        assert entry.get("not_modelled", "a reason").strip(), name
        assert set(entry.get("rules", ())) <= BASE.rules.keys(), name
        assert set(entry.get("quantities", ())) <= BASE.quantities.keys(), name


def test_every_constraint_is_accounted_for() -> None:
    named = {rule for entry in COVERAGE["coverage"].values() for rule in entry.get("rules", ())}
    extra = set(COVERAGE["additional"])
    assert not named & extra
    assert named | extra == {rule.id for rule in BASE.rules.values() if rule.kind == "constraint"}
