"""The matrix: what is earned where, when it is stale, and what a rule may claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mbridge_advisor.advice.check import check as check_config
from mbridge_advisor.errors import KnowledgeError
from mbridge_advisor.evidence.matrix import build, check, render, select
from mbridge_advisor.evidence.store import condition_digest, load_evidence
from mbridge_advisor.evidence.tags import tag_of
from small_world import BRIDGE_CONFIG, CORE_CONFIG, World, write
from test_verify import CONFIG, CORE, recorded, run

RULES = "rules/constraints/grid.yaml"


@pytest.fixture
def built(world: World) -> World:
    """Both releases recorded and accepted, and the matrix written."""
    recorded_old = ("--bridge-source", world.bridge, "--core-source", world.core, "--revision", "v0.5.0")
    recorded(world)
    run("evidence", "record", *recorded_old)
    run("matrix", "build")
    return world


def cells(world: World, name: str) -> dict[str, tuple[str, str | None]]:
    rows = build(world.knowledge, load_evidence(world.root))
    (row,) = (row for row in rows if row.name == name)
    return {tag: (cell.verdict, cell.tag) for tag, cell in row.cells.items()}


def complaints(world: World) -> list[tuple[str, str, str | None]]:
    return [(c.kind, c.name, c.revision) for c in check(world.knowledge)]


def test_what_is_earned(built: World) -> None:
    assert cells(built, "MB-WORLD-001") == dict.fromkeys(("v0.5.0", "v0.6.0"), ("holds", "code_verified"))
    assert cells(built, "MB-SP-001") == {"v0.5.0": ("absent", None), "v0.6.0": ("holds", "code_verified")}
    assert cells(built, "MB-TP-001")["v0.6.0"] == ("holds", "doc_only")
    assert complaints(built) == []
    assert "0 problems" in run("matrix", "check")
    assert "as it was" in run("matrix", "build")


def test_nothing_is_earned_without_evidence(world: World) -> None:
    assert cells(world, "MB-WORLD-001")["v0.6.0"] == ("untested", "doc_only")
    run("matrix", "build")
    assert ("overclaims", "MB-WORLD-001", "v0.6.0") in complaints(world)


def test_an_unreviewed_change_earns_nothing(built: World) -> None:
    built.release("v0.6.1", {CONFIG: BRIDGE_CONFIG.replace("!= 0", "> 1")})
    commits = built.commits["v0.6.1"]
    built.write_knowledge(
        {"revisions.yaml": lambda t: t.replace(built.commits["v0.6.0"][0], commits[0])}  # as if the tag had moved
    )
    sources = ("--bridge-source", built.bridge, "--core-source", built.core)
    run("evidence", "record", *sources, "--revision", "v0.6.0", code=0)  # the tag still is where it was
    path = built.root / "knowledge/evidence/anchors/v0.6.0.yaml"
    lines = path.read_text().splitlines()
    (at,) = (n for n, line in enumerate(lines) if "condition: size world_size" in line)
    lines[at] = lines[at].rsplit("fingerprint:", 1)[0] + 'fingerprint: "000000000000"}'
    path.write_text("\n".join(lines) + "\n")
    assert cells(built, "MB-WORLD-001")["v0.6.0"] == ("changed", "doc_only")
    assert {("stale", "MB-WORLD-001", "v0.6.0"), ("overclaims", "MB-WORLD-001", "v0.6.0")} <= set(complaints(built))
    run("matrix", "check", code=1)


def test_a_stale_matrix(built: World) -> None:
    built.write_knowledge({RULES: lambda t: t.replace('bridge: ">=0.6"', 'bridge: ">=0.5"')})
    assert complaints(built) == [("stale", "MB-SP-001", "v0.5.0"), ("overclaims", "MB-SP-001", "v0.5.0")]
    built.write_knowledge({RULES: lambda t: t.replace("MB-SP-001", "MB-SP-002")})
    assert {("stale", "MB-SP-002", "v0.6.0"), ("stale", "MB-SP-001", None)} <= set(complaints(built))
    (built.root / "compat_matrix.yaml").unlink()
    built.write_knowledge()
    assert complaints(built) == [("stale", "compat_matrix.yaml", None)]


def test_a_broken_citation_is_an_overclaim(built: World) -> None:
    built.write_knowledge({RULES: lambda t: t.replace("condition: world_size size", "condition: world_size vpp")})
    assert ("overclaims", "MB-WORLD-001", "v0.6.0") in complaints(built)


def execution(world: World, **rules: int) -> str:
    """The record of a run at v0.6.0 that confirmed rules (``_`` for ``-``) as they stand."""
    knowledge, tag = world.knowledge, "v0.6.0"
    bridge, core = world.commits[tag]
    confirmed = {name.replace("_", "-"): number for name, number in rules.items()}
    return json.dumps(
        {
            **{"id": "run-1", "revision": tag, "bridge_commit": bridge, "core_commit": core, "seed": 1},
            **{"tried": 10, "disagreements": 0, "date": "2026-12-02", "rules": confirmed},
            "conditions": {name: condition_digest(knowledge, name, knowledge.revisions[tag]) for name in confirmed},
        }
    )


def test_a_run_of_the_real_code_is_evidence(built: World) -> None:
    core = built.commits["v0.6.0"][1]
    text = execution(built, MB_SP_001=3, MB_WORLD_001=0)
    built.write_knowledge({RULES: lambda t: t.replace("condition: sequence_parallel tp 1", "condition: nothing")})
    assert cells(built, "MB-SP-001")["v0.6.0"] == ("untested", "doc_only")
    write(built.root, {"knowledge/evidence/executions/one.yaml": text})
    assert cells(built, "MB-SP-001")["v0.6.0"] == ("holds", "code_verified")
    write(built.root, {"knowledge/evidence/executions/one.yaml": text.replace(core, "0" * 40)})  # other code
    assert cells(built, "MB-SP-001")["v0.6.0"] == ("untested", "doc_only")


def test_a_run_counts_for_what_it_tried_only(built: World) -> None:
    """A changed condition, of the rule or of a quantity that it reads, ends what a run says of it; texts don't."""
    anchor = {RULES: lambda t: t.replace("condition: world_size size", "condition: nothing")}
    built.write_knowledge(anchor)
    write(built.root, {"knowledge/evidence/executions/one.yaml": execution(built, MB_WORLD_001=5)})
    run("matrix", "build")
    assert cells(built, "MB-WORLD-001")["v0.6.0"] == ("holds", "code_verified")

    def changed(old: str, new: str, file: str = RULES) -> tuple[str, str | None]:
        def edit(text: str) -> str:
            return anchor[RULES](text).replace(old, new) if file == RULES else text.replace(old, new)

        built.write_knowledge({**anchor, file: edit})
        return cells(built, "MB-WORLD-001")["v0.6.0"]

    assert changed("Whole copies.", "Because.") == ("holds", "code_verified")
    assert changed("world_size % dense_ranks != 0", "world_size % dense_ranks > 1") == ("untested", "doc_only")
    messages = {c.revision: c.message for c in check(built.knowledge) if (c.kind, c.name) == ("stale", "MB-WORLD-001")}
    assert "What it says has changed since run-1." in messages["v0.6.0"]
    assert ("overclaims", "MB-WORLD-001", "v0.6.0") in complaints(built)
    assert changed("formula: tp * pp", "formula: tp * pp * 1", "quantities/grid.yaml") == ("untested", "doc_only")
    built.write_knowledge(anchor)
    assert cells(built, "MB-WORLD-001")["v0.6.0"] == ("holds", "code_verified")


def carried(**change: str) -> str:
    row = {
        "rule": "MB-TP-001",
        "revision": "v0.6.0",
        "from": "v0.5.0",
        "by": "me",
        "on": "2026-12-02",
        "reason": "same",
    }
    row |= change
    return "reviews: []\ncarried:\n  - {" + ", ".join(f"{k}: '{v}'" for k, v in row.items() if v) + "}\n"


def test_a_carried_verdict_needs_reason_and_reviewer(world: World) -> None:
    reviews = "knowledge/evidence/reviews.yaml"
    write(world.root, {reviews: carried()})
    assert cells(world, "MB-TP-001")["v0.6.0"] == ("holds", "doc_only")
    assert "carried_from: {revision: v0.5.0, reason: same, reviewer: me}" in render(
        world.knowledge, load_evidence(world.root)
    )
    for missing in ("reason", "by"):
        write(world.root, {reviews: carried(**{missing: ""})})
        with pytest.raises(KnowledgeError, match=missing):
            load_evidence(world.root)
        assert complaints(world)[0][:2] == ("evidence", reviews)
        run("matrix", "check", code=1)
    write(world.root, {reviews: carried(rule="MB-NO-001")})
    assert ("evidence", "MB-NO-001", "v0.6.0") in complaints(world)


def test_a_matrix_edited_by_hand(built: World) -> None:
    path = built.root / "compat_matrix.yaml"
    path.write_text(path.read_text().replace("{verdict: holds, tag: doc_only", "{verdict: holds, tag: code_verified"))
    assert ("stale", "MB-TP-001", "v0.6.0") in complaints(built)


def test_answers_print_the_tag_of_the_asked_release(built: World) -> None:
    config = {"bridge": "v0.6.0", "grid": {"sequence_parallel": True}, "cluster": {"gpus": 1}}
    (finding,) = check_config(config, knowledge=built.knowledge).findings
    assert finding.status == "code_verified"
    assert tag_of(built.knowledge, "MB-SP-001", "v0.5.0") == "doc_only"
    assert tag_of(built.knowledge, "dense_ranks", "v0.5.0") == "code_verified"
    assert tag_of(built.knowledge, "MB-NO-001", "v0.6.0") == "doc_only"
    (built.root / "compat_matrix.yaml").unlink()
    (finding,) = check_config(config, knowledge=built.knowledge).findings
    assert finding.status == "doc_only"


def test_show(built: World) -> None:
    assert "MB-TP-001" not in run("matrix", "show", "--tag", "code_verified")
    assert "代码" in run("matrix", "show", "--lang", "zh", "MB-SP")
    (row,) = json.loads(run("matrix", "show", "--kind", "quantity", "--format", "json"))
    assert row["cells"]["v0.6.0"]["tag"] == "code_verified"
    counts = json.loads(run("matrix", "show", "--counts", "--revision", "v0.5.0", "--format", "json"))
    assert {(c["kind"], c["code_verified"], c["absent"]) for c in counts} == {
        ("constraint", 1, 1),
        ("pitfall", 0, 0),
        ("quantity", 1, 0),
    }
    assert "is unknown" in run("matrix", "show", "--revision", "v1.0.0", code=2)
    rows = build(built.knowledge, load_evidence(built.root))
    assert [r.name for r in select(rows, verdict="absent")] == ["MB-SP-001"]


def test_the_core_of_another_release_is_told_apart(built: World) -> None:
    write(built.core, {CORE: CORE_CONFIG.replace("<= 1", "< 1")})
    answer = json.loads(
        run("verify", "--bridge-source", built.bridge, "--core-source", built.core, "--format", "json", code=1)
    )
    assert [a["cited_by"] for a in answer["anchors"] if a["state"] == "changed"] == [["MB-SP-001"]]


def test_the_projects_own_matrix_is_fresh() -> None:
    from mbridge_advisor.knowledge import load
    from mbridge_advisor.knowledge.locate import own_root

    root: Path = own_root()
    assert [c.to_dict() for c in check(load(root))] == []
