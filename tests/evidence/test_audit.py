"""The audit of the usual guide: each form of a test can fail, places are looked up, and the kept files are fresh."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.errors import KnowledgeError
from mbridge_advisor.evidence import audit_page
from mbridge_advisor.evidence.anchors import Found, Missing
from mbridge_advisor.evidence.audit import FOUND, Audit, Bench, Guide, Looked, Outcome, audit, joined, judge, look
from mbridge_advisor.evidence.audit import write as write_found
from mbridge_advisor.evidence.source import SourceError
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.model import Text
from mbridge_advisor.knowledge.schema import mistakes
from small_world import World, git, write

BASE = load()
ROOT = Path(BASE.root)
NEWEST, OLDEST = BASE.latest, BASE.revisions["v0.2.0"]
DENSE = {"training": {"seq_length": 4096, "global_batch_size": 8, "micro_batch_size": 1}, "cluster": {"gpus": 8}}


@cache
def whole() -> Audit:
    return audit(BASE)


@cache
def bench() -> Bench:
    return Bench(BASE, Looked.load(ROOT))


def test_every_verdict_is_the_reviewed_one() -> None:
    assert [(c, tag, cell.verdict, cell.expected) for c, tag, cell in whole().surprises] == []


def test_the_kept_files_are_fresh() -> None:
    """If not: `mbridge-advisor audit --write`."""
    data = audit_page.to_dict(whole(), BASE.version)
    assert json.loads((ROOT / audit_page.DATA).read_text(encoding="utf-8")) == json.loads(json.dumps(data))
    assert (ROOT / audit_page.PAGE).read_text(encoding="utf-8") == audit_page.markdown(whole())
    assert mistakes(json.loads(json.dumps(data)), "audit") == []


def test_what_is_known_of_the_guide() -> None:
    """The faults that a reader of the source finds by hand."""
    cells = whole().cells
    assert {tag: cell.verdict for tag, cell in cells["G-112"].items()} == {
        **dict.fromkeys(("v0.2.0", "v0.2.2", "v0.3.1"), "holds"),
        **dict.fromkeys(("v0.4.2", "v0.5.1", "v0.6.0"), "fails"),
    }  # sequence parallelism without TP
    assert {cell.verdict for cell in cells["G-064"].values()} == {"fails"}  # DeepSeek-V3 on 256 GPUs
    assert "1024" in cells["G-064"]["v0.6.0"].outcomes[0].text.en
    assert {cell.verdict for cell in cells["G-073"].values()} == {"in_part"}  # max for lcm
    assert (cells["G-037"]["v0.5.1"].verdict, cells["G-037"]["v0.6.0"].verdict) == ("fails", "holds")  # ETP's default
    assert cells["G-103"]["v0.6.0"].verdict == "fails"  # a stale line
    assert cells["G-020"]["v0.6.0"].verdict == "fails"  # tables that nobody tuned


def test_every_claim_stands_where_it_says_in_both_languages() -> None:
    guide, looked = Guide.load(ROOT), Looked.load(ROOT)
    assert len({claim.id for claim in guide.claims}) == len(guide.claims)
    for claim in guide.claims:
        assert any(claim.id in lines for lines in looked.lines.values()), claim.id
    for lang in ("en", "zh"):
        assert len(list(audit_page.text(whole(), lang))) > len(guide.claims)
        assert all(claim.says[lang] in audit_page.markdown(whole(), lang) for claim in guide.claims)


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        ({"equal": {"expression": "tp * pp", "to": "dense_ranks", "over": {"tp": [1, 2], "pp": [3], "cp": [1]}}},
         "holds"),
        ({"equal": {"expression": "tp + pp", "to": "tp * pp", "over": {"tp": [1, 2], "pp": [2]}}}, "in_part"),
        ({"equal": {"expression": "tp", "to": "pp", "over": {"tp": [1, 2], "pp": [3]}}}, "fails"),
        ({"check": {"request": {**DENSE, "model": "llama3-8b", "grid": {"tp": 2}}, "sizes": {"dp": 4}}}, "holds"),
        ({"check": {"request": {**DENSE, "model": "llama3-8b", "grid": {"tp": 2}}, "runs": True}}, "holds"),
        ({"check": {"request": {**DENSE, "model": "llama3-8b", "grid": {"tp": 2}}, "sizes": {"dp": 8}}}, "fails"),
        ({"check": {"request": {**DENSE, "model": "llama3-8b", "grid": {"tp": 3}}, "runs": True}}, "fails"),
        ({"check": {"request": {**DENSE, "model": "llama3-8b", "grid": {"tp": 2}}, "rules": ["MB-SP-001"]}}, "fails"),
        ({"check": {"request": {**DENSE, "model": "no-such-model"}, "runs": True}}, "unjudged"),
        ({"rules": {"ids": ["MB-SP-001"], "severity": "override"}}, "holds"),
        ({"rules": {"ids": ["MB-SP-001", "MB-SP-002"], "severity": "error"}}, "in_part"),
        ({"rules": {"ids": ["MB-SP-001"], "severity": "warning"}}, "fails"),
        ({"rules": {"ids": ["MB-NONE-001"], "severity": "warning"}}, "fails"),
        ({"place": {"path": "docs/parallelisms.md"}}, "holds"),
        ({"place": {"path": "docs/training/hybrid-context-parallel.md"}}, "fails"),
        ({"place": {"path": "no/one/looked.py"}}, "unjudged"),
        ({"grid": {"models": ["deepseek_v2"], "grid": {"tp": 1, "pp": 4, "ep": 32}}}, "in_part"),
        ({"grid": {"models": ["deepseek_v2"], "grid": {"tp": 5}}}, "fails"),
        ({"grid": {"models": ["llama3_70b"], "grid": {"tp": 2, "pp": 4}}}, "holds"),
        ({"grid": {"models": ["unheard_of"], "grid": {"tp": 1}}}, "unjudged"),
        ({"practice": {"where": ["is_moe"], "that": ["ep >= 1"]}}, "holds"),
        ({"practice": {"where": ["is_moe"], "that": ["tp == 7"]}}, "fails"),
        ({"practice": {"where": ["tp == 77"], "that": ["tp == 7"]}}, "unjudged"),
        ({"open": {"en": "Nobody knows.", "zh": "无从得知。"}}, "unjudged"),
    ],
)  # fmt: skip
def test_each_form_can_fail(test: dict[str, Any], verdict: str) -> None:
    assert judge(bench(), NEWEST, test).verdict == verdict


def test_an_estimate_can_fail() -> None:
    request = {**DENSE, "model": "llama3-8b"}
    exact = {"of": ["weights"], "is": 2.0 * 8030261248}
    for is_, verdict in ((1.0, "holds"), (0.5, "fails")):
        row = {**exact, "is": exact["is"] * is_}
        test = {"estimate": {"request": request, "within": 0.05, "bytes": [row]}}
        assert judge(bench(), NEWEST, test).verdict == verdict


def test_a_line_that_moved_fails_and_one_that_is_there_instead() -> None:
    looked = {"path": "docs/parallelisms.md", "text": "model_config = GPTModelProvider("}
    assert judge(bench(), NEWEST, {"place": {**looked, "lines": [60, 80]}}).verdict == "holds"
    assert judge(bench(), NEWEST, {"place": {**looked, "lines": [1, 20]}}).verdict == "fails"
    paper = {"repo": "NVIDIA/Megatron-LM", "path": "megatron/core/transformer/moe/README.md"}
    spec = {"place": {**paper, "text": "2504.14960 Pangu", "instead": "2504.14960 Folding"}}
    assert (judge(bench(), OLDEST, spec).verdict, judge(bench(), NEWEST, spec).verdict) == ("unjudged", "fails")


def test_a_release_without_recipes_is_not_judged_by_them() -> None:
    revision = BASE.revisions["v0.2.2"]
    assert judge(bench(), revision, {"practice": {"that": ["tp >= 1"]}}).verdict == "not_applicable"
    assert judge(bench(), revision, {"grid": {"models": ["llama3_8b"], "grid": {"tp": 1}}}).verdict == "not_applicable"


@pytest.mark.parametrize(
    ("verdicts", "one"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "fails"], "in_part"),
        (["fails", "unjudged"], "fails"),
        (["unjudged", "not_applicable"], "unjudged"),
        (["not_applicable"], "not_applicable"),
    ],
)
def test_joined(verdicts: list[Any], one: str) -> None:
    assert joined([Outcome(v, Text("x", "x")) for v in verdicts]) == one


# --- a small world ---


def guide_of(world: World, **changes: Any) -> dict[str, Any]:
    return {
        "title": {"en": "A guide", "zh": "指南"},
        "repo": "NVIDIA-NeMo/Megatron-Bridge",
        "versions": [
            {
                "at": "v0.6.0",
                "commit": git(world.bridge, "rev-parse", "v0.6.0"),
                "guide": "docs/parallelisms.md",
                "card": "docs/parallelisms.md",
            }
        ],
        "claims": [
            {
                "id": "G-001",
                "kind": "claim",
                "says": {"en": "TP stays in a node.", "zh": "TP 不跨节点。"},
                "where": [{"in": "guide", "heading": "How to choose TP", "line": "Keep it inside", "through": "```"}],
                "tests": [
                    {"rules": {"ids": ["MB-TP-001"], "severity": "warning"}},
                    {"place": {"path": "docs/parallelisms.md", "text": "Keep it", "lines": [1, 9]}},
                    {"place": {"path": "docs/gone.md"}},
                ],
                "expect": {">=0": "in_part"},
                **changes,
            }
        ],
    }


def write_guide(world: World, **changes: Any) -> None:
    text = yaml.safe_dump(guide_of(world, **changes), allow_unicode=True)
    write(world.root / "knowledge", {"audit/guide.yaml": text})


def run(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_looking_up_and_recording(world: World) -> None:
    write_guide(world)
    assert "reviewed as in part" in run("audit", code=1)  # the rule can be judged, the places not yet
    looked = look(world.knowledge, world.bridge, world.core)
    assert looked.lines["v0.6.0"] == {"G-001": [("guide", 7, 9)]}
    found = {type(f) for f in looked.places["v0.6.0"].values()}
    assert found == {Found, Missing}
    write_found(world.root, Guide.load(world.root), looked)
    again = Looked.load(world.root)
    assert (again.lines, again.digests) == (looked.lines, looked.digests)
    assert {k: getattr(v, "lines", None) for k, v in again.places["v0.6.0"].items()} == {
        k: getattr(v, "lines", None) for k, v in looked.places["v0.6.0"].items()
    }
    assert audit(world.knowledge).cells["G-001"]["v0.6.0"].verdict == "in_part"


def test_a_verdict_that_nobody_reviewed_is_shown_and_counts(world: World) -> None:
    write_guide(world, expect={">=0.6": "holds"})
    output = run("audit", code=1)
    assert "v0.5.0: holds, reviewed as –" in output
    assert "v0.6.0: holds, reviewed" not in output
    write_guide(world, expect={">=0": "fails"})
    assert "审阅结论：不成立" in run("audit", "--lang", "zh", code=1)


def test_the_command_records_only_when_asked(world: World) -> None:
    write_guide(world)
    sources = ("--bridge-source", world.bridge, "--core-source", world.core)
    run("audit", *sources, "--format", "json")
    assert not (world.root / FOUND).exists()
    run("audit", *sources, "--record", "--write")
    assert (world.root / FOUND).is_file()
    assert "TP stays in a node." in (world.root / audit_page.PAGE).read_text(encoding="utf-8")
    assert "TP 不跨节点。" in run("audit", "--format", "markdown", "--lang", "zh")


def test_bad_input(world: World, tmp_path: Path) -> None:
    assert "guide.yaml" in run("audit", code=2)  # there is none
    write_guide(world)
    assert "--bridge-source" in run("audit", "--record", code=2)
    assert "doesn't exist" in run("audit", "--bridge-source", tmp_path / "none", code=2)
    assert "no tag or commit" in run("audit", "--bridge-source", world.core, code=2)
    git(world.bridge, "tag", "-d", "v0.5.0")
    assert "no tag or commit v0.5.0" in run("audit", "--bridge-source", world.bridge, code=2)
    git(world.bridge, "tag", "v0.5.0")
    write_guide(world, where=[{"in": "guide", "line": "no such words"}])
    with pytest.raises(SourceError, match="G-001 in no version"):
        look(world.knowledge, world.bridge, world.core)
    write_guide(world, tests=[{"guess": {}}])
    with pytest.raises(KnowledgeError, match="guess"):
        Guide.load(world.root)
    write_guide(world, expect={"newest": "holds"})
    with pytest.raises(KnowledgeError, match="newest"):
        Guide.load(world.root)
    write_guide(world)
    write(world.root, {"docs": "a file where the folder should be"})
    assert "can't be written" in run("audit", "--write", code=2)
