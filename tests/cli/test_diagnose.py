"""``diagnose`` on the command line: logs, words, configurations and plans; forms, languages, exit codes, mistakes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from diagnosis.logs import BENIGN, END, START, WATCHDOG, oom, start, steps, torchrun
from mbridge_advisor.cli import cli
from mbridge_advisor.knowledge.schema import mistakes

OOM = START + torchrun(oom("2.50 GiB"), 3) + END
CONFIG = "model:\n  tensor_model_parallel_size: {tp}\n  num_query_groups: 8\n  num_attention_heads: 32\n"


def run(*words: str | Path, input: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["diagnose", *map(str, words)], input=input, env={"COLUMNS": "140"})


def answer(*words: str | Path, input: bytes | None = None) -> dict[str, Any]:
    result = run(*words, "--format", "json", input=input)
    assert result.exit_code in (0, 1), result.output
    data: dict[str, Any] = json.loads(result.output)
    assert mistakes(data, "diagnosis") == []
    return data


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.txt"
    path.write_text(OOM)
    return path


@pytest.mark.parametrize(("lang", "word"), [("en", "no room for an allocation"), ("zh", "GPU 无法再分配 2.7 GB 显存")])
@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_every_form_and_language(log: Path, form: str, lang: str, word: str) -> None:
    result = run(log, "--format", form, "--lang", lang)
    assert result.exit_code == 1
    assert word in result.output
    assert "MB-OOM-001" in result.output


def test_exit_codes(tmp_path: Path, log: Path) -> None:
    healthy = tmp_path / "healthy.log"
    healthy.write_text(BENIGN["healthy"])
    assert run(log).exit_code == 1
    assert run(healthy).exit_code == 0
    assert run("--symptom", "it is slow").exit_code == 0  # suspected
    assert run().exit_code == 2
    assert run(tmp_path / "none.log").exit_code == 2


def test_standard_input_plain_and_gzip() -> None:
    for raw in (OOM.encode(), gzip.compress(OOM.encode())):
        assert answer("-", input=raw)["causes"][0]["rule"] == "MB-OOM-001"


def test_several_logs(tmp_path: Path, log: Path) -> None:
    other = tmp_path / "rank_7.log"
    other.write_text(WATCHDOG.format(7))
    found = answer(other, log)
    assert found["causes"][0]["evidence"][0]["file"] == str(log)
    assert found["lines"] == OOM.count("\n") + 1
    assert run(log, log).exit_code == 2


def test_a_configuration_and_what_it_was_before(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(CONFIG.format(tp=4))
    new.write_text(CONFIG.format(tp=6))
    found = answer("--config", new, "--against", old, "--gpus", "48")
    assert "MB-TP-001" in [c["rule"] for c in found["causes"]]
    assert found["comparison"]["changes"] == {"tensor_model_parallel_size": {"before": 4, "after": 6}}


def test_a_slower_grid_shows_what_it_costs(tmp_path: Path) -> None:
    common = ("--model", "llama3-8b", "--gpu", "H100", "--gpus", "64", "--global-batch-size", "512")
    old, new = tmp_path / "old.sh", tmp_path / "new.sh"
    for path, tp in ((old, 1), (new, 8)):
        path.write_text(f"model.tensor_model_parallel_size={tp} train.micro_batch_size=1 model.seq_length=8192\n")
    found = answer("--config", new, "--against", old, "--kind", "overrides", *common)
    assert found["causes"][0]["rule"] == "MB-SPEED-004"
    assert found["comparison"]["speed_ratio"] < 0.97
    text = run("--config", new, "--against", old, "--kind", "overrides", *common).output
    assert "tensor_model_parallel_size: 1 → 8" in text
    assert "of a step" in text


def test_a_smoke_run(tmp_path: Path) -> None:
    plan, log = tmp_path / "plan.json", tmp_path / "smoke.log"
    words = ("--model", "llama3-8b", "--gpu", "H100", "--gpus", "8", "--set", "tp=2", "--micro-batch-size", "1")
    made = CliRunner().invoke(cli, ["plan", *words, "--format", "json"])
    assert made.exit_code == 0, made.output
    plan.write_text(made.output)
    log.write_text(start(2, 2, 1) + steps(1, 4) + "exit code: 0\n")
    found = answer(log, "--plan", plan)
    assert [c["holds"] for c in found["criteria"]] == [True] * 4
    assert run(log, "--plan", plan).exit_code == 0
    log.write_text(start(2, 2, 1) + steps(1, 3) + "exit code: 0\n")
    result = run(log, "--plan", plan)
    assert result.exit_code == 1
    assert "[does not hold] 3 iteration lines" in result.output
    assert "[不满足]" in run(log, "--plan", plan, "--lang", "zh").output


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"a": ' * 3000, "x" * 1_000_001])
def test_what_is_no_plan(tmp_path: Path, log: Path, text: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    result = run(log, "--plan", plan)
    assert result.exit_code == 2
    assert "isn't a plan" in result.output
