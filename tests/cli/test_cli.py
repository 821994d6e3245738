"""The command line end to end: every command, form and language; exit codes; what mistakes are answered with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mbridge_advisor.cli import cli
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.schema import mistakes

BASE = load()
ENGINE = Path(__file__).parents[2] / "engine"
CHECK = ("check", "--gpus", "16", "--set", "tp=2", "--set", "pp=2", "--set", "ep=8", "--set", "etp=1")
ESTIMATE = ("estimate", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8", "--set", "tp=2")
ADVISE = ("advise", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8", "--top", "2")
# Each command with arguments that it answers, and a word of the answer in each language.
COMMANDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "advise": (ADVISE, "Advice for", "建议"),
    "check": (CHECK, "MB-COUNT-002", "流水线阶段"),
    "estimate": (ESTIMATE, "activations_attention", "显存"),
    "explain a rule": (("explain", "MB-WORLD-002"), "never required", "专家"),
    "explain a quantity": (("explain", "min_gpus"), "lcm", "公式"),
    "explain a term": (("explain", "tensor_model_parallel_size"), "model.tensor_model_parallel_size", "含义"),
    "explain a model": (("explain", "deepseek-v3"), "7168", "7168"),
    "explain a system": (("explain", "H100"), "memory_bytes", "memory_bytes"),
    "explain a release": (("explain", "v0.5.1"), "megatron_core", "megatron_core"),
    "rules": (("rules", "--topic", "WORLD"), "World size is a multiple", "倍数"),
    "models": (("models", "qwen3"), "qwen3-30b-a3b", "qwen3-30b-a3b"),
    "gpus": (("gpus",), "GB200", "GB200"),
    "revisions": (("revisions",), "v0.6.0", "v0.6.0"),
}
SCHEMAS = {"advise": "advice", "check": "report", "estimate": "estimate"}


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


def ok(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*args: str, code: int = 2) -> str:
    """The one message of a refusal: no traceback, nothing on standard output."""
    result = run(*args)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if code == 2:
        assert not result.stdout
        assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_answers_people_in_both_languages(name: str, form: str) -> None:
    args, english, chinese = COMMANDS[name]
    en = ok(*args, "--format", form)
    zh = ok(*args, "--format", form, "--lang", "zh")
    assert english in en
    assert chinese in zh
    assert "\x1b" not in en + zh  # no colours where nobody looks


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_answers_machines(name: str, lang: str) -> None:
    args, _, _ = COMMANDS[name]
    data = json.loads(ok(*args, "--format", "json", "--lang", lang))
    assert data
    if args[0] in SCHEMAS:
        assert not mistakes(data, SCHEMAS[args[0]])


def test_lists_hold_what_the_knowledge_base_holds() -> None:
    rules = json.loads(ok("rules", "--format", "json"))
    assert [r["id"] for r in rules] == list(BASE.rules)
    assert all(r["title"]["zh"] and r["citations"] and (r["revisions"] or r["withdrawn"]) for r in rules)
    assert len(json.loads(ok("models", "--format", "json"))) == len(BASE.models) >= 45
    assert len(json.loads(ok("gpus", "--format", "json"))) == len(BASE.gpus)
    assert len(json.loads(ok("revisions", "--format", "json"))) == len(BASE.revisions) == 6


def test_rules_are_filtered() -> None:
    def ids(*args: str) -> list[str]:
        return [r["id"] for r in json.loads(ok("rules", "--format", "json", *args))]

    assert all(name.startswith("MB-SP-") for name in ids("--topic", "sp"))
    assert set(ids("--kind", "sizing")) < set(ids())
    assert "MB-WORLD-004" in ids("--bridge", "v0.2.0")
    assert "MB-WORLD-004" not in ids("--bridge", "v0.6.0")
    assert "MB-SP-001" in ids("--severity", "error", "--bridge", "v0.3.1")
    assert "MB-SP-001" not in ids("--severity", "error", "--bridge", "v0.6.0")
    assert "MB-WORLD-002" in ids("expert", "lcm")
    assert ids("--topic", "nothing") == []
    assert "nothing found" in run("rules", "--topic", "nothing").stderr


def test_help_and_version() -> None:
    assert "Exit codes" in ok("--help")
    for command in ("advise", "check", "estimate", "explain", "rules", "models", "gpus", "revisions", "completion"):
        assert "Usage" in ok(command, "--help")
    assert ok("--version").startswith("mbridge-advisor ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_MBRIDGE_ADVISOR_COMPLETE" in ok("completion", shell)


def test_the_shell_completes_names() -> None:
    words = {"COMP_WORDS": "mbridge-advisor advise --model deepseek-v", "COMP_CWORD": "3"}
    result = CliRunner().invoke(
        cli, prog_name="mbridge-advisor", env={**words, "_MBRIDGE_ADVISOR_COMPLETE": "bash_complete"}
    )
    assert "deepseek-v3" in result.output


# --- exit codes -------------------------------------------------------------------------------------------------------


def test_check_ends_with_1_on_an_error_and_0_on_a_warning() -> None:
    assert "MB-WORLD-001" in run("check", "--gpus", "12", "--set", "tp=8").stdout
    refused("check", "--gpus", "12", "--set", "tp=8", code=1)
    ok("check", "--gpus", "16", "--set", "tp=1", "--set", "sp=true")  # an override


def test_estimate_ends_with_3_where_memory_doesn_t_do() -> None:
    args = ("estimate", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8", "--seq-length", "65536")
    assert run(*args).exit_code == 3
    assert json.loads(run(*args, "--format", "json").stdout)["grid"]["memory"]["decision"] == "does_not_fit"
    ok(*args, "--set", "tp=2", "--set", "sp=true", "--set", "cp=4")


def test_estimate_ends_with_1_on_a_broken_rule() -> None:
    refused(
        "estimate", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "8", "--set", "tp=2", "--set", "pp=3", code=1
    )


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("gpus", ["4", "7"])
def test_advise_ends_with_3_where_nothing_fits_and_says_what_would(gpus: str, lang: str) -> None:
    args = ("advise", "--model", "deepseek-v3", "--gpu", "H100", "--gpus", gpus, "--lang", lang)
    text = run(*args)
    assert text.exit_code == 3
    assert ("What would make it fit" if lang == "en" else "怎样才能放得下") in text.stdout
    data = run(*args, "--format", "json")
    assert data.exit_code == 3
    answer = json.loads(data.stdout)
    assert not mistakes(answer, "advice")
    assert answer["grids"] == []
    assert answer["nearest_miss"]["remedies"]
    assert run(*args, "--format", "markdown").exit_code == 3


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("advise", "--model", "deepsek-v3", "--gpu", "H100", "--gpus", "8"),
            ["Did you mean deepseek-v3"],
        ),
        (("advise", "--model", "llama3-8b", "--gpu", "H1000", "--gpus", "8"), ["H1000", "H100"]),
        (("advise", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "many"), ["'many'", "whole number"]),
        (("advise", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "1000000000"), ["above 1000000"]),
        (("advise", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "0"), ["cluster.gpus", "0"]),
        (("advise", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "-8"), ["cluster.gpus", "-8"]),
        (("advise", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "2.5"), ["2.5", "whole number"]),
        (("advise", "--model", "llama3-8b", "--gpu", "H100"), ["cluster.gpus is needed"]),
        (("advise", "--model", "llama3-8b", "--gpus", "8"), ["cluster.gpu is needed"]),
        (("advise", "--gpu", "H100", "--gpus", "8"), ["model is needed"]),
        (("advise", *ADVISE[1:], "--seq-length", "long"), ["seq_length", "'long'"]),
        (("advise", *ADVISE[1:], "--precision", "int7"), ["int7", "fp8_mx"]),
        (("advise", *ADVISE[1:], "--task", "dream"), ["dream", "pretrain"]),
        (("advise", *ADVISE[1:], "--bridge", "v9.9.9"), ["v9.9.9", "v0.6.0"]),
        (("advise", "--model", "missing/config.json", "--gpu", "H100", "--gpus", "8"), ["missing/config.json", "read"]),
        (("check", "--set", "tp"), ["name=value"]),
        (("check", "--set", "tp=two"), ["'two'", "whole number"]),
        (("check", "--set", "tensor_paralel_size=2"), ["tensor_paralel_size", "Did you mean"]),
        (("check", "--set", "data_parallel_size=2"), ["computed, not given"]),
        (("check", "--set", "pipeline_model_parallel_layout=E|x"), ["'x'", "decoder layer"]),
        (("check", "nowhere.yaml"), ["nowhere.yaml", "can't be read"]),
        (("check",), ["nothing to check"]),
        (("estimate", "--set", "num_layers=60", "--gpus", "8"), ["lacks", "hidden_size"]),
        (("explain", "MB-WORLD-999"), ["MB-WORLD-999", "Did you mean"]),
        (("explain", "MB-WORLD-002", "--bridge", "v9"), ["v9", "v0.6.0"]),
        (("rules", "--bridge", "v9"), ["v9", "v0.6.0"]),
    ],
    ids=lambda part: " ".join(part)[:60],
)
def test_a_mistake_is_answered_with_what_is_wrong_and_the_way_out(args: tuple[str, ...], words: list[str]) -> None:
    message = refused(*args)
    assert message.startswith("error: ")
    for word in words:
        assert word in message


def test_a_mistake_is_data_where_data_was_asked_for() -> None:
    result = run("advise", "--model", "llama3-8b", "--gpu", "H100", "--gpus", "many", "--format", "json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)
    assert error["error"] == "RequestError"
    assert (error["field"], error["value"]) == ("cluster.gpus", "many")
    assert error["reason"]
    assert error["way_out"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"model: !!python/object/apply:os.system ['true']\n", ["line 1", "tag"]),
        (b"grid: &a {tp: *a}\n", ["line 1", "alias"]),
        (
            b"\n".join(
                b"a%d: &a%d [%s]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9 if n else [b"x"] * 9)) for n in range(9)
            ),
            ["line 6", "too large"],
        ),
        (b"grid:\n  tp: 2\n  tp: 4\n", ["line 3", "twice"]),
        (b"grid: {tp: 2\n", ["isn't YAML"]),
        (b"- tp\n- pp\n", ["holds no settings"]),
        (b"", ["holds no settings"]),
        (b"\xff\xfe\x00", ["UTF-8"]),
        (
            b"grid: {tensor_model_paralel_size: 2}\n",
            ["Did you mean tensor_model_parallel_size"],
        ),
        (b"grid: {tp: two}\n", ["'two'", "whole number"]),
        (b"cluster: {tp: 2}\n", ["wrong place", "grid"]),
    ],
)
def test_a_file_that_can_t_be_used(tmp_path: Path, content: bytes, words: list[str]) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    message = refused("check", str(path))
    for word in words:
        assert word in message


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "can't be read" in refused("check", str(tmp_path))


def test_a_word_that_click_refuses() -> None:
    assert run("advise", "--top", "0").exit_code == 2
    assert run("advise", "--format", "xml").exit_code == 2
    assert run("rules", "--kind", "wisdom").exit_code == 2
    assert run("nonsense").exit_code == 2


# --- files ------------------------------------------------------------------------------------------------------------

CONTAINER = """\
_target_: megatron.bridge.training.config.ConfigContainer
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  activation_func: {_target_: torch.nn.functional.silu, _partial_: true}
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: null
  sequence_parallel: true
  num_layers: 60
  hidden_size: 4096
  num_attention_heads: 32
  num_query_groups: 8
  vocab_size: 128256
  num_moe_experts: null
  init_method_std: 0.01
train:
  _target_: megatron.bridge.training.config.TrainingConfig
  global_batch_size: 32
  micro_batch_size: 1
ddp: {use_distributed_optimizer: true}
"""


def check_file(tmp_path: Path, text: str, *more: str) -> tuple[int, dict[str, Any]]:
    path = tmp_path / "run_config.yaml"
    path.write_text(text, encoding="utf-8")
    result = run("check", str(path), *more, "--format", "json")
    data = json.loads(result.stdout)
    assert not mistakes(data, "report")
    return result.exit_code, data


def rules_of(data: dict[str, Any], severity: str = "error") -> set[str]:
    return {f["rule"] for f in data["findings"] if f["severity"] == severity}


def test_a_file_in_bridge_s_own_shape(tmp_path: Path) -> None:
    code, data = check_file(tmp_path, CONTAINER, "--gpus", "64")
    assert code == 1
    assert rules_of(data) == {"MB-PP-001"}
    assert data["quantities"]["data_parallel_size"] == 4
    assert data["quantities"]["num_microbatches"] == 8
    assert data["request"]["training"]["global_batch_size"] == 32
    assert check_file(tmp_path, CONTAINER, "--gpus", "64", "--set", "pp=4")[0] == 0
    assert check_file(tmp_path, CONTAINER.replace("num_layers: 60", "num_layers: 64"), "--gpus", "64")[0] == 0


def test_a_part_of_a_file_in_bridge_s_shape_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    text = "model: {pipeline_model_parallel_size: 8, num_layers: 60, _target_: x.Y}\ntrain: {micro_batch_size: 1}\n"
    code, data = check_file(tmp_path, text)
    assert code == 1
    assert rules_of(data) == {"MB-PP-001"}
    assert "model" in {name for n in data["not_judged"] for name in n["missing"]}


def test_a_container_that_leaves_sizes_out_has_bridge_s_defaults(tmp_path: Path) -> None:
    code, data = check_file(tmp_path, "train: {global_batch_size: 7, micro_batch_size: 1}\n", "--gpus", "8")
    assert code == 1
    assert rules_of(data) == {"MB-BATCH-002"}


def test_a_file_in_the_shape_of_a_request(tmp_path: Path) -> None:
    text = (
        "bridge: v0.5.1\nmodel: qwen3-30b-a3b\ncluster: {gpu: H100, gpus: 16}\n"
        "training: {seq_length: 4096}\ngrid: {tp: 2, pp: 2, expert_model_parallel_size: 8}\n"
    )
    code, data = check_file(tmp_path, text)
    assert code == 1
    assert rules_of(data) == {"MB-WORLD-002"}
    assert data["bridge"] == "v0.5.1"
    code, data = check_file(tmp_path, text, "--bridge", "v0.6.0")  # the command line wins
    assert code == 0
    assert data["bridge"] == "v0.6.0"
    assert "MB-ETP-001" in rules_of(data, "override")


def test_estimate_reads_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "run_config.yaml"
    path.write_text(CONTAINER.replace("num_layers: 60", "num_layers: 64"), encoding="utf-8")
    data = json.loads(ok("estimate", str(path), "--gpus", "64", "--gpu", "H100", "--format", "json"))
    assert data["grid"]["pipeline_model_parallel_size"] == 8
    assert data["parameters"]["total"] > 10**10


def test_a_config_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = {
        "model_type": "llama",
        "num_hidden_layers": 16,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "vocab_size": 128256,
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    data = json.loads(ok("advise", "--model", str(path), "--gpu", "H100", "--gpus", "1", "--format", "json"))
    assert data["grids"][0]["tensor_model_parallel_size"] == 1
    message = refused("check", "--model", str(path), "--set", "num_layers=8")
    assert "config.json" in message


# --- as a process -----------------------------------------------------------------------------------------------------


def process(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mbridge_advisor", *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ENGINE), "PYTHONIOENCODING": "utf-8", **env},
        timeout=120,
    )


def test_the_process_has_the_exit_code_and_streams() -> None:
    done = process(*CHECK, "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["quantities"]["min_gpus"] == 16
    assert done.stderr == ""
    done = process("check", "--gpus", "12", "--set", "tp=8")
    assert done.returncode == 1
    done = process("check", "--set", "tp=two")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    done = process("advise", "--model", "deepseek-v3", "--gpu", "H100", "--gpus", "4")
    assert done.returncode == 3
    assert done.stderr == ""  # no progress bar away from a terminal


def test_chinese_survives_a_plain_locale() -> None:
    done = process(*CHECK, "--lang", "zh", LC_ALL="C", LANG="C")
    assert done.returncode == 0
    assert "GPU" in done.stdout
    assert "检查对象" in done.stdout


def test_a_knowledge_base_that_isn_t_there(tmp_path: Path) -> None:
    done = process("models", MBRIDGE_ADVISOR_KNOWLEDGE=str(tmp_path))
    assert done.returncode == 2
    assert "holds no knowledge base" in done.stderr
    assert "Traceback" not in done.stderr
