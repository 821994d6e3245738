"""Adding a release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mbridge_advisor.evidence.source import SourceError
from mbridge_advisor.evidence.store import flow
from mbridge_advisor.knowledge.yaml_reader import parse
from small_world import BRIDGE_CONFIG, World, git, write
from test_matrix import cells
from test_verify import CONFIG, run

STATED = {
    "docker/Dockerfile.ci": "ARG BASE_IMAGE=nvcr.io/nvidia/pytorch:26.09-py3\nFROM ${BASE_IMAGE}\n",
    "pyproject.toml": '[project]\nname = "megatron-bridge"\nrequires-python = ">=3.12"\n',
    ".python-version": "3.12",
    "uv.lock": 'package = [{name = "torch", version = "2.14.0"}, {name = "transformers", version = "6.1"}]\n',
    "docs/versions1.json": '[{"version": "nightly"}, {"name": "0.7.0 (latest) · 26.10", "version": "0.7.0"}]',
    "docs/releases/software-versions.md": """\
# Versions

## NeMo Framework 26.10

| Component | Version |
|---|---|
| PyTorch | 2.14.0a0 |
| Megatron-Bridge | 0.7.0 |
| CUDA | 13.4 |

## NeMo Framework 26.08

| Component | Version |
|---|---|
| PyTorch | 2.13.0a0 |
| Megatron-Bridge | 0.6.0 |
""",
}


def pin(world: World, tag: str) -> None:
    """Move a tag to a commit that pins the tagged Core."""
    core = git(world.core, "rev-parse", tag)
    git(world.bridge, "update-index", "--add", "--cacheinfo", f"160000,{core},3rdparty/Megatron-LM")
    git(world.bridge, "commit", "-qm", "pin")
    git(world.bridge, "tag", "-f", tag)
    world.commits[tag] = git(world.bridge, "rev-parse", tag), core


@pytest.fixture
def ready(world: World) -> World:
    """Releases 0.5.0 and 0.6.0 are recorded and reviewed; 0.7.0 is there to be added."""
    world.release("v0.7.0", STATED)
    git(world.bridge, "checkout", "-q", "v0.6.0")
    pin(world, "v0.6.0")
    git(world.bridge, "checkout", "-q", "v0.7.0")
    pin(world, "v0.7.0")
    world.write_knowledge()
    sources = ("--bridge-source", world.bridge, "--core-source", world.core)
    for tag in ("v0.5.0", "v0.6.0"):
        run("evidence", "record", *sources, "--revision", tag, code=int(tag == "v0.5.0"))
        run("evidence", "accept", "--all", "--revision", tag, "--by", "me", "--reason", "read", "--on", "2026-12-02")
        if tag == "v0.5.0":  # what 0.6.0 has beyond 0.5.0
            run("evidence", "record", *sources, "--revision", "v0.6.0", code=1)
            run(
                "evidence",
                "accept",
                "--all",
                "--revision",
                "v0.6.0",
                "--by",
                "me",
                "--reason",
                "r",
                "--on",
                "2026-12-02",
            )
    run("matrix", "build")
    return world


def add(world: World, tag: str = "v0.7.0", code: int = 0, *more: str) -> str:
    sources = ("--bridge-source", world.bridge, "--core-source", world.core)
    return run("revisions", "add", tag, *sources, *more, code=code)


def files(world: World) -> dict[str, str]:
    return {str(p): p.read_text() for p in sorted(world.root.rglob("*")) if p.is_file()}


def test_an_unchanged_release_is_carried_over_by_its_evidence(ready: World) -> None:
    answer = json.loads(add(ready, "v0.7.0", 0, "--format", "json"))
    bridge, core = ready.commits["v0.7.0"]
    assert answer["release"] | {"released": "", "citations": []} == {
        "tag": "v0.7.0",
        "commit": bridge,
        "core_commit": core,
        "core_version": "0.19.0rc1",
        "released": "",
        "environment": {
            "container": "nvcr.io/nvidia/nemo:26.10",
            "base_image": "nvcr.io/nvidia/pytorch:26.09-py3",
            "pytorch": "2.14.0a0",
            "pytorch_locked": "2.14.0",
            "transformer_engine": None,
            "transformer_engine_locked": None,
            "cuda": "13.4",
            "cudnn": None,
            "python": "3.12",
            "requires_python": ">=3.12",
            "nemo_run": None,
            "modelopt": None,
            "transformers": "6.1",
        },
        "citations": [],
    }
    assert answer["verification"]["counts"]["holds"] == 4
    assert cells(ready, "MB-SP-001")["v0.7.0"] == ("holds", "code_verified")
    assert ready.knowledge.revisions["v0.7.0"].core_commit == core
    assert "0 problems" in run("matrix", "check")
    run("knowledge", "lint")
    assert "v0.7.0" in run("revisions")


def test_what_changed_waits_for_a_person(ready: World) -> None:
    write(ready.bridge, {CONFIG: BRIDGE_CONFIG.replace("!= 0", "> 1")})
    git(ready.bridge, "add", CONFIG)
    git(ready.bridge, "commit", "-qm", "change")
    git(ready.bridge, "tag", "-f", "v0.7.0")
    assert "changed" in add(ready, "v0.7.0", 1)
    assert cells(ready, "MB-WORLD-001")["v0.7.0"] == ("changed", "doc_only")
    assert cells(ready, "MB-SP-001")["v0.7.0"] == ("holds", "code_verified")
    run("matrix", "check", code=1)
    run("evidence", "accept", "--revision", "v0.7.0", "--by", "me", "--reason", "same sense", "MB-WORLD-001")
    run("matrix", "build")
    assert cells(ready, "MB-WORLD-001")["v0.7.0"] == ("holds", "code_verified")
    run("matrix", "check")


def test_removed_and_added_again_it_is_the_same(ready: World) -> None:
    add(ready)
    before = files(ready)
    revisions = ready.root / "knowledge" / "revisions.yaml"
    text = revisions.read_text()
    (ready.root / "knowledge/evidence/anchors/v0.7.0.yaml").unlink()
    revisions.write_text(text[: text.index("  - tag: v0.7.0")])
    run("matrix", "build")
    assert files(ready) != before
    add(ready)
    assert files(ready) == before


def test_a_release_between_others(ready: World) -> None:
    """Rules may speak of a release that isn't there yet; it goes to its place by version."""
    path = ready.root / "knowledge" / "revisions.yaml"
    text = path.read_text()
    start = text.index("  - tag: v0.5.0")
    path.write_text(text[:start] + text[text.index("  - tag: v0.6.0") :])
    git(ready.bridge, "checkout", "-q", "v0.5.0")
    pin(ready, "v0.5.0")
    add(ready, "v0.5.0")
    assert list(ready.knowledge.revisions) == ["v0.5.0", "v0.6.0"]


def test_a_dry_run_and_a_failure_write_nothing(ready: World, tmp_path: Path) -> None:
    before = files(ready)
    add(ready, "v0.7.0", 0, "--dry-run")
    assert files(ready) == before
    assert "already" in add(ready, "v0.6.0", 2)
    assert "has no tag or commit v0.8.0" in add(ready, "v0.8.0", 2)
    git(ready.bridge, "tag", "v0.7.1", "v0.5.0")
    assert "pins no Megatron Core" in add(ready, "v0.7.1", 2)
    git(ready.bridge, "tag", "nightly", "v0.7.0")
    assert "isn't the tag" in add(ready, "nightly", 2)
    only = ("revisions", "add", "v0.7.0", "--bridge-source")
    assert "3rdparty" in run(*only, ready.bridge, code=2)
    plain = write(tmp_path / "plain", {"src/megatron/bridge/__init__.py": ""})
    assert "isn't a git repository" in run(*only, plain, code=2)
    assert files(ready) == before


def test_source_errors_are_advisor_errors() -> None:
    assert SourceError("here", "is wrong", "Mend it.").to_dict()["message"] == "here: is wrong. Mend it."


words = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20) | st.from_regex(
    r"[0-9a-f]{12}", fullmatch=True
)


@given(
    st.dictionaries(words.filter(bool), words | st.none() | st.integers(-(10**6), 10**6) | st.booleans(), max_size=4)
)
def test_what_is_written_is_read_back(value: dict[str, object]) -> None:
    assert parse(f"x: {flow(value)}\n".encode(), "x.yaml").data == {"x": value}
