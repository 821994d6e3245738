"""``verify --execute``: says what it runs, runs it in a process of its own, and nothing runs without the flag."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mbridge_advisor.cli import cli
from mbridge_advisor.evidence.execute import execute
from mbridge_advisor.evidence.source import BRIDGE, CORE, Git, SourceError, open_source
from mbridge_advisor.knowledge import load
from small_world import git, write

BRIDGE_FILES = {
    "src/megatron/bridge/__init__.py": "",
    "src/megatron/bridge/package_info.py": 'MAJOR = 0\nMINOR = 6\nPATCH = 0\nPRE_RELEASE = ""\n',
}
CORE_FILES = {"megatron/core/__init__.py": "", "megatron/core/transformer/__init__.py": ""}
STUB = """#!{python}
import json, pathlib, sys
mark = pathlib.Path({mark!r})
mark.write_text(" ".join(sys.argv))
print(json.dumps({{"ready": True, "versions": {{"torch": "0"}}, "limits": []}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({{"id": request["id"], "verdict": "unsupported", "message": "a stub"}}), flush=True)
"""


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "bridge", BRIDGE_FILES), write(tmp_path / "core", CORE_FILES)


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """An interpreter that leaves a mark instead of running anything."""
    path = tmp_path / "python"
    path.write_text(STUB.format(python=sys.executable, mark=str(tmp_path / "started")), encoding="utf-8")
    path.chmod(0o755)
    return path


def verify(sources: tuple[Path, Path], *more: object) -> Result:
    arguments = ["verify", "--bridge-source", sources[0], "--core-source", sources[1], *more]
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_nothing_runs_without_the_flag(sources: tuple[Path, Path], stub: Path, tmp_path: Path) -> None:
    done = verify(sources, "--python", stub)
    assert done.exit_code == 1  # these sources lack what the rules cite
    assert not (tmp_path / "started").exists()


def test_it_says_what_it_will_run_and_reports(sources: tuple[Path, Path], stub: Path, tmp_path: Path) -> None:
    done = verify(sources, "--execute", "--python", stub, "--cases", 3)
    assert "Runs the validation code in" in done.stderr
    assert str(stub) in done.stderr
    assert "3 configurations, seed" in done.stderr
    assert "3 tried, 0 accepted, 0 rejected, 3 not executable" in done.output
    assert str(sources[0] / "src") in (tmp_path / "started").read_text(encoding="utf-8")


def test_as_data(sources: tuple[Path, Path], stub: Path) -> None:
    done = verify(sources, "--execute", "--python", stub, "--cases", 2, "--format", "json")
    assert json.loads(done.stdout)["execution"]["tried"] == 2


def test_an_interpreter_that_cannot_run_them(sources: tuple[Path, Path], tmp_path: Path) -> None:
    done = verify(sources, "--execute", "--python", tmp_path / "nothing")
    assert done.exit_code == 2
    assert "can't be started" in done.stderr
    assert "Name an interpreter that has torch" in done.stderr


def test_a_repository_is_unpacked_at_its_release_and_left_alone(
    sources: tuple[Path, Path], stub: Path, tmp_path: Path
) -> None:
    opened = {}
    for repo, folder in zip((BRIDGE, CORE), sources, strict=True):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "one")
        git(folder, "tag", "v0.6.0")
        opened[repo] = open_source(repo, folder, "v0.6.0")
        assert isinstance(opened[repo], Git)
    told: list[str] = []
    report = execute(load(), opened, load().latest, str(stub), 1, told.append)
    assert report.tried == 1
    started = (tmp_path / "started").read_text(encoding="utf-8")
    assert "Megatron-Bridge/src" in started
    assert str(sources[0]) not in started
    folder = started.split("--path ")[1].split()[0]
    assert folder in told[0]
    assert not Path(folder).exists()  # removed after
    assert git(sources[0], "status", "--porcelain") == ""


def test_core_is_needed(sources: tuple[Path, Path], stub: Path) -> None:
    with pytest.raises(SourceError, match="--core-source"):
        execute(load(), {BRIDGE: open_source(BRIDGE, sources[0])}, load().latest, str(stub), 1, lambda text: None)
