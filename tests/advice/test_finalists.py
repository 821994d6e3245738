"""What advise recommends holds up: legal by check, the same by estimate, explicit, cited."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from mbridge_advisor import advise, check, estimate
from mbridge_advisor.advice.results import Advice, Grid
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.schema import mistakes

BASE = load()
RELEASES = ("v0.6.0", "v0.4.2")
# A Hugging Face config.json of a model that the catalogue lacks: a narrow MoE with grouped queries.
HF_CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40960,
}
REQUESTS: dict[str, dict[str, Any]] = {
    "deepseek-v3": {
        "model": "deepseek-v3",
        "cluster": {"gpu": "H100", "gpus": 256},
        "training": {"seq_length": 4096},
    },
    "llama3-70b": {"model": "llama3-70b", "cluster": {"gpu": "H100", "gpus": 64}},
    "llama3.1-405b at 128K": {
        "model": "llama3.1-405b",
        "cluster": {"gpu": "H100", "gpus": 1024},
        "training": {"seq_length": 131072},
    },
    "qwen3-30b-a3b on a node": {"model": "qwen3-30b-a3b", "cluster": {"gpu": "H100", "gpus": 8}},
    "a config.json": {"model": {"hf_config": HF_CONFIG}, "cluster": {"gpu": "H100", "gpus": 8}},
    "llama3.2-1b on one GPU": {"model": "llama3.2-1b", "cluster": {"gpu": "H100", "gpus": 1}},
}
CASES = [pytest.param(name, bridge, id=f"{name}, {bridge}") for name in REQUESTS for bridge in RELEASES]


@cache
def advice_on(name: str, bridge: str) -> Advice:
    return advise({**REQUESTS[name], "bridge": bridge}, top=4)


def request_of(name: str, bridge: str, grid: Grid) -> dict[str, Any]:
    """The grid as a configuration of its own, with the request's model and cluster."""
    asked = REQUESTS[name]
    request: dict[str, Any] = {"bridge": bridge, "model": asked["model"], "cluster": dict(asked["cluster"])}
    for field, value in grid.fields.items():
        request.setdefault(BASE.by_field[field].section, {})[field] = value
    return request


@pytest.mark.parametrize(("name", "bridge"), CASES)
def test_there_is_an_answer_and_its_shape_is_that_of_the_schema(name: str, bridge: str) -> None:
    advice = advice_on(name, bridge)
    assert advice.exit_code == 0
    assert advice.grids
    assert advice.bridge == bridge
    for lang in ("en", "zh"):
        data = json.loads(json.dumps(advice.to_dict(lang)))
        assert not mistakes(data, "advice")
    assert not mistakes(json.loads(json.dumps(dict(advice.request))), "request")


@pytest.mark.parametrize(("name", "bridge"), CASES)
def test_each_finalist_satisfies_every_constraint(name: str, bridge: str) -> None:
    for grid in advice_on(name, bridge).grids:
        report = check(request_of(name, bridge, grid))
        broken = [f.rule for f in report.findings if f.severity == "error"]
        assert not broken, (broken, grid.fields)
        assert not mistakes(json.loads(json.dumps(report.to_dict("zh"))), "report")


@pytest.mark.parametrize(("name", "bridge"), CASES)
def test_each_finalist_fits_and_estimate_says_the_same(name: str, bridge: str) -> None:
    for grid in advice_on(name, bridge).grids:
        assert grid.memory.decision in ("fits", "tight")
        assert grid.memory.capacity == BASE.gpus["H100"].memory_bytes
        assert grid.memory.total <= grid.memory.capacity
        assert grid.memory.total == sum(grid.memory.components.values())
        assert grid.throughput is not None
        assert 0 < grid.throughput.low < grid.throughput.tokens_per_second_per_gpu < grid.throughput.high
        again = estimate(request_of(name, bridge, grid))
        assert again.grid.memory.total == pytest.approx(grid.memory.total, rel=1e-6)
        assert again.grid.throughput is not None
        assert again.grid.throughput.step_seconds == pytest.approx(grid.throughput.step_seconds, rel=1e-6)
        assert again.exit_code == 0
        assert not mistakes(json.loads(json.dumps(again.to_dict())), "estimate")


@pytest.mark.parametrize(("name", "bridge"), CASES)
def test_sizes_are_explicit_and_divide_the_world(name: str, bridge: str) -> None:
    advice = advice_on(name, bridge)
    arch = parse_request(REQUESTS[name], BASE).architecture
    assert arch is not None
    for grid in advice.grids:
        fields, sizes = grid.fields, grid.sizes
        gpus = REQUESTS[name]["cluster"]["gpus"]
        etp = fields["expert_tensor_parallel_size"]
        assert isinstance(etp, int) if arch.is_moe else etp is None
        assert gpus % int(str(sizes["min_gpus"])) == 0
        dense = [int(str(fields[f"{kind}_parallel_size"])) for kind in ("tensor_model", "pipeline_model", "context")]
        assert sizes["data_parallel_size"] == gpus // (dense[0] * dense[1] * dense[2])
        if arch.is_moe:
            assert sizes["expert_data_parallel_size"] == gpus // (
                dense[1] * int(str(fields["expert_model_parallel_size"])) * int(str(etp))
            )
        batch = int(str(fields["global_batch_size"]))
        step = int(str(fields["micro_batch_size"])) * int(str(sizes["data_parallel_size"]))
        assert batch % step == 0
        assert sizes["num_microbatches"] == batch // step
        paths = {pair.partition("=")[0].rpartition(".")[2] for pair in grid.overrides}
        assert paths >= {f for f in fields if f.endswith("parallel_size")}
    assert len({json.dumps(dict(g.fields), default=str) for g in advice.grids}) == len(advice.grids)


@pytest.mark.parametrize(("name", "bridge"), CASES)
def test_every_reason_and_caution_has_rule_status_and_source(name: str, bridge: str) -> None:
    advice = advice_on(name, bridge)
    revision = BASE.revisions[bridge]
    assert advice.grids[0].reasons
    for grid in advice.grids:
        for said in (*grid.reasons, *grid.cautions, *advice.statements):
            rule = BASE.rules[said.rule]
            assert rule.at(revision) is not None
            assert said.status in ("code_verified", "doc_only")
            assert said.citations
            for lang in ("en", "zh"):
                assert said.message[lang]
                assert said.because[lang]
                assert "{" not in said.message[lang]
                assert "?" not in said.message[lang]  # what stands for a name that isn't known
    cited = {rule for row in advice.to_dict()["citations"] for rule in row["rules"]}
    assert cited >= {s.rule for g in advice.grids for s in (*g.reasons, *g.cautions)}


def test_the_guide_s_word_on_deepseek_v3_and_why_it_can_t_run_here() -> None:
    advice = advice_on("deepseek-v3", "v0.6.0")
    every = [*advice.statements, *(s for g in advice.grids for s in (*g.reasons, *g.cautions))]
    texts = {s.rule: s.message for s in every}
    assert "TP 2, PP 16, EP 64" in texts["MB-GUIDE-018"].en
    assert "1024 GPUs" in texts["MB-GUIDE-101"].en
    assert "256" in texts["MB-GUIDE-101"].zh
    assert any(row["recipe"].startswith("deepseek_v3_pretrain_256gpu_h100") for row in advice.nearest_recipes)


def test_pinned_sizes_are_kept() -> None:
    request = {**REQUESTS["llama3-70b"], "grid": {"tp": 4, "vpp": None}}
    for grid in advise(request, top=3).grids:
        assert grid.fields["tensor_model_parallel_size"] == 4
        assert grid.fields["virtual_pipeline_model_parallel_size"] is None


@pytest.mark.parametrize("gpus", [4, 7])
def test_what_can_t_be_met_names_the_nearest_and_the_way_out(gpus: int) -> None:
    advice = advise({"model": "deepseek-v3", "cluster": {"gpu": "H100", "gpus": gpus}})
    assert advice.exit_code == 3
    assert not advice.grids
    assert advice.miss is not None
    assert advice.miss.remedies
    assert str(gpus) in advice.miss.reason.en
    assert advice.miss.memory is not None
    assert advice.miss.memory.total > BASE.gpus["H100"].memory_bytes
    assert not mistakes(json.loads(json.dumps(advice.to_dict("zh"))), "advice")


def test_a_config_json_in_a_file_is_the_same_as_its_content(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(HF_CONFIG), encoding="utf-8")
    by_file = advise({**REQUESTS["a config.json"], "model": str(path)}, top=1)
    assert by_file.grids[0].fields == advice_on("a config.json", "v0.6.0").grids[0].fields
