"""``verify`` on sources of every shape."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.evidence.source import SourceError
from mbridge_advisor.evidence.verify import Verification, verify
from mbridge_advisor.knowledge.load import _load
from small_world import BRIDGE_CONFIG, CORE_CONFIG, CORE_FILES, FILES, GUIDE, World, git, write

CONFIG = "src/megatron/bridge/training/config.py"
CORE = "megatron/core/model_parallel_config.py"


def run(*arguments: str | Path, code: int = 0) -> str:
    _load.cache_clear()
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.output


def recorded(world: World, tag: str = "v0.6.0") -> None:
    sources = ("--bridge-source", world.bridge, "--core-source", world.core)
    run("evidence", "record", *sources, "--revision", tag, code=1)
    run("evidence", "accept", "--revision", tag, "--all", "--by", "me", "--reason", "read", "--on", "2026-12-02")


def states(result: Verification) -> dict[str, str]:
    return {name: s.state for s in result.sightings for name in s.owners}


def look(world: World, tag: str | None = "v0.6.0") -> Verification:
    return verify(world.knowledge, world.bridge, world.core, tag)


def test_as_reviewed(world: World) -> None:
    assert set(states(look(world)).values()) == {"new"}
    recorded(world)
    result = look(world)
    assert states(result) == dict.fromkeys(("MB-WORLD-001", "MB-SP-001", "MB-TP-001", "dense_ranks"), "holds")
    assert result.exit_code == 0
    assert result.commits == world.commits["v0.6.0"]


def test_the_work_tree_is_neither_read_nor_touched(world: World) -> None:
    recorded(world)
    write(world.bridge, {CONFIG: "broken ("})
    before = {p: p.stat().st_mtime_ns for p in world.bridge.rglob("*")}
    assert look(world).exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in world.bridge.rglob("*")} == before


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        ("doesn't fit", "can't be divided by", "holds"),
        ('"""Configuration."""', '"""Configuration."""\n\n# more\n', "moved"),
        ("% size != 0", "% size > 1", "changed"),
        ("self.tp * self.pp", "self.tp * self.pp * self.cp", "changed"),
        ("if self.world_size % size != 0:", "if self.ranks % size != 0:", "missing"),
        ("def validate", "def check", "missing"),
    ],
)
def test_a_changed_work_tree(world: World, old: str, new: str, state: str) -> None:
    recorded(world)
    write(world.bridge, {CONFIG: BRIDGE_CONFIG.replace(old, new)})
    result = look(world, None)
    found = next(s for s in result.sightings if "MB-WORLD-001" in s.owners)
    assert found.state == state
    assert (found.look is None) == (state == "holds")
    assert result.exit_code == int(state in ("changed", "missing"))


def test_a_file_that_moved(world: World) -> None:
    recorded(world)
    (world.core / CORE).unlink()
    write(world.core, {"megatron/core/config/parallel.py": CORE_CONFIG})
    found = next(s for s in look(world, None).sightings if "MB-SP-001" in s.owners)
    assert (found.state, found.path) == ("moved", "megatron/core/config/parallel.py")
    assert look(world, None).exit_code == 1  # the citation must be corrected


def test_documentation(world: World) -> None:
    recorded(world)
    write(world.bridge, {"docs/parallelisms.md": GUIDE.replace("Keep it inside   a node", "Keep it\ninside a node")})
    assert states(look(world, None))["MB-TP-001"] == "moved"
    write(world.bridge, {"docs/parallelisms.md": GUIDE.replace("inside   a node", "small")})
    assert states(look(world, None))["MB-TP-001"] == "changed"
    write(world.bridge, {"docs/parallelisms.md": GUIDE.replace("choose `TP`", "choose it")})
    assert states(look(world, None))["MB-TP-001"] == "missing"


def test_a_wheel(world: World, tmp_path: Path) -> None:
    recorded(world)
    site = write(tmp_path / "site-packages", CORE_FILES)
    write(site, {name.removeprefix("src/"): text for name, text in FILES.items() if name.startswith("src/")})
    result = verify(world.knowledge, site)  # the release is told from the package's own version
    assert result.revision.tag == "v0.6.0"
    assert states(result) == {
        "MB-WORLD-001": "holds",
        "MB-SP-001": "holds",
        "dense_ranks": "holds",
        "MB-TP-001": "skipped",
    }


def test_without_core(world: World) -> None:
    recorded(world)
    result = verify(world.knowledge, world.bridge, None, "v0.6.0")
    assert states(result)["MB-SP-001"] == "skipped"
    assert any("--core-source" in note.en for note in result.notes)
    assert result.exit_code == 0
    assert "A record needs" in run("evidence", "record", "--bridge-source", world.bridge, code=2)


def test_core_as_a_submodule_folder(world: World) -> None:
    recorded(world)
    shutil.copytree(world.core / "megatron", world.bridge / "3rdparty" / "Megatron-LM" / "megatron")
    assert states(verify(world.knowledge, world.bridge))["MB-SP-001"] == "holds"


def test_code_found_outside_the_range_is_a_hint(world: World) -> None:
    recorded(world)
    assert [(name, place.path) for name, place, _ in look(world, "v0.5.0").hints] == [("MB-SP-001", CORE)]


def test_nothing_is_executed(world: World, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    evil = f"open({str(mark)!r}, 'w')\n"
    write(
        world.bridge, {"src/megatron/bridge/__init__.py": evil, CONFIG: evil + BRIDGE_CONFIG, "sitecustomize.py": evil}
    )
    hook = world.bridge / ".git" / "hooks" / "post-checkout"
    write(world.bridge, {".git/hooks/post-checkout": f"#!/bin/sh\ntouch {mark}\n"})
    hook.chmod(0o755)
    git(world.bridge, "config", "core.fsmonitor", f"touch {mark}; false")
    git(world.bridge, "config", "core.sshCommand", f"touch {mark}; false")
    look(world, None)
    look(world)
    assert not mark.exists()
    assert "megatron" not in sys.modules


def refused(world: World, bridge: Path, core: Path | None = None, tag: str | None = "v0.6.0") -> str:
    with pytest.raises(SourceError) as caught:
        verify(world.knowledge, bridge, core, tag)
    return str(caught.value)


def test_sources_that_cannot_be_used(world: World, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "isn't a source of Megatron Bridge" in refused(world, empty)
    assert "doesn't exist" in refused(world, tmp_path / "none")
    assert "isn't a folder" in refused(world, world.bridge / CONFIG)
    assert "isn't Megatron Bridge" in refused(world, world.core)
    assert "isn't a source of Megatron Core" in refused(world, world.bridge, empty)
    assert "has no tag or commit v0.6.0. It has v0.5.0" in (
        git(world.bridge, "tag", "-d", "v0.6.0") and refused(world, world.bridge)
    )
    assert "isn't a release" in refused(world, world.bridge, tag="v9.9.9")


def test_an_unknown_release(world: World) -> None:
    write(world.bridge, {"src/megatron/bridge/package_info.py": "MAJOR = 0\nMINOR = 9\nPATCH = 1\n"})
    git(world.bridge, "commit", "-qam", "next")
    assert "calls itself 0.9.1" in refused(world, world.bridge, tag=None)


def test_a_shallow_clone(world: World, tmp_path: Path) -> None:
    write(world.bridge, {"new.txt": "x"})
    git(world.bridge, "add", "-A")
    git(world.bridge, "commit", "-qm", "later")
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-tags", f"file://{world.bridge}", "shallow")
    assert "is a shallow clone without v0.6.0" in refused(world, tmp_path / "shallow")


def test_a_bare_repository_needs_a_release(world: World, tmp_path: Path) -> None:
    recorded(world)
    git(tmp_path, "clone", "-q", "--bare", str(world.bridge), "bare")
    assert "--revision" in refused(world, tmp_path / "bare", tag=None)
    assert verify(world.knowledge, tmp_path / "bare", world.core, "v0.6.0").exit_code == 0


def test_source_that_does_not_parse(world: World) -> None:
    write(world.bridge, {CONFIG: "<<<<<<< HEAD\n" + BRIDGE_CONFIG})
    write(world.core, {CORE: CORE_CONFIG + "\ndef f(:\n"})
    words = refused(world, world.bridge, world.core, None)
    assert f"{CONFIG}: line 1" in words
    assert f"{CORE}: line" in words


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes everything")
def test_folders_without_permission(world: World) -> None:
    world.bridge.chmod(0o000)
    try:
        assert "can't be read" in refused(world, world.bridge, tag=None)
    finally:
        world.bridge.chmod(0o755)


def test_a_source_is_only_read(world: World) -> None:
    """A read-only folder is enough, and nothing in it is touched."""
    recorded(world)
    every = [*world.bridge.rglob("*"), *world.core.rglob("*")]
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in every if path.is_file()}
    for path in every:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert look(world).exit_code == 0
        assert look(world, None).exit_code == 0
    finally:
        for path in every:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in before} == before
    assert {*world.bridge.rglob("*"), *world.core.rglob("*")} == {*every}


def test_evidence_that_cannot_be_written(world: World) -> None:
    write(world.root / "knowledge", {"evidence": "a file where the folder should be"})
    sources = ("--bridge-source", world.bridge, "--core-source", world.core)
    assert "can't be written" in run("evidence", "record", *sources, "--revision", "v0.6.0", code=2)


def test_the_command(world: World) -> None:
    recorded(world)
    sources = ("--bridge-source", world.bridge, "--core-source", world.core)
    assert "4 holds" in run("verify", *sources, "--revision", "v0.6.0")
    write(world.bridge, {CONFIG: BRIDGE_CONFIG.replace("!= 0", "== 0")})
    english = run("verify", *sources, code=1)
    assert "changed: src/megatron/bridge/training/config.py ConfigContainer.validate" in english
    assert "add a variant" in english
    assert "一致则接受" in run("verify", *sources, "--lang", "zh", code=1)
    answer = json.loads(run("verify", *sources, "--format", "json", code=1))
    assert answer["counts"]["changed"] == 1
    (changed,) = (a for a in answer["anchors"] if a["state"] == "changed")
    assert changed["cited_by"] == ["MB-WORLD-001"]
    assert changed["before"]["fingerprint"] != changed["fingerprint"]
    assert "error" in run("verify", "--bridge-source", world.root, code=2)


def test_accepting_needs_a_record_and_known_names(world: World) -> None:
    person = ("--by", "me", "--reason", "read")
    assert "has no record" in run("evidence", "accept", "--revision", "v0.6.0", "--all", *person, code=2)
    recorded(world)
    assert "isn't cited" in run("evidence", "accept", "--revision", "v0.6.0", *person, "MB-NO-001", code=2)
    assert "are needed" in run("evidence", "accept", "--revision", "v0.6.0", *person, code=2)
    assert "0 accepted" in run("evidence", "accept", "--revision", "v0.6.0", *person, "MB-SP-001")
