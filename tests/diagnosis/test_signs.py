"""The messages that rules recognise are worded as in the source at the releases that they claim."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from re._parser import parse  # type: ignore[import-not-found]
from typing import Any

import pytest
import yaml
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.signs import Template

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_signs import COMPOSED, RECORD, REPOS, claims, places, wrong

BASE = load()
FOUND = yaml.safe_load(RECORD.read_text(encoding="utf-8"))
SOURCES = {name: os.environ.get(f"MBRIDGE_{name.upper()}_GIT", "") for name in REPOS}
TEMPLATES = {
    *(sign.text for rule in BASE.rules.values() for sign in rule.signs),
    *(text for term in BASE.terms.values() for text in term.in_log),
}


def test_every_message_was_found_where_it_is_claimed() -> None:
    assert len(claims(BASE)) > 200
    assert list(wrong(BASE, FOUND)) == []


def test_messages_that_no_literal_holds_are_still_there() -> None:
    used = {sign.text for rule in BASE.rules.values() for sign in rule.signs}
    assert used >= COMPOSED.keys()
    assert all(not FOUND.get(text) for text in COMPOSED)


@pytest.mark.skipif(not all(SOURCES.values()), reason="MBRIDGE_BRIDGE_GIT and MBRIDGE_CORE_GIT don't name repositories")
def test_the_record_is_what_the_source_says() -> None:
    assert places(BASE, {name: Path(root) for name, root in SOURCES.items()}) == FOUND


def loops(parsed: Any, inside: bool = False) -> Iterator[str]:
    """Repetitions inside of repetitions, which are what backtracks without end."""
    for op, argument in parsed:
        name = str(op)
        if name.endswith("REPEAT"):
            _, most, body = argument
            if inside:
                yield name
            yield from loops(body, inside or most > 1)
        elif name == "SUBPATTERN":
            yield from loops(argument[-1], inside)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from loops(branch, inside)


def test_no_template_repeats_a_repetition() -> None:
    assert list(loops(parse(r"(a+)*")))
    for source in TEMPLATES:
        for part in Template.compile(source, BASE.terms)._parts:
            assert list(loops(parse(part.pattern))) == [], source


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("short {tp}", "fewer than"),
        ("a gap at the end ...", "says nothing"),
        ("two values that touch {tp}{pp}", "touch"),
        ("the same value {tp} and again {tp} here", "occurs twice"),
        ("no such name as {nothing} here", "vocabulary"),
        ("a brace { that isn't one", "braces"),
        ("1234 5678 9012 3456", "four letters"),
        ("a a ... a a ... a a ... a a ... a a ... aaaaaaaa", "gaps"),
    ],
)
def test_a_bad_template_is_refused(source: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Template.compile(source, BASE.terms)
