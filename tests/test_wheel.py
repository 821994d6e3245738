"""The wheel works outside the checkout: built, installed in a new virtual environment, run from an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.wheel, pytest.mark.xdist_group("wheel")]


def clean_environment() -> dict[str, str]:
    """The environment without anything that leads back to the checkout."""
    drop = ("PYTHON", "VIRTUAL_ENV", "MBRIDGE_ADVISOR")
    return {k: v for k, v in os.environ.items() if not k.startswith(drop)} | {"PYTHONIOENCODING": "utf-8"}


def shell(*command: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean_environment(), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Build requirements are fetched by pip, as for anyone who builds it.
    shell(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed command, in an environment that holds nothing but the wheel and what it requires."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=True)
    folder = home / ("Scripts" if os.name == "nt" else "bin")
    shell(folder / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=home)
    return folder / "mbridge-advisor"


def answer(program: Path, cwd: Path, *args: str, code: int = 0) -> Any:
    return json.loads(shell(program, *args, "--format", "json", cwd=cwd, code=code).stdout)


def test_the_wheel_carries_the_knowledge_and_nothing_of_the_checkout(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert all(top == "mbridge_advisor" or top.endswith(".dist-info") for top in tops)
    for part in (
        "_data/knowledge/vocabulary.yaml",
        "_data/knowledge/rules/constraints/world.yaml",
        "_data/knowledge/facts/models/deepseek-v3.yaml",
        "_data/schemas/advice.schema.json",
        "py.typed",
    ):
        assert f"mbridge_advisor/{part}" in names
    assert any("licenses/LICENSE" in name for name in names)
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc")]
    # A snapshot of the checked knowledge, so that a command starts quickly.
    assert any(name.startswith("mbridge_advisor/_data/") and name.count("/") == 2 for name in names)


def test_advise(program: Path, tmp_path: Path) -> None:
    args = ("advise", "--model", "deepseek-v3", "--gpu", "H100", "--gpus", "256", "--seq-length", "4096")
    data = answer(program, tmp_path, *args)
    assert data["grids"]
    for grid in data["grids"]:
        assert 256 % grid["min_gpus"] == 0
        assert grid["memory"]["total"] <= grid["memory"]["capacity"]
        assert grid["expert_tensor_parallel_size"] is not None
    assert data["nearest_recipes"]
    text = shell(program, *args, "--lang", "zh", cwd=tmp_path).stdout
    assert "建议" in text


def test_check(program: Path, tmp_path: Path) -> None:
    data = answer(program, tmp_path, "check", "--set", "tp=2", "--set", "pp=2", "--set", "ep=8", "--set", "etp=1")
    assert data["quantities"]["min_gpus"] == 16
    data = answer(program, tmp_path, "check", "--gpus", "12", "--set", "tp=8", code=1)
    assert data["verdict"] == "error"
    (tmp_path / "run.yaml").write_text("grid: {tp: 2}\ncluster: {gpus: 8}\n", encoding="utf-8")
    shell(program, "check", "run.yaml", cwd=tmp_path)


def test_estimate(program: Path, tmp_path: Path) -> None:
    data = answer(program, tmp_path, "estimate", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8")
    assert data["grid"]["memory"]["total"] > 10**10
    assert data["parameters"]["total"] == 8_030_261_248


def test_lists_and_explanations(program: Path, tmp_path: Path) -> None:
    rules = answer(program, tmp_path, "rules")
    assert len(rules) > 300
    assert answer(program, tmp_path, "explain", "MB-WORLD-002")["name"] == "MB-WORLD-002"
    assert len(answer(program, tmp_path, "models")) >= 45
    assert answer(program, tmp_path, "gpus")
    assert len(answer(program, tmp_path, "revisions")) >= 6
    assert shell(program, "--version", cwd=tmp_path).stdout.split()[1][0].isdigit()


def test_a_mistake(program: Path, tmp_path: Path) -> None:
    done = shell(program, "advise", "--model", "deepsek-v3", "--gpu", "H100", "--gpus", "8", cwd=tmp_path, code=2)
    assert "deepseek-v3" in done.stderr


def test_export_skill(program: Path, tmp_path: Path) -> None:
    shell(program, "export", "skill", "--lang", "zh", "skills", cwd=tmp_path)
    (folder,) = (tmp_path / "skills").iterdir()
    assert (folder / "SKILL.md").read_text(encoding="utf-8").startswith(f"---\nname: {folder.name}\n")
    assert (folder / "references" / "constraints-world.md").is_file()


def test_nothing_is_left_behind(program: Path, tmp_path: Path) -> None:
    shell(program, "models", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_python_interface_and_the_engine(program: Path, tmp_path: Path) -> None:
    code = (
        "import mbridge_advisor as m, sys\n"
        "report = m.check({'grid': {'tp': 6, 'ep': 4, 'etp': 1}})\n"
        "print({d.name: d.value for d in report.quantities}['min_gpus'], m.__file__)\n"
    )
    out = shell(program.parent / "python", "-c", code, cwd=tmp_path).stdout.split()
    assert out[0] == "12"
    assert str(ROOT) not in out[1]
