"""What the real code does, against wheels or sources (see conftest.py)."""

from typing import Any

import pytest
from mbridge_advisor.evidence.oracle import Oracle

MOE = {"num_moe_experts": 8, "moe_router_topk": 2, "moe_token_dispatcher_type": "alltoall"}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tp": 2, "sequence_parallel": True, "pp": 2, "vpp": 2},
        {"cp": 4, "seq_length": 4096},
        {**MOE, "ep": 8},
        {**MOE, "tp": 2, "sequence_parallel": True, "ep": 4, "etp": 1},
        {"world_size": 12, "tp": 2, "cp": 3, "ep": 4, "etp": 1, "sequence_parallel": True, "seq_length": 6144, **MOE},
        {"multi_latent_attention": True, "tp": 4},
        {"pp": 4, "layout": "Et|ttt|ttt|tL"},
        {"task": "sft"},
        {"use_megatron_fsdp": True},
    ],
)
def test_sound_configurations_pass_every_stage(real: Oracle, config: dict[str, Any]) -> None:
    verdict = real.judge(config)
    assert (verdict.verdict, verdict.stage) == ("accept", "forward"), verdict


@pytest.mark.parametrize(
    ("config", "stage", "words"),
    [
        ({"recompute_granularity": "all"}, "finalize", "TransformerConfig.__post_init__"),
        ({"world_size": 12, "tp": 8}, "validate", "not divisible"),
        ({"cp": 4, "seq_length": 4100}, "validate", "2 * context parallel"),
        ({**MOE, "world_size": 24, "gbs": 24, "ep": 16, "num_moe_experts": 16}, "groups", "expert"),
        ({"vpp": 2}, "groups", "pipeline"),
        ({"pp": 4, "num_layers": 30}, "model", "divisible"),
        ({"pp": 4, "vpp": 3, "num_layers": 16}, "model", "model chunks"),
        ({**MOE, "ep": 8, "num_moe_experts": 12}, "model", "MoE"),
        ({"tp": 8, "ffn_hidden_size": 4100}, "model", "4100"),
        ({"tp": 8, "sequence_parallel": True, "seq_length": 4097}, "forward", "divisible"),
        ({**MOE, "tp": 2}, "forward", "sequence parallelism"),
        ({"pp": 4, "vpp": 2, "num_layers": 16, "gbs": 4}, "schedule", "micro-batches"),
    ],
)
def test_each_stage_rejects_what_is_its_own(real: Oracle, config: dict[str, Any], stage: str, words: str) -> None:
    verdict = real.judge(config)
    assert (verdict.verdict, verdict.explicit) == ("reject", True), verdict
    assert verdict.stage == stage, verdict
    assert words in verdict.message or words in verdict.where, verdict
    assert verdict.where.startswith("megatron/")


def test_the_sizes_that_the_code_computes(real: Oracle) -> None:
    effective = real.judge({**MOE, "tp": 2, "pp": 2, "vpp": 2, "ep": 2, "etp": 1, "sequence_parallel": True}).effective
    assert effective["data_parallel_size"] == 2
    assert effective["expert_data_parallel_size"] == 2
    assert effective["num_microbatches"] == 16
    assert effective["layers"] == [[2, 2], [2, 2]]


def test_nothing_of_one_configuration_stays_for_the_next(real: Oracle) -> None:
    first = real.judge({"tp": 2})
    real.judge({"world_size": 12, "tp": 8})
    real.judge({**MOE, "ep": 8, "num_moe_experts": 12})
    real.judge({"CUDA_DEVICE_MAX_CONNECTIONS": "1", "use_megatron_fsdp": True})
    assert real.judge({"tp": 2}) == first


def test_a_name_without_a_field_is_unsupported(real: Oracle) -> None:
    verdict = real.judge({"no_such_field": 1})
    assert (verdict.verdict, verdict.stage) == ("unsupported", "config")
    assert real.judge({}, {"no_such_field": 1}).verdict == "accept"
