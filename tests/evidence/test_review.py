"""``review`` on two small knowledge bases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from mbridge_advisor.errors import KnowledgeError, RequestError
from mbridge_advisor.evidence.review import grid_scenarios, markdown, read, recipe_scenarios, review
from small_world import KNOWLEDGE, World, git, write
from test_matrix import RULES
from test_verify import recorded, run

SCENARIOS = [
    {"id": f"TP {tp}", "request": {"grid": {"tensor_model_parallel_size": tp}, "cluster": {"gpus": 16}}}
    for tp in (1, 4, 8, 16)
]


@pytest.fixture
def base(world: World, tmp_path: Path) -> Path:
    """The unchanged knowledge base, with evidence; the work tree is a git repository at the same state."""
    recorded(world)
    run("matrix", "build")
    git(world.root, "init", "-q")
    git(world.root, "add", "-A")
    git(world.root, "commit", "-qm", "base")
    shutil.copytree(world.root, tmp_path / "before")
    write(tmp_path, {"scenarios.jsonl": "\n".join(map(json.dumps, SCENARIOS))})
    return tmp_path / "before"


def ask(world: World, base: str | Path, *more: str | Path, code: int) -> str:
    scenarios = world.root.parent / "scenarios.jsonl"
    return run("review", base, *more, "--scenarios", scenarios, "--no-corpus", code=code)


def test_nothing_changed(world: World, base: Path) -> None:
    assert "No differences" in ask(world, "HEAD", code=0)
    assert "没有差异" in ask(world, base, "--lang", "zh", code=0)


def test_a_threshold(world: World, base: Path) -> None:
    world.write_knowledge({RULES: lambda t: t.replace("when: [tp > 8]", "when: [tp > 2]")})
    answer = json.loads(ask(world, "HEAD", "--format", "json", code=1))
    assert answer == json.loads(ask(world, base, "--format", "json", code=1)) | {"base": "HEAD"}
    assert answer["entries"] == [
        {
            "kind": "rules",
            "name": "MB-TP-001",
            "change": "changed",
            "fields": {"when": {"before": ["tp > 8"], "after": ["tp > 2"]}},
        }
    ]
    assert answer["matrix"] == []
    assert answer["asked"] == {"check": 4}
    assert {what: effect["scenarios"] for what, effect in answer["effects"].items()} == {
        "verdict": 2,
        "rule MB-TP-001": 2,
    }
    example = answer["effects"]["verdict"]["examples"][0]
    assert (example["scenario"], example["before"], example["after"]) == ("TP 4", "ok", "warning")


def test_words_alone_change_no_answer(world: World, base: Path) -> None:
    world.write_knowledge({RULES: lambda t: t.replace("Whole copies.", "Copies are whole.")})
    text = ask(world, "HEAD", code=0)
    assert "`MB-WORLD-001`.because" in text
    assert "All answers are the same" in text


def test_added_withdrawn_removed(world: World, base: Path) -> None:
    def change(text: str) -> str:
        text = text.replace("id: MB-TP-001", "id: MB-TP-002")
        return text.replace("    when: [sequence", "    withdrawn: {en: it was wrong, zh: 有误}\n    when: [sequence")

    world.write_knowledge({RULES: change})
    shutil.rmtree(world.root / "knowledge" / "evidence")
    result = review("HEAD", None, world.root, corpus=False)
    assert {(e.name, e.change) for e in result.entries} == {
        ("MB-TP-001", "removed"),
        ("MB-TP-002", "added"),
        ("MB-SP-001", "withdrawn"),
    }
    assert ("MB-WORLD-001", "v0.6.0", "holds, code_verified", "untested, doc_only") in result.cells
    assert result.exit_code == 1
    text = markdown(result, "zh")
    assert "删除, rules (1): `MB-TP-001`" in text
    assert "holds, code_verified → untested, doc_only" in text


def test_a_size(world: World, base: Path) -> None:
    world.write_knowledge({"quantities/grid.yaml": lambda t: t.replace("formula: tp * pp", "formula: tp * pp * 1")})
    assert "All answers are the same" in ask(world, "HEAD", code=0)
    world.write_knowledge(
        {
            "quantities/grid.yaml": lambda t: t.replace("formula: tp * pp", "formula: tp * pp * 2").replace(
                "is: 4", "is: 8"
            )
        }
    )
    answer = json.loads(ask(world, "HEAD", "--format", "json", code=1))
    assert answer["effects"]["size dense_ranks"]["scenarios"] == 4
    assert answer["effects"]["verdict"]["scenarios"] == 1  # TP 16 on 16 GPUs


def test_bad_input(world: World, base: Path, tmp_path: Path) -> None:
    assert "is no commit" in ask(world, "no-such-branch", code=2)
    git(world.root, "checkout", "-q", "--orphan", "bare")
    git(world.root, "rm", "-rq", "--cached", ".")
    git(world.root, "commit", "-q", "--allow-empty", "-m", "empty")
    with pytest.raises(RequestError, match="has no knowledge"):
        review("bare", None, world.root)
    write(tmp_path, {"scenarios.jsonl": '{"id": 1}'})
    assert "isn't a scenario" in ask(world, base, code=2)
    write(tmp_path, {"scenarios.jsonl": ""})
    world.write_knowledge({RULES: lambda t: t.replace("tp > 8", "tq > 8")})
    with pytest.raises(KnowledgeError):
        review(str(base), None, world.root)


def test_the_built_in_scenarios() -> None:
    from mbridge_advisor.knowledge.locate import own_root

    own = read(own_root())
    recipes = recipe_scenarios(own)
    assert len(recipes) > 1000
    assert len({s.id for s in recipes}) == len(recipes)
    assert len(grid_scenarios(own)) >= 100


def test_the_small_world_is_itself_sound(world: World) -> None:
    assert "0 problems" in run("knowledge", "lint")
    assert len(world.knowledge.rules) == KNOWLEDGE[RULES].count("- id:")
