"""The commands take files, scripts and recipes as starting points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mbridge_advisor.cli import cli

SCRIPT = """torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py --tensor-model-parallel-size 2 \\
  --pipeline-model-parallel-size 2 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 \\
  --ffn-hidden-size 11008 --swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope \\
  --untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 --odd-one 1
"""


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, list(words), env={"COLUMNS": "140"})


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return str(path)


def test_read_shows_the_request_and_a_note_on_every_field(script: str) -> None:
    data = json.loads(run("read", script, "--format", "json").stdout)
    assert data["request"]["cluster"]["gpus"] == 16
    assert {n["key"]: n["status"] for n in data["notes"]}["odd_one"] == "unknown"
    shown = run("read", script, "--lang", "zh").stdout
    assert "odd_one：未能识别" in shown
    assert "tensor_model_parallel_size: 2" in shown


def test_a_script_can_be_checked_estimated_and_planned(script: str) -> None:
    assert run("check", script).exit_code == 0
    result = run("estimate", script, "--gpu", "H100", "--format", "json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["parameters"]["total"] == 6_738_415_616  # Llama 2 7B
    assert any("odd_one" in note for note in data["notes"])
    assert run("plan", script, "--gpu", "H100").exit_code == 0


def test_options_go_before_what_the_file_says(script: str) -> None:
    data = json.loads(run("check", script, "--set", "tp=4", "--gpus", "32", "--format", "json").stdout)
    assert data["request"]["grid"]["tensor_model_parallel_size"] == 4
    assert data["request"]["cluster"]["gpus"] == 32


def test_advise_starts_from_a_file_and_looks_for_another_grid(script: str) -> None:
    result = run("advise", "--from", script, "--gpu", "H100", "--top", "1", "--format", "json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["candidates"] > 1
    assert data["request"]["training"]["global_batch_size"] == 64
    assert any("tensor_model_parallel_size" in note for note in data["notes"])


def test_a_recipe_at_a_release() -> None:
    data = json.loads(
        run("check", "--recipe", "llama3_8b_pretrain_config", "--bridge", "v0.3.1", "--format", "json").stdout
    )
    assert (data["bridge"], data["request"]["model"]) == ("v0.3.1", "llama3-8b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "x.yaml", "--recipe", "y"), "Give one"),
        (("check", "--recipe", "nobody"), "no release"),
        (("read", "no/such.yaml"), "can't be read"),
        (("read", "--kind", "nemo2", "just = text"), "no arguments that are understood"),
    ],
)
def test_mistakes(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr
