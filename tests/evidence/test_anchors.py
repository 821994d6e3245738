"""Finding statements and sections, and what their fingerprints depend on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mbridge_advisor.evidence.anchors import Found, Missing, Module, find_section

SOURCE = '''\
import os

LIMIT: int = 8
if True:
    class Config:
        """A docstring that says tp and cp."""

        tp: int = 1

        def check(self, order):
            size = self.tp * self.cp
            if self.moe:
                assert self.experts % self.ep == 0, f"{self.experts} experts"
                if self.bias:
                    raise ValueError("no bias " + "with experts")
            elif self.ep > 1:
                self.ep = 1
            if self.world % size != 0:
                raise ValueError(f"world {self.world}")
            for name in order:
                if name not in ["tp", "dp-cp"]:
                    raise RuntimeError(name)
            return os.environ.get("CONNECTIONS") == "1"
'''


def find(condition: str | None, source: str = SOURCE, symbol: str = "Config.check") -> Found | Missing:
    return Module(source.encode()).find(symbol, condition)


def text(found: Found | Missing, source: str = SOURCE) -> str:
    assert isinstance(found, Found)
    return " ".join(" ".join(source.splitlines()[found.lines[0] - 1 : found.lines[1]]).split())


def print_of(condition: str | None, source: str = SOURCE, symbol: str = "Config.check") -> str:
    found = find(condition, source, symbol)
    assert isinstance(found, Found)
    return found.fingerprint


@pytest.mark.parametrize(
    ("condition", "start"),
    [
        ("experts ep 0", "assert self.experts"),
        ("moe bias", "if self.bias:"),
        ("ep 1", "elif self.ep > 1:"),
        ("world size", "if self.world % size"),
        ("size tp cp", "size = self.tp"),
        ("name dp-cp", "if name not in"),
        ("CONNECTIONS 1", "return os.environ"),
    ],
)
def test_a_condition_tells_the_smallest_statement(condition: str, start: str) -> None:
    assert text(find(condition)).startswith(start)


def test_an_if_ends_before_its_else() -> None:
    assert "elif" not in text(find("moe bias experts"))


@pytest.mark.parametrize(("symbol", "start"), [("LIMIT", "LIMIT"), ("Config", "class"), ("Config.tp", "tp: int")])
def test_symbols_without_a_condition(symbol: str, start: str) -> None:
    assert text(find(None, symbol=symbol)).startswith(start)


@pytest.mark.parametrize(
    ("symbol", "condition", "what"),
    [
        ("Config.inherited", None, "symbol"),
        ("Nothing.check", "tp", "symbol"),
        ("Config.check", "tp vpp", "statement"),
        ("Config.check", "experts bias world", "statement"),  # only the whole method has all of them
        ("Config.check", "with", "statement"),  # the wording of a message isn't looked at
        ("Config", "docstring", "statement"),
    ],
)
def test_what_is_missing(symbol: str, condition: str | None, what: str) -> None:
    assert find(condition, symbol=symbol) == Missing(what)


@pytest.mark.parametrize(
    ("condition", "old", "new"),
    [
        ("experts ep 0", 'f"{self.experts} experts"', '"{} is bad".format(self.experts)'),
        ("moe bias", '"no bias " + "with experts"', 'f"{1} other"'),
        ("world size", '"world {self.world}"', '"GPUs: {self.world!r}"'),
        ("world size", "    if self.world", "    # a comment\n\n            if self.world"),
        ("tp cp size", '"""A docstring that says tp and cp."""', '"""Another."""'),
    ],
)
def test_words_for_people_do_not_count(condition: str, old: str, new: str) -> None:
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    assert print_of(condition, changed) == print_of(condition)


@pytest.mark.parametrize(
    ("condition", "old", "new"),
    [
        ("experts ep", "% self.ep == 0", "% self.ep == 1"),
        ("experts ep 0", "if self.moe:", "if self.moe and self.training:"),  # the guard around it
        ("ep 1", "if self.moe:", "if not self.moe:"),  # it is in its else
        ("world size", "!= 0", "== 0"),
        ("world size", "self.tp * self.cp", "self.tp * self.pp * self.cp"),  # where the tested name comes from
        ("world size", "raise ValueError(f", "raise RuntimeError(f"),
        ("name dp-cp", '"dp-cp"', '"dp-cp", "ep"'),
    ],
)
def test_what_decides_counts(condition: str, old: str, new: str) -> None:
    changed = SOURCE.replace(old, new, 1)
    assert changed != SOURCE
    assert print_of(condition, changed) != print_of(condition)


def test_a_fingerprint_is_the_same_on_every_python() -> None:
    # Fixed here on purpose: if this fails, all recorded fingerprints are void.
    assert print_of("experts ep 0") == "87e33aecab99"
    assert print_of(None) == "109be29d2d7d"


@pytest.mark.parametrize("raw", [b"def broken(:\n", b"x = 1\0", b"\xff\xfe"])
def test_source_that_does_not_parse(raw: bytes) -> None:
    with pytest.raises(SyntaxError):
        Module(raw)


def test_deep_nesting_is_refused_not_fatal() -> None:
    chain = "def f(x):\n    if x == 0:\n        pass\n" + "".join(
        f"    elif x == {n}:\n        pass\n" for n in range(3000)
    )
    with pytest.raises(SyntaxError):
        Module(chain.encode()).find("f", "x 2999")


@given(st.integers(0, 30))
def test_moving_a_statement_keeps_its_fingerprint(above: int) -> None:
    found, plain = find("world size", "# line\n" * above + SOURCE), find("world size")
    assert isinstance(found, Found)
    assert isinstance(plain, Found)
    assert found.fingerprint == plain.fingerprint
    assert found.lines[0] == plain.lines[0] + above


GUIDE = b"""\
---
title: x
---
# Top
## How to choose `TP` [now](http://x)
Words   here.
```
# code, no heading
## Other
```
### Below
more
## Other
end
"""


def test_a_section_ends_at_the_next_heading_of_its_level() -> None:
    assert find_section(GUIDE, "How to choose TP now") == find_section(GUIDE, "how to  choose `TP` now")
    found = find_section(GUIDE, "How to choose TP now")
    assert isinstance(found, Found)
    assert found.lines == (5, 12)
    last = find_section(GUIDE, "Other")
    assert isinstance(last, Found)
    assert last.lines == (13, 14)


def test_a_section_is_its_words() -> None:
    found = find_section(GUIDE, "How to choose TP now")
    assert isinstance(found, Found)
    reflowed = find_section(GUIDE.replace(b"Words   here.", b"Words\nhere."), "How to choose TP now")
    reworded = find_section(GUIDE.replace(b"Words   here.", b"Words there."), "How to choose TP now")
    assert isinstance(reflowed, Found)
    assert isinstance(reworded, Found)
    assert reflowed.fingerprint == found.fingerprint != reworded.fingerprint
    assert find_section(GUIDE, "code, no heading") == Missing("heading")
