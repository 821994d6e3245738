"""Every kind of mistake is found, with its line, together with all others; a snapshot changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mbridge_advisor.errors import KnowledgeError, Problem
from mbridge_advisor.knowledge import load, load_recipes, load_throughput, snapshot
from mbridge_advisor.knowledge.lint import lint
from mbridge_advisor.knowledge.load import assemble, check
from mbridge_advisor.knowledge.locate import VARIABLE, find_root, own_root
from mbridge_advisor.knowledge.model import Citation, Example, Fix, Text, Then
from mbridge_advisor.knowledge.sources import Files

V, R, G, M = "vocabulary.yaml", "revisions.yaml", "facts/gpus/h100.yaml", "facts/models/small.yaml"
C, Q, S = "facts/calibration.yaml", "quantities/grid.yaml", "rules/constraints/sp.yaml"


def edit(base: Path, name: str, old: str, new: str) -> None:
    """Replace the first occurrence of a text that must be there."""
    path = base / "knowledge" / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def line_of(base: Path, name: str, text: str) -> int:
    """The line on which a text first stands."""
    lines = (base / "knowledge" / name).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def fresh(base: Path) -> list[Problem]:
    """The mistakes that loading finds."""
    try:
        check(base, Files.read(base))
    except KnowledgeError as error:
        return list(error.problems)
    return []


def test_the_small_base_has_no_mistakes(base: Path) -> None:
    assert lint(base) == []


# file, text, its replacement, text on the line of the mistake, path, part of the reason, part of what was expected
MISTAKES = [
    # shape
    (V, "    unit: token", "    units: token", "units", "terms.seq_length.units", "'units' is unknown", "'unit'"),
    (V, "    type: bool", "    type: boolean", "boolean", "terms.sequence_parallel.type", "isn't allowed", "'bool'"),
    (V, "    min: 1\n    max", '    min: "1"\n    max', 'min: "1"', "terms.tp.min", "is '1', text", "a number"),
    (
        V,
        "zh: 序列并行",
        "zn: 序列并行",
        "zn:",
        "terms.sequence_parallel.title",
        "lacks the key 'zh'",
        "Simplified Chinese",
    ),
    (V, "  tp:\n", "  t-p:\n", "t-p", "terms.t-p", "wrong form", "short name"),
    (R, "tag: v0.5.0", "tag: 0.5.0", "0.5.0", "revisions[0].tag", "wrong form", "v0.6.0"),
    (R, '"1111', '"111', '"111', "revisions[0].commit", "wrong form", "commit"),
    (G, "gpus_per_node: 8", "gpus_per_node: 0", "per_node: 0", "gpus_per_node", "too small", "at least 1"),
    (G, "bf16:", "bf61:", "bf61", "peak_flops.bf61", "isn't allowed", "'bf16'"),
    (M, "num_layers: 2", "n_layers: 2", "n_layers", "architecture.n_layers", "unknown", "'num_layers'"),
    (M, "hf_id: someone/small", "hf_id: small", "hf_id", "hf_id", "wrong form", "owner/name"),
    (C, "value: 1000", "value: much", "much", "constants[0].value", "is 'much', text", "a number"),
    (Q, "    status: code_verified\n", "", "name: dp", "quantities[0]", "lacks the key 'status'", ""),
    (S, "severity: override", "severity: severe", "severe", "rules[0].variants[0].severity", "isn't allowed", "error"),
    (S, "severity: error", "severity: eror", "eror", "rules[0].severity", "isn't allowed", "'error'"),
    (S, "since: 2026-12-02", "since: yesterday", "yesterday", "rules[0].since", "wrong form", "ISO date"),
    (S, "- code: {", "- cod: {", "cod:", "rules[0].citations[0].cod", "unknown", "'code'"),
    (S, "      - sequence_parallel\n", "      - true\n", "- true", "rules[0].when[0]", "true or false", "text"),
    (S, "zh: 没有可切分的内容", "zh: ''", "because", "rules[0].because.zh", "is empty", "Chinese"),
    (S, "id: MB-SP-001", "id: SP-1", "SP-1", "rules[0].id", "wrong form", "MB-TOPIC-NNN"),
    (S, "because: {en: There", "becuase: {en: There", "becuase", "rules[0].becuase", "unknown", "'because'"),
    # vocabulary
    (V, "unit: token", "unit: tokens", "unit: tokens", "terms.seq_length.unit", "isn't a unit", "base units"),
    (V, "    type: bool\n", "    type: bool\n    unit: byte\n", "byte", "terms.sequence_parallel.unit", "no unit", ""),
    (V, "max: 64", "max: 0", "max: 0", "terms.tp.max", "below min", ""),
    (V, "default: 1", "default: 65", "65", "terms.tp.default", "above the largest tp, 64", ""),
    (V, "default: false", "default: 0", "default: 0", "terms.sequence_parallel.default", "isn't of type bool", ""),
    (V, "    nullable: true\n", "", "value: null", "terms.etp.default[0].value", "can't be unset", ""),
    (V, '{bridge: "<0.6"', '{bridge: "0.6"', "value: null", "terms.etp.default[0].bridge", "PEP 440", ""),
    (
        V,
        "aliases: [tensor_parallel]",
        "aliases: [seq_length]",
        "  seq_length:",
        "terms.seq_length",
        "means tp already",
        "",
    ),
    (
        V,
        "{name: tp, side: max}",
        "{name: tq, side: max}",
        "tq, side",
        "terms.tp_max.bounds.name",
        "'tq' isn't in",
        "'tp'",
    ),
    (
        V,
        "    section: derived\n    type: int\n    bounds",
        "    section: grid\n    type: int\n    bounds",
        "bounds",
        "terms.tp_max.bounds",
        "only a derived name",
        "",
    ),
    # releases and facts
    (
        R,
        "tag: v0.6.0",
        "tag: v0.5.0  # again",
        "# again",
        "revisions[1].tag",
        "is taken in knowledge/revisions.yaml:2",
        "",
    ),
    (R, "released: 2026-05-01", "released: 2026-13-01", "2026-13", "revisions[0].released", "is no day", ""),
    (G, "  nvlink_domain: {url", "  host_memory_bytes: {url", "citations:", "citations", "source of nvlink_domain", ""),
    (
        M,
        "recipe_keys: [small]",
        "recipe_keys: [smal]",
        "smal]",
        "recipe_keys[0]",
        "no recipe file for 'smal'",
        "'small'",
    ),
    (C, "unit: byte", "unit: bit", "bit", "constants[0].unit", "isn't a unit", ""),
    # quantities
    (Q, "name: dp", "name: dq", "dq", "quantities[0].name", "'dq' isn't in the vocabulary", "'dp'"),
    (Q, "name: dp", "name: tp", "name: tp", "quantities[0].name", "facts never change", "derived"),
    (
        Q,
        "formula: world_size // tp",
        "formula: world_size // tq",
        "tq",
        "quantities[0].formula",
        "unknown name 'tq'",
        "",
    ),
    (Q, "formula: world_size // tp", "formula: world_size / tp", "/ tp", "quantities[0].formula", "gives float", ""),
    (
        Q,
        "formula: world_size // tp",
        "formula: seq_length",
        "seq_length",
        "quantities[0].formula",
        "gives unit token",
        "",
    ),
    (Q, 'bridge: ">=0.2"', 'bridge: ">=9"', ">=9", "quantities[0].bridge", "no known release", "v0.6.0"),
    (Q, '{bridge: ">=0.6"', '{bridge: "<0.2"', "<0.2", "quantities[0].variants[0].bridge", "own range", ""),
    (
        Q,
        "{world_size: 8, tp: 2}",
        "{world_size: 8, tq: 2}",
        "tq",
        "quantities[0].examples[0].given.tq",
        "'tq' isn't in",
        "",
    ),
    (Q, "is: 4}", "is: four}", "four", "quantities[0].examples[0].is", "isn't of type int", ""),
    (
        Q,
        "bridge: v0.5.0}",
        "bridge: v0.5.1}",
        "v0.5.1",
        "quantities[0].examples[1].bridge",
        "no release 'v0.5.1'",
        "v0.5.0",
    ),
    # rules
    (S, "id: MB-SP-002", "id: MB-SP-001  # again", "# again", "rules[1].id", "is taken in", ""),
    (S, "- tp < 2", "- tp <", "- tp <", "rules[0].when[1]", "'tp <'", ""),
    (S, "- tp < 2", "- tp + 2", "tp + 2", "rules[0].when[1]", "true or false", ""),
    (S, "- tp < 2", "- tp.real < 2", "real", "rules[0].when[1]", "tp.real", ""),
    (S, "- tp < 2", "- tp < seq_length", "< seq", "rules[0].when[1]", "token", ""),
    (S, "TP is {tp}.", "TP is {tq}.", "{tq}", "rules[0].then.violation.en", "'tq' isn't in", "'tp'"),
    (S, "TP 为 {tp}。", "TP 为 {tp。", "为 {tp。", "rules[0].then.violation.zh", "braces", ""),
    (S, "TP is {tp}.", "TP is {tp:d}.", "{tp:d}", "rules[0].then.violation.en", "isn't supported", "bare"),
    (S, "zh: TP 不出节点", "zh: TP stays inside", "stays inside", "rules[1].title.zh", "isn't Chinese", ""),
    (S, "violation: {en", "advice: {en", "then:", "rules[0].then", "a constraint without violation", ""),
    (S, "sequence_parallel: false, tp:", "dp: 1, tp:", "dp: 1", "rules[0].fix.set.dp", "is computed", ""),
    (
        S,
        "sequence_parallel: false, tp:",
        "sequence_parallel: 0, tp:",
        "set:",
        "rules[0].fix.set.sequence_parallel",
        "bool",
        "",
    ),
    (S, "= min(world_size, 2)", "= sequence_parallel", "= seq", "rules[0].fix.set.tp", "gives bool", ""),
    (S, 'tp_max: "8"', 'tp: "8"', 'tp: "8"', "rules[1].then.derive.tp", "facts never change", ""),
    (S, 'tp_max: "8"', 'tp_maxx: "8"', "tp_maxx", "rules[1].then.derive.tp_maxx", "isn't in", "'tp_max'"),
    (S, "that: tp <= 8", "that: tp", "that: tp,", "rules[1].then.prefer[0].that", "true or false", ""),
    (S, '- bridge: ">=0.6"', '- bridge: ">=0.6, x"', ">=0.6, x", "rules[0].variants[0].bridge", "PEP 440", ""),
    (
        S,
        "        severity: override\n",
        '        severity: override\n      - bridge: ">=0.6"  # again\n        severity: error\n',
        "# again",
        "rules[0].variants[1].bridge",
        "covered by the variants before",
        "",
    ),
    (
        S,
        "related: [MB-SP-002]",
        "related: [MB-SP-003]",
        "SP-003",
        "rules[0].related[0]",
        "no rule 'MB-SP-003'",
        "MB-SP-002",
    ),
    (S, "related: [MB-SP-002]", "related: [MB-SP-001]", "related", "rules[0].related[0]", "this rule itself", ""),
    (
        S,
        "    examples:\n      fires: [{world_size: 16}]\n",
        "    examples:  # here\n",
        "# here",
        "rules[1].examples.fires",
        "no example that fires",
        "",
    ),
    (
        S,
        "quiet: [{world_size: 8}]",
        "quiet: [{world: 8}]",
        "world: 8",
        "rules[1].examples.quiet[0].world",
        "isn't in",
        "",
    ),
    (
        S,
        "fires: [{world_size: 16}]",
        "fires: [{world_size: x}]",
        "size: x",
        "rules[1].examples.fires[0].world_size",
        "type int",
        "",
    ),
    (
        S,
        "true, bridge: v0.5.0",
        "true, bridge: v0.5.9",
        "v0.5.9",
        "rules[0].examples.fires[0].bridge",
        "no release",
        "v0.5.0",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "mark", "path", "reason", "expected"), MISTAKES)
def test_each_mistake_is_found(
    base: Path, name: str, old: str, new: str, mark: str, path: str, reason: str, expected: str
) -> None:
    edit(base, name, old, new)
    found = [p for p in fresh(base) if p.path == path]
    assert found, [str(p) for p in fresh(base)]
    assert reason in found[0].reason
    assert expected in found[0].expected
    assert (found[0].file, found[0].line) == (f"knowledge/{name}", line_of(base, name, mark))


def test_lines(base: Path) -> None:
    """The line is the mistake's own, also far inside a flow mapping or under a key that is missing."""
    edit(base, S, "- tp < 2", "- tp < two")
    edit(base, S, "quiet: [{world_size: 8}]", "quiet: [{world_size: 8},\n              {wrong: 8}]")
    edit(base, Q, "    status: code_verified\n", "")
    lines = {p.path: (p.file, p.line) for p in fresh(base)}
    assert lines == {
        "rules[0].when[1]": (f"knowledge/{S}", line_of(base, S, "tp < two")),
        "rules[1].examples.quiet[1].wrong": (f"knowledge/{S}", line_of(base, S, "{wrong: 8}")),
        "quantities[0]": (f"knowledge/{Q}", line_of(base, Q, "name: dp")),
    }


def test_all_mistakes_at_once(base: Path) -> None:
    edit(base, S, "severity: error", "severity: eror")  # its rule is not looked into further, the next one is
    edit(base, S, "world_size > 8", "wrld_size > 8")
    edit(base, Q, "is: 4}", "is: four}")
    edit(base, G, "gpus_per_node: 8", "gpus_per_node: 0")
    edit(base, C, "value: 1000", "value: &a 1000")
    with pytest.raises(KnowledgeError) as caught:
        load(base)
    assert [p.path for p in caught.value.problems if p.path] == [
        "gpus_per_node",
        "quantities[0].examples[0].is",
        "rules[0].severity",
        "rules[1].when[0]",
    ]
    assert "anchor" in str(caught.value)
    assert "5 problems" in str(caught.value)


def test_names_are_unique_across_files(base: Path) -> None:
    other = base / "knowledge" / "facts" / "gpus" / "other.yaml"
    text = (base / "knowledge" / G).read_text(encoding="utf-8")
    other.write_text(
        text.replace("name: H100", "name: h100-80gb").replace("aliases: [H100-80GB]\n", ""), encoding="utf-8"
    )
    assert [p.reason for p in fresh(base)] == ["the name 'h100-80gb' belongs to H100 already"]


@pytest.mark.parametrize("name", [V, R, "knowledge.yaml"])
def test_files_that_must_be_there(base: Path, name: str) -> None:
    (base / "knowledge" / name).unlink()
    if name == V:
        with pytest.raises(KnowledgeError, match="holds no knowledge base"):
            load(base)
    assert any(p.file == f"knowledge/{name}" and "missing" in p.reason for p in fresh(base))


@pytest.mark.parametrize("text", ["", "[]", "rules: 3", "topic: x\nrules: [3]", "topic: x\nrules: {a: b}", "word"])
def test_documents_of_wrong_shape(base: Path, text: str) -> None:
    (base / "knowledge" / S).write_text(text, encoding="utf-8")
    assert all(p.file == f"knowledge/{S}" for p in fresh(base))
    assert fresh(base)


# lint: what loading leaves out


@pytest.mark.parametrize(
    ("name", "old", "new", "path", "reason"),
    [
        (
            S,
            "{tp: 2, sequence_parallel: true}",
            "{tp: 1, sequence_parallel: true}",
            "rules[0].examples.quiet[0]",
            "fires on",
        ),
        (S, "fires: [{world_size: 16}]", "fires: [{world_size: 4}]", "rules[1].examples.fires[0]", "stays quiet on"),
        (S, "fires: [{world_size: 16}]", "fires: [{tp: 4}]", "rules[1].examples.fires[0]", "without world_size"),
        (Q, "is: 4}", "is: 5}", "quantities[0].examples[0]", "dp is 4 at v0.6.0"),
        (Q, "is: 0, bridge: v0.5.0}", "is: 0}", "quantities[0].examples[1]", "dp is 1 at v0.6.0"),
        (Q, "world_size: 8, tp: 2", "world_size: 8", "quantities[0].examples[0]", "needs tp"),
        ("facts/recipes/small.yaml", "tp: 1, pp: 1", "tp: 1, qq: 1", "rows[0].qq", "unknown"),
        ("facts/recipes/small.yaml", "model_key: small", "model_key: smaller", "model_key", "small.yaml"),
        ("facts/measurements/published_throughput.yaml", "num_gpus: 8", "num_gpus: 0", "rows[0].num_gpus", "too small"),
    ],
)
def test_lint_finds_more(base: Path, name: str, old: str, new: str, path: str, reason: str) -> None:
    edit(base, name, old, new)
    assert fresh(base) == []
    found = lint(base)
    assert [(p.file, p.path) for p in found] == [(f"knowledge/{name}", path)]
    assert reason in found[0].reason


def test_lint_finds_stray_files(base: Path) -> None:
    (base / "knowledge" / "rules" / "extra.yml").write_text("topic: x", encoding="utf-8")
    assert [(p.file, p.reason) for p in lint(base)] == [("knowledge/rules/extra.yml", "is read by nothing")]


def test_lint_finds_circles(base: Path) -> None:
    edit(base, S, 'tp_max: "8"', 'tp_max: "dp"')
    edit(base, Q, "formula: world_size // tp", "formula: tp_max + world_size // tp")
    edit(base, Q, '    variants:\n      - {bridge: ">=0.6", formula: "max(1, world_size // tp)"}\n', "")
    edit(base, Q, "{world_size: 8, tp: 2}", "{world_size: 8, tp: 2, tp_max: 0}")
    edit(base, Q, "{world_size: 1, tp: 2}", "{world_size: 1, tp: 2, tp_max: 0}")
    assert any("circle" in p.reason for p in lint(base))


# Objects


def test_objects(base: Path) -> None:
    knowledge = load(base)
    old, new = knowledge.revisions["v0.5.0"], knowledge.revisions["v0.6.0"]
    assert knowledge.version == "0.1.0"
    assert knowledge.latest is new
    assert new.note == Text("A note", "说明")
    assert old.environment == {"python": "3.12", "container": None}
    assert knowledge.by_field["tensor_parallel"] is knowledge.terms["tp"]
    etp = knowledge.terms["etp"].default
    assert etp is not None
    assert (etp.at(old), etp.at(new)) == (None, 1)
    assert knowledge.terms["dp"].default is None
    assert knowledge.terms["tp_max"].bounds == ("tp", "max")
    assert knowledge.gpus["H100"].peak_flops == {"bf16": 9.895e14}
    assert knowledge.models["small"].architecture.moe_layer_freq == (1, 0)
    assert knowledge.models["small"].citations == (Citation("url", {"url": "https://example.org", "title": "Card"}),)
    assert knowledge.quantities["dp"].at(old) == "world_size // tp"
    assert knowledge.quantities["dp"].at(new) == "max(1, world_size // tp)"
    assert knowledge.calibration["overhead_bytes"]["value"] == 1000
    rule = knowledge.rules["MB-SP-001"]
    assert (rule.file, rule.line) == (f"knowledge/{S}", 3)
    assert rule.fix == Fix(Text("Switch it off", "关闭它"), {"sequence_parallel": False, "tp": "= min(world_size, 2)"})
    assert rule.fires == (Example({"tp": 1, "sequence_parallel": True}, "v0.5.0"),)
    at_new = rule.at(new)
    assert at_new is not None
    assert (rule.severity, at_new.severity) == ("error", "override")
    assert knowledge.rules["MB-SP-002"].then == Then(derive={"tp_max": "8"}, prefer=(("tp <= 8", 0.05),))


def test_rows(base: Path) -> None:
    knowledge = load(base)
    assert [row["recipe"] for row in load_recipes(knowledge, "small")] == ["small_config"]
    assert load_recipes(knowledge, "none") == ()
    assert load_recipes(knowledge, "../models/small") == ()
    assert [row["system"] for row in load_throughput(knowledge)] == ["H100"]


def test_rows_that_are_not_rows(base: Path) -> None:
    (base / "knowledge" / "facts" / "recipes" / "small.yaml").write_text("rows: 3", encoding="utf-8")
    with pytest.raises(KnowledgeError, match="list of mappings"):
        load_recipes(load(base), "small")


# Where it is


def test_roots(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_root() == own_root()
    monkeypatch.setenv(VARIABLE, str(base))
    assert find_root() == base.resolve()
    assert load() is load(base)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(KnowledgeError, match=f"nowhere.*{VARIABLE}"):
        load()


# Snapshots


def snapshots(base: Path) -> list[Path]:
    return list((base.parent / "cache" / "mbridge-advisor").glob("*"))


def load_anew(base: Path) -> object:
    """Load in this process, but not from what it remembers."""
    load.__globals__["_load"].cache_clear()
    return load(base)


def test_a_snapshot_gives_the_same(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_anew(base)
    assert len(snapshots(base)) == 1

    def unused(*_: object) -> None:
        raise AssertionError("validated again")

    monkeypatch.setitem(load.__globals__, "check", unused)
    assert load_anew(base) == first


def test_a_snapshot_of_other_files_is_not_used(base: Path) -> None:
    load_anew(base)
    edit(base, "knowledge.yaml", "0.1.0", "0.2.0")
    assert load_anew(base).version == "0.2.0"  # type: ignore[attr-defined]
    edit(base, S, "severity: error", "severity: eror")
    with pytest.raises(KnowledgeError):
        load_anew(base)
    assert len(snapshots(base)) == 1


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\xfe", b'{"format": 1}\n{}', None])
def test_a_damaged_snapshot_is_ignored(base: Path, damage: bytes | None) -> None:
    first = load_anew(base)
    (path,) = snapshots(base)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"SP-001", b"SP-009") if damage is None else damage)
    assert load_anew(base) == first
    assert path.read_bytes() == raw  # and replaced


def test_a_cache_that_cannot_be_written(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_anew(base)


def test_a_snapshot_beside_the_data(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = Files.read(base)
    content = check(base, files)
    snapshot.write(base / snapshot.NAME, files.digest, content)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert load_anew(base) == replace(assemble(content, files.digest, base), root=str(base))
    assert not (tmp_path / "empty").exists()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        snapshot.write(tmp_path / "s", "digest", {"f": ("kind", object(), ())})
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        snapshot.write(tmp_path / "folder", "digest", {})
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_snapshot_spares_the_heavy_imports(base: Path) -> None:
    load_anew(base)
    code = (
        "import sys, pathlib; from mbridge_advisor.knowledge import load; load(pathlib.Path(sys.argv[1])); "
        "print(*sorted({'jsonschema', 'numpy', 'yaml'} & sys.modules.keys()))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(base)], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert out.stdout.split() == []
