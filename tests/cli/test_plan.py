"""Smoke plans: the smallest legal run, complete, bounded, in both languages, and nothing that is run."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner
from mbridge_advisor import check
from mbridge_advisor.advice.smoke import LIMIT_MINUTES, SmokePlan, plan
from mbridge_advisor.cli import cli
from mbridge_advisor.errors import RequestError
from mbridge_advisor.intake.launch import override
from mbridge_advisor.intake.read import read_input
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.schema import mistakes

BASE = load()
LLAMA = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100", "gpus": 64},
    "training": {"seq_length": 4096, "micro_batch_size": 1},
    "grid": {"tp": 2, "pp": 2, "vpp": 2, "sequence_parallel": True},
}
MOE = {
    "model": "qwen3-30b-a3b",
    "cluster": {"gpu": "H200", "gpus": 128},
    "training": {
        "seq_length": 4096,
        "micro_batch_size": 1,
        "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
    },
    "grid": {"tp": 1, "pp": 2, "ep": 8, "etp": 1},
}


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, list(words), env={"COLUMNS": "140"})


@pytest.mark.parametrize("request_", [LLAMA, MOE], ids=["dense", "moe"])
@pytest.mark.parametrize("bridge", BASE.revisions)
def test_it_is_legal_small_and_complete(request_: dict[str, Any], bridge: str) -> None:
    found = plan({**request_, "bridge": bridge})
    assert found.gpus < request_["cluster"]["gpus"]
    assert found.memory.decision != "does_not_fit"
    assert found.nodes * found.gpus_per_node == found.gpus
    assert found.gpu_minutes == found.gpus * LIMIT_MINUTES
    for lang in ("en", "zh"):
        assert mistakes(found.to_dict(lang), "plan") == []
    # What the overrides say, read back, is what the rules accept.
    pairs = [pair for pair in map(override, found.overrides) if pair]
    assert len(pairs) == len(found.overrides)
    request, _ = read_input(" ".join(found.overrides), "overrides", bridge=bridge)
    request["model"] = request_["model"]
    request["cluster"] = {"gpu": request_["cluster"]["gpu"], "gpus": found.gpus}
    assert check(request).verdict != "error"


def test_it_grows_until_the_grid_fits() -> None:
    # 16 GPUs are the smallest world, but hold weights, gradients and all optimizer states of 70B parameters in no way.
    grid = {"tp": 8, "pp": 2, "sequence_parallel": True}
    found = plan({**LLAMA, "model": "llama3-70b", "grid": grid, "cluster": {"gpu": "H100", "gpus": 128}})
    assert 16 < found.gpus < 128
    assert found.memory.decision != "does_not_fit"


def test_the_batch_fills_the_pipeline_once() -> None:
    found = plan(LLAMA)
    dp = found.gpus // 4
    assert found.grid["global_batch_size"] == dp * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster": {"gpus": 64}}, "cluster.gpu"),
        ({"cluster": {"gpu": "H100"}}, "cluster.gpus"),
        ({"grid": {"tp": 3, "pp": 1}, "cluster": {"gpu": "H100", "gpus": 3}}, "MB-"),
    ],
)
def test_what_no_run_can_prove_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        plan({**LLAMA, **change})


def test_the_command_is_shell_that_only_names_its_own_things() -> None:
    found = plan(LLAMA)
    script = "\n".join(found.command)
    assert subprocess.run(["bash", "-n", "-c", script], capture_output=True).returncode == 0
    words = shlex.split(script.replace("\\\n", " "))
    assert f"{LIMIT_MINUTES}m" in words
    assert "timeout" in words
    assert f"--nproc_per_node={found.gpus_per_node}" in words
    assert "checkpoint.save=null" in words
    assert words[words.index("--recipe") + 1] == found.recipe


def test_success_and_question_name_the_numbers() -> None:
    found = plan(LLAMA)
    assert any("tensor model parallel with size 2" in text.en for text in found.success)
    for lang in ("en", "zh"):
        assert str(found.gpus) in found.question[lang]
        assert str(found.gpu_minutes) in found.question[lang]


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize(("lang", "word"), [("en", "Confirm"), ("zh", "确认")])
def test_the_command_line_prints_it(form: str, lang: str, word: str) -> None:
    result = run(
        *("plan", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8", "--set", "tp=2", "--set", "sp=true"),
        *("--format", form, "--lang", lang),
    )
    assert result.exit_code == 0, result.output
    assert word in result.stdout
    assert "run_recipe.py" in result.stdout
    assert "\\\\" not in result.stdout


def test_advise_plans_the_best_grid() -> None:
    result = run("advise", "--plan", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "16", "--format", "json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert mistakes(data, "plan") == []
    assert data["gpus"] <= 16
    best = json.loads(
        run("advise", "--top", "1", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "16", "--format", "json").stdout
    )["grids"][0]
    assert data["grid"]["tensor_model_parallel_size"] == best["tensor_model_parallel_size"]


def test_it_says_what_it_doesn_t_prove() -> None:
    found: SmokePlan = plan(LLAMA)
    assert any("neither its memory nor its speed" in note.en for note in found.notes)


def test_what_it_reads_and_writes_follows_the_task() -> None:
    assert any("mock" in text.en for text in plan(LLAMA).reads)
    tuned = plan({**LLAMA, "training": {**LLAMA["training"], "task": "lora"}})
    assert not any("mock" in text.en for text in tuned.reads)
    assert any("checkpoint" in text.en for text in tuned.reads)
    assert "--dataset mock" not in "\n".join(tuned.command)


@pytest.mark.parametrize("bridge", BASE.revisions)
def test_it_downloads_nothing_keeps_its_caches_and_states_versions(bridge: str) -> None:
    found = plan({**LLAMA, "bridge": bridge})
    script = "\n".join(found.command)
    assert "HF_HUB_OFFLINE=1" in script
    assert 'TRITON_CACHE_DIR="$SMOKE_DIR/' in script
    versions = next(text.en for text in found.preconditions if text.en.startswith("Versions"))
    for name in ("pytorch", "transformer_engine", "python"):
        assert name in versions
