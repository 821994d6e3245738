"""The reader gives plain data or a KnowledgeError, whatever it is given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mbridge_advisor.errors import KnowledgeError, Problem
from mbridge_advisor.knowledge.yaml_reader import MAX_BYTES, Document, parse, read, show_path


def content(text: str) -> Any:
    return parse(text.encode(), "f.yaml").data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("[1, -2, +3, 010]", [1, -2, 3, 10]),
        ("[1.5, 1e3, .5, 2., 1.0e+12, -1e-3]", [1.5, 1000.0, 0.5, 2.0, 1e12, -1e-3]),
        ("[true, False, null, ~, ]", [True, False, None, None]),
        ("[yes, no, on, off, y, n]", ["yes", "no", "on", "off", "y", "n"]),
        (
            "[2026-12-02, 12:30:45, 0x1F, 1_000, .inf, .nan]",
            ["2026-12-02", "12:30:45", "0x1F", "1_000", ".inf", ".nan"],
        ),
        ("['1', \"true\", 'null']", ["1", "true", "null"]),
        ("{1: a, true: b, on: c, null: d}", {"1": "a", "true": "b", "on": "c", "null": "d"}),
        ("a:\n", {"a": None}),
        ("x: tp * cp != 1", {"x": "tp * cp != 1"}),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("", None),
        ("# nothing", None),
        ("zh: 张量并行", {"zh": "张量并行"}),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert content(text) == value


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: !!python/object/apply:os.system [echo]", 2, "tag"),
        ("a: !custom 1", 1, "tag"),
        ("a: !!str 1", 1, "tag"),
        ("a: &x 1", 1, "anchor"),
        ("a: [1]\nb: *a", 2, "alias"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", 1, "anchor"),
        ("a: 1\nb: 2\na: 3", 3, "'a' stands twice"),
        ("a: {b: 1, b: 1}", 1, "'b' stands twice"),
        ("[a]: 1", 1, "key that isn't plain text"),
        ("? {a: 1}\n: 2", 1, "key that isn't plain text"),
        ("!!str a: 1", 1, "key that isn't plain text"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("%TAG ! tag:x,2000:\n---\na: 1", 1, "%TAG"),
        ("a: [1, 2\nb: 3", 2, "isn't YAML"),
        ("a: b: c", 1, "isn't YAML"),
        ("a:\n\t- 1", 2, "isn't YAML"),
        ("a: 99999999999999999999", 1, "too large"),
        ("a: 1e999", 1, "too large"),
        ("\n" + "[" * 41, 2, "too deep"),
        ('a: "\\ud800"', 1, "isn't YAML"),
    ],
)
def test_what_is_refused(text: str, line: int, reason: str) -> None:
    with pytest.raises(KnowledgeError) as caught:
        content(text)
    first = caught.value.problems[0]
    assert (first.file, first.line) == ("f.yaml", line)
    assert reason in first.reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"a: 1\nb: \xff", "UTF-8"),
        (b"a: 1\nb: \0", "NUL"),
        (b"a: \x01", "isn't YAML"),
        (b"#" * (MAX_BYTES + 1), "long"),
    ],
)
def test_bytes_that_are_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(KnowledgeError, match=reason):
        parse(raw, "f.yaml")


def test_all_mistakes_at_once() -> None:
    with pytest.raises(KnowledgeError) as caught:
        content("a: !x 1\nb: &y 2\nc: *y\na: 4")
    assert [p.line for p in caught.value.problems] == [1, 2, 3, 4]


def test_depth_up_to_the_limit() -> None:
    value = content("[" * 40 + "]" * 40)
    for _ in range(39):
        (value,) = value
    assert value == []


def test_a_bomb_does_not_grow() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 30))
    with pytest.raises(KnowledgeError, match="alias"):
        content(f"l0: &l0 [x]\n{levels}")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1", encoding="utf-8")
    assert read(path, "knowledge/a.yaml") == Document("knowledge/a.yaml", {"a": 1}, "a: 1")
    with pytest.raises(KnowledgeError, match=r"none\.yaml.*can't be read"):
        read(tmp_path / "none.yaml")
    with pytest.raises(KnowledgeError, match="can't be read"):
        read(tmp_path)


def test_lines() -> None:
    document = parse(b"# head\na:\n  - x\n  - b: 1\n    c:\n      d: 2\n", "f.yaml")
    assert document.line() == 2
    assert document.line(("a",)) == 2
    assert document.line(("a", 0)) == 3
    assert document.line(("a", 1, "c")) == 5
    assert document.line(("a", 1, "c", "d")) == 6
    assert document.line(("a", 1, "missing")) == 4
    assert document.line(("a", 7)) == 2
    assert parse(b"", "f.yaml").line(("a",)) is None


def test_paths() -> None:
    assert show_path(("rules", 3, "when", 0)) == "rules[3].when[0]"
    assert show_path(()) == ""


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(plain)
def test_reads_back_what_pyyaml_writes(value: Any) -> None:
    text = yaml.dump(value, Dumper=NoAliases)
    assert content(text) == value


class NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or type(value) in (int, bool, str) or (type(value) is float and math.isfinite(value))


SIGNS = "ab01.:-,[]{}&*!|>%@`'\"#?~ \n\t\\\0\u0085\ufeff\ud83d"
soup = st.lists(st.sampled_from([*SIGNS, "- ", ": ", "\n  ", "!!", "<<"]))


@given(st.binary(max_size=60) | soup.map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass")))
def test_anything_is_data_or_a_clear_error(raw: bytes) -> None:
    refused: tuple[Problem, ...] = ()
    try:
        document = parse(raw, "f.yaml")
    except KnowledgeError as error:
        refused = error.problems
    else:
        assert is_plain(document.data)
        document.line(("a", 0, "b"))  # finds a line or none
    assert all(p.reason and p.file == "f.yaml" for p in refused)
