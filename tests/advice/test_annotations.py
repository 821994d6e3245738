"""Findings as SARIF and as GitHub annotations stand at the line of the setting that they speak of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.knowledge.locate import own_root

CONFIG = """\
model:
  num_layers: 30
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  sequence_parallel: false
train: {global_batch_size: 7, micro_batch_size: 2}
"""


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["check", *words])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a, b:c%d" / "run_config.yaml"
    path.parent.mkdir()
    path.write_text(CONFIG)
    return path


def test_sarif_is_what_code_scanning_takes(file: Path) -> None:
    result = run(str(file), "--gpus", "8", "--format", "sarif")
    assert result.exit_code == 1
    log = json.loads(result.stdout)
    assert log["version"] == "2.1.0"
    (one,) = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert one["results"]
    for found in one["results"]:
        assert rules[found["ruleIndex"]]["id"] == found["ruleId"]
        assert found["level"] in ("error", "warning", "note")
        assert found["message"]["text"]
        (place,) = found["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"].startswith("file:///")
        assert " " not in place["physicalLocation"]["artifactLocation"]["uri"]
        assert 1 <= place["physicalLocation"]["region"]["startLine"] <= CONFIG.count("\n")
    layers = next(f for f in one["results"] if f["ruleId"].startswith("MB-PP-"))
    assert layers["locations"][0]["physicalLocation"]["region"]["startLine"] in (2, 4)


def test_several_files_make_one_log_and_what_can_t_be_read_is_a_result(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("grid: {tp: two}\n")
    result = run(str(file), str(bad), "--format", "sarif")
    assert result.exit_code == 2
    (one,) = json.loads(result.stdout)["runs"]
    assert any(f["ruleId"] == "input" and "'two'" in f["message"]["text"] for f in one["results"])


def test_options_alone_have_no_place() -> None:
    result = run("--set", "tp=3", "--set", "pp=2", "--gpus", "8", "--format", "sarif", "--lang", "zh")
    (one,) = json.loads(result.stdout)["runs"]
    assert all(found["locations"] == [] for found in one["results"])


def test_github_commands_are_escaped(file: Path) -> None:
    result = run(str(file), "--gpus", "8", "--format", "github")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert any(line.startswith("::error file=") for line in lines)
    for line in lines:
        kind, properties, message = (
            line.removeprefix("::").partition(" ")[0],
            *line[2:].partition(" ")[2].split("::", 1),
        )
        assert kind in ("error", "warning", "notice")
        assert "a%2C b%3Ac%25d" in properties
        assert message


def test_several_files_in_other_forms(file: Path, tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text("model: {tensor_model_parallel_size: 1, num_layers: 4}\n")
    rows = json.loads(run(str(file), str(good), "--gpus", "8", "--format", "json").stdout)
    assert [row["verdict"] for row in rows] == ["error", "ok"]
    text = run(str(file), str(good), "--gpus", "8")
    assert text.exit_code == 1
    assert text.stdout.count("good.yaml") == 1


def test_the_hook_and_the_action_call_what_exists() -> None:
    root = own_root()
    (hook,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"].split()[1] in cli.commands
    action = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    script = action["runs"]["steps"][-1]["run"]
    assert "${{" not in script  # inputs never become text of the script
    known = {word for parameter in cli.commands["check"].params for word in parameter.opts}
    assert {
        word.strip('"') for word in script.replace("(", " ").split() if word.startswith("--") and len(word) > 2
    } <= known
