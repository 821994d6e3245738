"""Every constraint has been run against the real code, or it is said why not."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from mbridge_advisor.evidence.oracle.fuzz import BEYOND
from mbridge_advisor.evidence.store import condition_digest, load_evidence
from mbridge_advisor.knowledge import load

BASE = load()
ROOT = Path(BASE.root)
CLAIMED = {r.id for r in BASE.rules.values() if r.kind == "constraint" and r.status == "code_verified"}


def test_what_cannot_be_run_is_documented() -> None:
    text = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    part = text.partition("<!-- beyond -->")[2].partition("<!-- end -->")[0]
    named = set(re.findall(r"MB-[A-Z]+-\d{3}", part))
    assert named == set(BEYOND)
    assert set(BEYOND) <= CLAIMED


def test_every_other_error_was_confirmed_somewhere() -> None:
    runs = load_evidence(ROOT).executions
    if not runs:
        pytest.skip("no runs are recorded")
    confirmed: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for name in run.rules:
            if run.confirms(BASE, name, BASE.revisions[run.revision]):
                confirmed[name].add(run.revision)
    errors = {
        name
        for name in CLAIMED
        for tag in {run.revision for run in runs}
        if (rule := BASE.rules[name].at(BASE.revisions[tag])) is not None and rule.severity == "error"
    }
    assert sorted(errors - confirmed.keys() - BEYOND.keys()) == []


def test_no_run_disagrees_and_each_is_of_what_the_rules_say() -> None:
    for run in load_evidence(ROOT).executions:
        assert run.disagreements == 0, run.id
        assert run.speaks_for(BASE.revisions[run.revision]), run.id
        assert run.conditions.keys() == run.rules.keys(), run.id
        assert all(condition_digest(BASE, name, BASE.revisions[run.revision]) for name in run.rules), run.id
