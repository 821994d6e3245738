"""Requests: what is understood, and what every mistake is answered with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mbridge_advisor.errors import RequestError
from mbridge_advisor.intake.facts import build_facts
from mbridge_advisor.intake.request import parse_pair, parse_request, parse_word
from mbridge_advisor.knowledge import load

BASE = load()


def parse(**data: Any) -> Any:
    return parse_request(data, BASE)


def test_a_request_is_resolved_and_written_back() -> None:
    request = parse(
        bridge="0.5.1",
        model="meta-llama/Meta-Llama-3-70B" if "llama3-70b" not in BASE.models else "llama3-70b",
        cluster={"gpu": "h100", "gpus": 64},
        training={"seq_length": 8192, "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}},
        grid={"tensor_model_parallel_size": 4, "etp": None},
    )
    assert request.revision.tag == "v0.5.1"
    assert request.gpu.name == "H100"
    assert request.values["tp"] == 4
    assert request.values["etp"] is None
    assert request.values["recompute_granularity"] == "full"
    again = parse_request(request.to_dict(BASE), BASE)
    assert again.values == request.values
    assert again.architecture == request.architecture


def test_settings_are_understood_in_training_or_grid() -> None:
    a = parse(grid={"micro_batch_size": 2, "use_distributed_optimizer": False})
    b = parse(training={"mbs": 2, "use_distributed_optimizer": False})
    assert a.values == b.values


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        ({"grid": {"tp": "two"}}, "grid.tp", "wrong type"),
        ({"grid": {"tp": 2.5}}, "grid.tp", "wrong type"),
        ({"grid": {"tp": True}}, "grid.tp", "wrong type"),
        ({"grid": {"tp": 0}}, "grid.tp", "below"),
        ({"cluster": {"gpus": 10**9}}, "cluster.gpus", "above"),
        ({"cluster": {"gpus": "many"}}, "cluster.gpus", "wrong type"),
        ({"cluster": {"gpu": "H1OO"}}, "cluster.gpu", "not in the knowledge base"),
        ({"model": "deepsek-v3"}, "model", "not in the catalogue"),
        ({"bridge": "v9.9.9"}, "bridge", "not a Megatron Bridge release"),
        ({"grid": {"tensor_parallel": 2}}, "grid.tensor_parallel", "not a known"),
        ({"grid": {"data_parallel_size": 2}}, "grid.data_parallel_size", "computed"),
        ({"grid": {"gpus": 8}}, "grid.gpus", "wrong place"),
        ({"tp": 2}, "tp", "not a part"),
        ({"grid": 7}, "grid", "not a mapping"),
        ({"grid": {"tp": 2, "tensor_model_parallel_size": 4}}, "grid.tensor_model_parallel_size", "contradicts"),
        ({"model": {}}, "model", "not a model"),
        ({"model": {"num_layers": 2, "num_attention_heads": "many"}}, "model.num_attention_heads", "wrong type"),
        ({"model": {"hidden": 2}}, "model.hidden", "not a dimension"),
        ({"model": 7}, "model", "not a model"),
        ({"model": {"hf_config": "nowhere/config.json"}}, "model.hf_config", "can't be read"),
        ({"training": {"precision": "int7"}}, "training.precision", "not a choice"),
    ],
)
def test_a_mistake_names_field_value_reason_and_way_out(data: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(data, BASE)
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert caught.value.way_out
    json.dumps(caught.value.to_dict())


def test_near_names_are_suggested() -> None:
    with pytest.raises(RequestError, match="deepseek-v3"):
        parse(model="deepsek-v3")
    with pytest.raises(RequestError, match="tensor_model_parallel_size"):
        parse(grid={"tensor_model_paralel_size": 2})


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("tp=2", ("tp", 2)),
        ("model.tensor_model_parallel_size=4", ("tensor_model_parallel_size", 4)),
        ("etp=null", ("etp", None)),
        ("sp=True", ("sp", True)),
        ("recompute_modules=[core_attn,moe]", ("recompute_modules", ["core_attn", "moe"])),
        ("precision=fp8_mx", ("precision", "fp8_mx")),
        ("pipeline_model_parallel_layout=Et*3|t*3L", ("pipeline_model_parallel_layout", "Et*3|t*3L")),
    ],
)
def test_pairs(text: str, pair: tuple[str, Any]) -> None:
    assert parse_pair(text) == pair


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*BASE.by_field, "bridge", "model", "cluster", "grid", "training", "environment", "hf_config"])


@given(st.dictionaries(names, st.dictionaries(names, json_like, max_size=3) | json_like, max_size=4))
def test_any_mapping_is_a_request_or_a_clear_error(data: dict[str, Any]) -> None:
    problem = None
    try:
        request = parse_request(data, BASE)
        build_facts(request, BASE)
    except RequestError as error:
        problem = error
    assert problem is None or (problem.field and problem.way_out)


@given(st.text(max_size=40))
def test_any_word_is_a_value(text: str) -> None:
    parse_word(text)


def test_facts_know_where_they_come_from() -> None:
    facts = build_facts(parse(model="deepseek-v3", cluster={"gpu": "H100", "gpus": 256}, grid={"tp": 2}), BASE)
    assert facts.values["tp"] == 2
    assert facts.origins["tp"].kind == "given"
    assert facts.origins["pp"].kind == "default"
    assert facts.values["etp"] is None
    assert facts.origins["gpu_memory"].kind == "gpu"
    assert facts.origins["num_moe_experts"].kind == "model"
    assert facts.origins["active_params"].kind == "architecture"
    assert "mbs" not in build_facts(parse(), BASE, open_names=["mbs"]).values


def test_a_model_stays_unknown_where_none_is_named() -> None:
    values = build_facts(parse(grid={"tp": 2}), BASE).values
    assert "num_moe_experts" not in values
    assert "num_layers" not in values
    assert "world_size" not in values


def test_single_dimensions_are_facts_and_the_rest_stays_unknown() -> None:
    request = parse(model={"num_layers": 30, "num_query_groups": 2}, grid={"pp": 4, "ep": 2})
    assert request.architecture is None
    assert parse_request(request.to_dict(BASE), BASE).values == request.values
    facts = build_facts(request, BASE)
    assert facts.values["num_layers"] == 30
    assert facts.origins["num_layers"].kind == "given"
    assert facts.values["query_groups"] == 2
    assert facts.values["is_moe"] is True
    assert facts.origins["is_moe"].kind == "assumed"
    assert not facts.values.keys() & {"hidden_size", "num_moe_experts", "total_params", "num_moe_layers"}


def test_ep_tells_of_experts_only_where_the_model_says_nothing() -> None:
    assert "is_moe" not in build_facts(parse(model={"num_moe_experts": None}, grid={"ep": 2}), BASE).values
    assert "is_moe" not in build_facts(parse(grid={"ep": 1}), BASE).values
    assert "is_moe" not in build_facts(parse(model="llama3-8b", grid={"ep": 2}), BASE).values


def test_a_config_json_is_found_beside_the_request(tmp_path: Path) -> None:
    config = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 1000,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    request = parse_request({"model": {"hf_config": "config.json"}}, BASE, base=tmp_path)
    assert request.architecture is not None
    assert (request.architecture.num_moe_experts, request.architecture.moe_router_topk) == (8, 2)
