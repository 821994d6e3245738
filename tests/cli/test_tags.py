"""``explain`` and ``rules`` print what the matrix gives at the asked release, not what a rule claims."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from mbridge_advisor.advice.explain import earned, explain
from mbridge_advisor.advice.listing import find_rules, rules
from mbridge_advisor.cli import cli
from mbridge_advisor.knowledge import Knowledge, load

VERIFIED = {"verdict": "holds", "tag": "code_verified"}


@pytest.fixture(scope="module")
def base() -> Knowledge:
    """One rule has earned its tag at one release only, and one quantity at none."""
    return replace(load(), matrix={"rules": {"MB-SP-002": {"v0.6.0": VERIFIED}}, "quantities": {}})


def test_explain(base: Knowledge) -> None:
    assert explain("MB-SP-002", bridge="v0.6.0", knowledge=base).parts["status"].en == "code_verified"
    assert explain("MB-SP-002", bridge="v0.5.1", knowledge=base).parts["status"].en == "doc_only"
    every = explain("MB-SP-002", knowledge=base)
    assert every.parts["status"].en.splitlines()[-1] == "v0.6.0: code_verified"
    assert every.data["tags"]["v0.6.0"] == "code_verified"
    assert every.data["tags"]["v0.5.1"] == "doc_only"
    assert every.data["status"] == "code_verified"  # what it claims
    assert explain("dp", knowledge=base).parts["status"].en == "doc_only"
    assert set(explain("dp", knowledge=base).data["tags"].values()) == {"doc_only"}


def test_rules(base: Knowledge) -> None:
    def found(**conditions: str) -> list[str]:
        return [rule.id for rule, _ in find_rules(base, topic="SP", **conditions)]

    assert found(status="code_verified", bridge="v0.6.0") == ["MB-SP-002"]
    assert found(status="code_verified", bridge="v0.5.1") == []
    assert found(status="code_verified") == ["MB-SP-002"]
    assert "MB-SP-002" in found(status="doc_only")
    assert [row["tags"]["v0.6.0"] for row in rules(base, topic="SP", status="code_verified")] == ["code_verified"]


def test_a_rule_speaks_only_of_its_releases(base: Knowledge) -> None:
    late = next(r for r in base.rules.values() if r.bridge == ">=0.6")
    assert list(explain(late.id, knowledge=base).data["tags"]) == ["v0.6.0"]


def test_words_for_tags() -> None:
    assert earned({}) == ""
    assert earned({"v0.5.1": "doc_only", "v0.6.0": "doc_only"}) == "doc_only"
    assert earned({"v0.5.1": "doc_only", "v0.6.0": "code_verified"}) == "v0.5.1: doc_only\nv0.6.0: code_verified"


def test_the_command_agrees_with_the_packaged_matrix() -> None:
    done = CliRunner().invoke(cli, ["rules", "--topic", "SP", "--format", "json"])
    for row in json.loads(done.output):
        cells = load().matrix["rules"][row["id"]]
        assert row["tags"] == {tag: cells[tag]["tag"] for tag in row["tags"]}
