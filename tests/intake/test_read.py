"""Real inputs of every kind become the request that they mean, with a note on what was not understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mbridge_advisor import check
from mbridge_advisor.errors import RequestError
from mbridge_advisor.intake.notes import Note, repeated_list
from mbridge_advisor.intake.read import read_input
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import load
from real_inputs import RUN_CONFIG, SCRIPT

BASE = load()


def taken(source: Any, kind: str | None = None, **more: Any) -> tuple[dict[str, Any], list[Note]]:
    request, notes = read_input(source, kind, **more)
    parse_request(request, BASE)
    return request, [n for n in notes if n.matters]


def test_a_saved_run_config(tmp_path: Path) -> None:
    (tmp_path / "run_config.yaml").write_text(RUN_CONFIG)
    request, matters = taken(tmp_path)
    assert request["grid"] == {
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": None,
        "expert_model_parallel_size": 8,
        "expert_tensor_parallel_size": None,
        "sequence_parallel": True,
        "use_distributed_optimizer": True,
    }
    training = request["training"]
    assert training["attention_backend"] == "flash"
    assert training["main_grads_dtype"] == "bf16"
    assert training["precision"] == "fp8_mx"
    assert training["dataset_seq_length"] == 4096
    assert training["grad_reduce_in_fp32"] is False
    assert request["model"]["num_moe_experts"] == 128
    assert matters == []


def test_the_language_model_of_a_nested_provider_is_read() -> None:
    text = """
    model:
      _target_: x.Qwen3VLModelProvider
      tensor_model_parallel_size: 2
      language_transformer_config: {_target_: y, num_layers: 36, hidden_size: 2560, tensor_model_parallel_size: 1}
    train: {global_batch_size: 8}
    """
    request, _ = read_input(text)
    assert request["model"]["num_layers"] == 36
    assert request["grid"]["tensor_model_parallel_size"] == 2


@pytest.mark.parametrize(
    ("name", "precision"),
    [("bf16_mixed", "bf16"), ("bf16_with_fp8_current_scaling_mixed", "fp8_cs"), ("bf16_with_nvfp4_mixed", "nvfp4")],
)
def test_a_precision_by_the_name_of_its_recipe(name: str, precision: str) -> None:
    request, matters = taken(f"mixed_precision: {name}\nmodel: {{tensor_model_parallel_size: 2}}\n")
    assert request["training"]["precision"] == precision
    assert matters == []


def test_a_launch_script_with_variables_arrays_conditions_and_slurm(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(SCRIPT)
    request, matters = taken(tmp_path / "train.sh")
    grid, model, training = request["grid"], request["model"], request["training"]
    assert [grid[f"{n}_parallel_size"] for n in ("tensor_model", "pipeline_model", "expert_model")] == [4, 2, 8]
    assert grid["virtual_pipeline_model_parallel_size"] == 4  # 32 layers / 2 stages / 4 layers
    assert grid["sequence_parallel"] is True
    assert grid["use_distributed_optimizer"] is False  # Megatron-LM's default
    assert grid["expert_tensor_parallel_size"] == 4  # Megatron Core takes TP
    assert model["num_layers"] == 32
    assert model["moe_layer_freq"] == [0] * 2 + [1] * 30
    assert (model["add_bias_linear"], model["gated_linear_unit"]) == (False, True)
    assert model["share_embeddings_and_output_weights"] is False
    assert model["position_embedding_type"] == "learned_absolute"  # not given
    assert training["precision"] == "fp8_cs"
    assert request["cluster"] == {"gpus_per_node": 8, "gpus": 32, "gpu": "H100"}
    assert request["environment"] == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert [n.key for n in matters] == ["some_new_thing"]


def test_an_argument_list_alone() -> None:
    request, matters = taken("--tensor-model-parallel-size 2 --pipeline-model-parallel-size $PP --bf16")
    assert request["grid"]["tensor_model_parallel_size"] == 2
    assert [(n.key, n.status) for n in matters] == [("pipeline_model_parallel_size", "unresolved")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--recompute-activations", {"recompute_granularity": "selective"}),
        ("--recompute-modules mlp moe layernorm", {"recompute_modules": ["mlp", "moe", "layernorm"]}),
        ("--fp8-recipe mxfp8 --bf16", {"precision": "bf16"}),  # without --fp8-format there is no FP8
        ("--fp16", {"precision": "fp16"}),
        ("--grad-reduce-in-bf16", {"grad_reduce_in_fp32": False}),
        ("--micro-batch-size=4", {"micro_batch_size": 4}),
        ("--micro-batch-size 2 --micro-batch-size 4", {"micro_batch_size": 4}),  # the last one counts
    ],
)
def test_arguments_that_go_by_another_name(words: str, expected: dict[str, Any]) -> None:
    request, _ = taken(f"torchrun pretrain_gpt.py {words} --num-layers 4")
    assert {k: request["training"][k] for k in expected} == expected


def test_a_hybrid_pattern_gives_layers_and_mtp() -> None:
    request, _ = taken("torchrun pretrain_hybrid.py --hybrid-layer-pattern 'M*|M-/MM/MM' --hidden-size 64")
    model = request["model"]
    assert (model["hybrid_override_pattern"], model["num_layers"]) == ("M*M-", 4)
    assert (model["mtp_hybrid_override_pattern"], model["mtp_num_layers"]) == ("MM", 2)


def test_a_functional_test_of_megatron_lm() -> None:
    text = """
    ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1, NCCL_ALGO: Ring}
    TEST_TYPE: regular
    MODEL_ARGS:
      --num-layers: 12
      --num-layers: 12
      --position-embedding-type: none
      --pipeline-model-parallel-layout: Et*2|(tt|)*5t|tmL
      --pipeline-model-parallel-size: 4
      --disable-bias-linear: true
      --swiglu: false
    """
    request, matters = taken(text)
    assert request["grid"]["pipeline_model_parallel_layout"] == "Et*2|(tt|)*5t|tmL"
    assert request["model"] == {"num_layers": 12, "position_embedding_type": "none", "add_bias_linear": False}
    assert request["environment"] == {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_ALGO": "Ring"}
    assert matters == []


@pytest.mark.parametrize(
    "source",
    [
        {"trainer": {"num_nodes": 2, "devices": 8, "strategy": {"tensor_model_parallel_size": 2}, "max_steps": 5}},
        "python train.py trainer.num_nodes=2 trainer.devices=8 trainer.strategy.tensor_model_parallel_size=2",
        {
            "MODEL_ARGS": {
                "trainer.num_nodes": 2,
                "trainer.devices": 8,
                "trainer.strategy.tensor_model_parallel_size": 2,
            }
        },
    ],
)
def test_nemo_2(source: Any) -> None:
    request, matters = taken(source if isinstance(source, str) else json.dumps(source))
    assert request["grid"]["tensor_model_parallel_size"] == 2
    assert request["cluster"] == {"gpus_per_node": 8, "gpus": 16}
    assert matters == []


def test_verl() -> None:
    script = """python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer \\
        actor_rollout_ref.model.path=/models/Qwen3-30B-A3B \\
        data.max_prompt_length=1024 data.max_response_length=3072 \\
        actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.rollout.n=8 \\
        actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \\
        actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 \\
        +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full \\
        actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
        trainer.nnodes=2 trainer.n_gpus_per_node=8
    """
    request, matters = taken(script)
    assert request["model"] == "qwen3-30b-a3b"
    assert request["grid"]["tensor_model_parallel_size"] == 4
    assert request["training"]["seq_length"] == 4096
    assert request["training"]["global_batch_size"] == 512
    assert request["training"]["recompute_granularity"] == "full"
    assert request["cluster"]["gpus"] == 16
    assert [n.status for n in matters] == ["not_modelled"]  # the rollout's memory


def test_ms_swift() -> None:
    script = """NPROC_PER_NODE=4 NNODES=2 megatron sft --model Qwen/Qwen3-8B --tuner_type lora --lora_rank 8 \\
        --tensor_model_parallel_size 2 --sequence_parallel true --max_length 8192 --packing true \\
        --micro_batch_size 1 --global_batch_size 16 --dataset a b --torch_dtype bfloat16"""
    request, matters = taken(script)
    assert request["model"] == "qwen3-8b"
    assert request["training"]["task"] == "lora"
    assert request["training"]["lora_rank"] == 8
    assert request["training"]["packed_sequence"] is True
    assert request["cluster"] == {"gpus_per_node": 4, "gpus": 8}
    assert "use_distributed_optimizer" not in request["grid"]  # its defaults are not Megatron-LM's
    assert matters == []


def test_slime() -> None:
    script = """ray job submit -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 \\
        --hf-checkpoint /root/Qwen3-4B --tensor-model-parallel-size 2 --context-parallel-size 2 \\
        --max-tokens-per-gpu 4096 --rollout-batch-size 32 --sglang-mem-fraction-static 0.7"""
    request, _ = taken(script)
    assert request["model"] == "qwen3-4b"
    assert request["cluster"]["gpus"] == 16
    assert request["training"]["seq_length"] == 8192
    assert request["grid"]["use_distributed_optimizer"] is False


def test_overrides_as_run_recipe_takes_them() -> None:
    text = (
        "model.tensor_model_parallel_size=8 +train.micro_batch_size=2 model.virtual_pipeline_model_parallel_size=null"
    )
    request, matters = taken(text)
    assert request["grid"] == {"tensor_model_parallel_size": 8, "virtual_pipeline_model_parallel_size": None}
    assert request["training"] == {"micro_batch_size": 2}
    assert matters == []


def test_a_recipe_by_name_at_each_release() -> None:
    request, _ = taken("llama3_8b_pretrain_config", "recipe", bridge="v0.3.1")
    assert request["bridge"] == "v0.3.1"
    assert request["model"]["name"] == "llama3-8b"
    assert request["grid"]["context_parallel_size"] == 2
    assert taken("LLAMA3_8B_PRETRAIN_CONFIG")[0]["grid"] == request["grid"]  # any case; the newest release that has it


@pytest.mark.parametrize(
    ("name", "bridge", "words"),
    [
        ("llama3_8b_pretrain_confg", None, "Did you mean"),
        ("llama3_8b_pretrain_config", "v9.9.9", "v9.9.9"),
        ("llama3_8b_finetune_config", "v0.2.0", "several variants"),
        ("llama3_8b_finetune_config/dora", "v0.2.0", "no such variant"),
    ],
)
def test_a_recipe_that_isn_t_there(name: str, bridge: str | None, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_input(name, "recipe", bridge=bridge)


def test_a_bridge_launch_starts_from_its_recipe_and_changes_it() -> None:
    script = (
        "torchrun --nproc_per_node=8 scripts/training/run_recipe.py --recipe llama3_8b_finetune_config/sft "
        "-tp 4 -mb 2 model.sequence_parallel=true"
    )
    request, _ = taken(script, bridge="v0.2.0")
    assert request["grid"]["tensor_model_parallel_size"] == 4
    assert request["grid"]["sequence_parallel"] is True
    assert request["training"]["micro_batch_size"] == 2
    assert request["training"]["global_batch_size"] == 128  # the recipe's
    assert request["cluster"]["gpus_per_node"] == 8


@pytest.mark.parametrize(
    ("lines", "gpus", "per_node"),
    [
        ("#SBATCH -N 2\n#SBATCH --gpus-per-node=4", 8, 4),
        ("#SBATCH --nodes=2 --ntasks-per-node=8", 16, 8),
        ("#SBATCH --nodes=2\n#SBATCH --gpus=16", 16, 8),
        ("#SBATCH -N2\n#SBATCH --gres=gpu:8", 16, 8),
        ("#SBATCH --nodes=1-3\n#SBATCH --gres=gpu:2", 6, 2),
    ],
)
def test_what_slurm_is_asked_for(lines: str, gpus: int, per_node: int) -> None:
    request, _ = taken(f"#!/bin/bash\n{lines}\nsrun python pretrain_gpt.py --tensor-model-parallel-size 2\n")
    assert (request["cluster"]["gpus"], request["cluster"]["gpus_per_node"]) == (gpus, per_node)


def test_a_request_passes_unchanged() -> None:
    data = {"bridge": "v0.5.1", "model": "llama3-8b", "grid": {"tp": 2}}
    assert read_input(json.dumps(data)) == (data, ())
    assert read_input(json.dumps(data), bridge="0.6.0")[0]["bridge"] == "v0.6.0"


def test_a_name_that_nearly_fits_is_pointed_out() -> None:
    _, matters = read_input("model: {tensor_model_parallel_sizes: 2, sequence_parallel: true}\n")
    (note,) = (n for n in matters if n.matters)
    assert "tensor_model_parallel_size" in note.why.en


def test_aliases_and_merge_keys_are_followed_within_bounds() -> None:
    text = "base: &base {tensor_model_parallel_size: 2}\nmodel:\n  <<: *base\n  pipeline_model_parallel_size: 2\n"
    assert read_input(text)[0]["grid"]["tensor_model_parallel_size"] == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: !!python/object/apply:os.system [true]\n", "tag"),
        ("model: {tensor_model_parallel_size: two, sequence_parallel: true}\n", "whole number"),
        ("a: " + "[" * 100 + "]" * 100 + "\nmodel: {}\n", "too deep"),
        ("{" * 50, "JSON"),
        ("just words\nand more\n", "no known kind"),
        ('{"num_hidden_layers": 3, "model_type": "unheard_of"}', "hidden_size"),
    ],
)
def test_what_can_t_be_read_is_said(text: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_input(text)


def test_paths_that_an_input_names_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret" / "config.json"
    secret.parent.mkdir()
    secret.write_text('{"model_type": "llama"}')
    (tmp_path / "train.sh").write_text(
        f"source {secret}\npython pretrain_gpt.py --tensor-model-parallel-size 2 --load {secret} "
        f"--num-layers $(cat {secret})\n"
    )
    request, matters = read_input(tmp_path / "train.sh")
    assert "model" not in request
    assert [n.key for n in matters if n.matters] == ["num_layers"]


def test_every_field_has_a_note() -> None:
    _, notes = read_input(RUN_CONFIG)
    keys = {n.key for n in notes}
    assert {"model.num_layers", "model.activation_func", "optimizer.lr", "logger.log_interval", "dataset.split"} <= keys
    assert all(n.text("en") and n.text("zh") and n.to_dict()["status"] for n in notes)


def test_a_read_config_can_be_judged() -> None:
    assert check(read_input(RUN_CONFIG)[0]).verdict in ("ok", "warning", "error")


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("([0]*3+[1]*2)", [0, 0, 0, 1, 1]),
        ("[1,0]*2", [1, 0, 1, 0]),
        ("[0, 1]", [0, 1]),
        ("__import__('os')", None),
        ("[1]*99999", None),
    ],
)
def test_repeated_lists(text: str, items: list[int] | None) -> None:
    assert repeated_list(text) == items
