"""What the site refuses to publish, and that its data is what the commands print. Needs the extra `docs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.knowledge.model import Text

pytest.importorskip("sphinx")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from mbridge_docs.formula import mathml  # noqa: E402
from mbridge_docs.machine import data  # noqa: E402
from mbridge_docs.site import Site, complaints, site  # noqa: E402

RULE = "MB-TP-001"


def changed(**attributes: object) -> Site:
    """The site with one rule changed."""
    found = site()
    rule = replace(found.base.rules[RULE], **attributes)  # type: ignore[arg-type]
    return Site(replace(found.base, rules={**found.base.rules, RULE: rule}), found.evidence)


def about(found: Site) -> Iterator[str]:
    return (c for c in complaints(found) if c.startswith(RULE))


def test_a_sound_rule_has_no_complaint() -> None:
    assert list(about(site())) == []


def test_rule_without_citation() -> None:
    assert f"{RULE} has no citation." in about(changed(citations=()))


def test_unknown_term() -> None:
    assert any("isn't in the vocabulary" in c for c in about(changed(because=Text("As {nonsense}.", "{nonsense}。"))))


def test_missing_translation() -> None:
    assert f"{RULE}: title has no Chinese text." in about(changed(title=Text("Some title", " ")))


def test_citation_and_claim_without_evidence() -> None:
    found = site()
    citation = found.base.rules[RULE].citations[0]
    other = replace(citation, where={**citation.where, "symbol": "no_such_symbol"})
    said = list(about(changed(citations=(other,))))
    assert any("doesn't hold" in c for c in said)
    assert any("claims code_verified" in c for c in said)


@pytest.mark.parametrize(
    ("file", "command"), [("rules.json", ["rules"]), ("matrix.json", ["matrix", "show"])], ids=["rules", "matrix"]
)
def test_data_is_what_the_command_prints(file: str, command: list[str]) -> None:
    done = CliRunner().invoke(cli, [*command, "--format", "json"])
    assert json.loads(done.output) == json.loads(json.dumps(data(site())[file]))


def test_facts_are_what_the_commands_print() -> None:
    for part, found in data(site())["facts.json"].items():
        done = CliRunner().invoke(cli, [part, "--format", "json"])
        assert json.loads(done.output) == json.loads(json.dumps(found))


def test_every_formula_is_mathml() -> None:
    from xml.etree import ElementTree

    for name, quantity in site().base.quantities.items():
        ElementTree.fromstring(mathml(name, quantity.formula).replace("&#160;", " "))
