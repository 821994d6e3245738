"""What the site refuses to publish, and that its data is what the commands print. Needs the extra `docs`."""

from __future__ import annotations

import json
import os
import re
import subprocess
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
from mbridge_docs.machine import _once as once  # noqa: E402
from mbridge_docs.machine import _words as words_of  # noqa: E402
from mbridge_docs.machine import data, dumped, feed  # noqa: E402
from mbridge_docs.pages import Pages  # noqa: E402
from mbridge_docs.reference import SUMMARIES, openapi  # noqa: E402
from mbridge_docs.site import Site, complaints, site  # noqa: E402
from mbridge_docs.theme import ThemeTexts  # noqa: E402

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


def test_the_command_prints_the_same_bytes() -> None:
    """The files as the site writes them, against another process that knows nothing of the site."""
    done = subprocess.run(
        [sys.executable, "-m", "mbridge_advisor", "rules", "--format", "json"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.decode("utf-8") == dumped(data(site())["rules.json"])


def test_a_page_changes_with_what_it_shows() -> None:
    """What decides that a page is built anew: its own text, and everything for pages that rest on estimates."""
    found = site()
    other = changed(because=Text("Another reason.", "另一个原因。"))
    for lang in ("en", "zh"):
        assert Pages(found, lang).rule(RULE) != Pages(other, lang).rule(RULE)
        for name in ("MB-TP-002", "MB-EP-001"):
            assert Pages(found, lang).rule(name) == Pages(other, lang).rule(name)


def test_every_way_to_name_a_thing_is_searched() -> None:
    """Ids, fields, both titles and every word of every error message."""
    found = site()
    for name, rule in found.base.rules.items():
        text = once(words_of(found, "rule", name)).split()
        wanted = f"{name} {rule.title.en} {rule.title.zh}".lower().split()
        for sign in rule.signs:
            wanted += re.sub(r"\{\w+[^}]*\}|\.\.\.", " ", sign.text).lower().split()
        assert set(wanted) <= set(text), name
    for name, term in found.base.terms.items():
        assert {name, term.field.lower()} <= set(once(words_of(found, "term", name)).split())


def test_the_feed_speaks_both_languages() -> None:
    from xml.etree import ElementTree

    english, chinese = (ElementTree.fromstring(feed(site(), lang)) for lang in ("en", "zh"))
    assert len(english) == len(chinese)
    rule = site().base.rules[RULE]
    assert rule.title.en in "".join(english.itertext())
    assert rule.title.zh in "".join(chinese.itertext())


def test_every_path_of_the_service_has_a_chinese_summary() -> None:
    assert set(SUMMARIES) == set(openapi()["paths"])


def test_fixed_texts_of_the_theme_are_translatable() -> None:
    from jinja2 import Environment

    source = '<title>Menu</title><input aria-label="Toggle it"><title>{{ page }}</title>'
    template = Environment(extensions=[ThemeTexts]).from_string(source)
    assert template.render(_=str.upper, page="a") == '<title>MENU</title><input aria-label="TOGGLE IT"><title>a</title>'
