"""The sizing rules: the chain from architecture to bounds, the guide's tables, and the vendor's grids as a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from mbridge_advisor.inference import Inference, Program, infer
from mbridge_advisor.intake.facts import build_facts
from mbridge_advisor.intake.request import Request
from mbridge_advisor.knowledge import Knowledge, load, load_recipes, load_throughput
from mbridge_advisor.knowledge.model import Model, Value

Asked = Mapping[str, Value]

GRID = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "sequence_parallel", "pipeline_model_parallel_layout")
ON_256: Asked = {"world_size": 256, "seq_length": 4096}
SHORT: Asked = {"seq_length": 4096}


@cache
def knowledge() -> Knowledge:
    return load()


@cache
def program(tag: str) -> Program:
    k = knowledge()
    return Program.build(k.terms, k.quantities.values(), k.rules.values(), k.revisions[tag])


def conclude(model: str, gpu: str, values: Asked, tag: str = "v0.6.0", grid: bool = False) -> Inference:
    """What follows for a catalogued model on a system; the grid is open unless ``grid``."""
    k = knowledge()
    found = k.models[model]
    request = Request(k.revisions[tag], found.architecture, found, model, k.gpus[gpu], values)
    facts = build_facts(request, k, open_names=() if grid else set(GRID) - values.keys())
    return infer(program(tag), facts.values, "reference")


def shown(inference: Inference, rule: str, lang: str = "en") -> str:
    found = program(inference.revision).rules[rule].rule
    message = found.then.message if found else None
    assert message is not None
    return message[lang].format_map({name: inference.facts.get(name) for name in knowledge().terms})


# The chain


def test_chain_runs_from_precision_and_parameters_to_the_bound() -> None:
    inference = conclude("deepseek-v3", "H100", ON_256)
    proof = inference.chain("ep_max")
    assert proof.depth >= 7
    steps = {"weight_bytes_per_param", "model_state_bytes", "state_gpus", "size_class", "shard_first", "shard_level"}
    assert steps <= inference.derivations.keys()
    assert inference.facts["ep_max"] == 256


@pytest.mark.parametrize(
    ("model", "gpu", "values", "first", "level", "tp_enough"),
    [
        ("deepseek-v3", "H100", {}, "ep", "network", 2),
        ("deepseek-v3", "GB200", {}, "ep", "nvlink", 2),
        ("qwen3-30b-a3b", "B200", {}, "ep", "nvlink", 1),
        ("llama3-70b", "H100", {}, "tp", "nvlink", 4),
        ("llama3.1-405b", "GB200", {}, "tp", "nvlink", 8),
        ("llama3.2-1b", "H100", {}, "dp", "network", 1),
        ("llama3.2-1b", "H100", {"seq_length": 131072}, "cp", "nvlink", 1),
        ("llama3-70b", "GB300", {"task": "lora"}, "dp", "network", 4),
    ],
)
def test_first_dimension(model: str, gpu: str, values: Asked, first: str, level: str, tp_enough: int) -> None:
    facts = conclude(model, gpu, {**SHORT, **values}).facts
    assert (facts["shard_first"], facts["shard_level"], facts["tp_enough"]) == (first, level, tp_enough)


def test_state_bytes_are_the_usual_ones() -> None:
    facts = conclude("llama3-8b", "H100", SHORT).facts
    assert facts["state_bytes_per_param"] == 2 + 4 + 12
    total = facts["total_params"]
    assert isinstance(total, int)
    assert facts["model_state_bytes"] == total * 18
    assert conclude("llama3-8b", "H100", {**SHORT, "task": "lora"}).facts["state_bytes_per_param"] == 2
    offloaded: Asked = {**SHORT, "optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0}
    assert conclude("llama3-8b", "H100", offloaded).facts["state_bytes_per_param"] == 6


# The guide


@pytest.mark.parametrize(("tag", "etp", "needed"), [("v0.6.0", 1, 1024), ("v0.5.1", 2, 2048)])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_guide_on_256_gpus(tag: str, etp: int, needed: int, lang: str) -> None:
    inference = conclude("deepseek-v3", "H100", ON_256, tag)
    wanted = {"guide_tp": 2, "guide_pp": 16, "guide_ep": 64, "guide_cp": 1, "guide_etp": etp, "guide_min_gpus": needed}
    assert {name: inference.facts[name] for name in wanted} == wanted
    text = shown(inference, "MB-GUIDE-101", lang)
    assert all(str(number) in text for number in (2, 16, 64, needed, 256))
    assert "MB-GUIDE-102" in inference.fired  # 61 layers over PP 16


def test_guide_is_silent_before_it_was_written() -> None:
    inference = conclude("deepseek-v3", "H100", ON_256, "v0.3.1")
    assert not any(name.startswith("guide_") for name in inference.facts)


@pytest.mark.parametrize("model", sorted(load().models))
@pytest.mark.parametrize("seq_length", [2048, 8192, 131072])
def test_guide_speaks_with_one_voice(model: str, seq_length: int) -> None:
    """At most one row by size and exactly one by length; no two rules derive different values."""
    inference = conclude(model, "H100", {"world_size": 64, "seq_length": seq_length})
    assert not inference.conflicts
    rows = [rule for rule in inference.fired if "MB-GUIDE-001" <= rule <= "MB-GUIDE-024"]
    assert len(rows) == 1
    assert len([rule for rule in inference.fired if "MB-GUIDE-041" <= rule <= "MB-GUIDE-044"]) == 1


# The vendor's grids


def catalogued() -> Iterator[tuple[Model, str]]:
    for model in knowledge().models.values():
        for key in model.recipe_keys:
            yield model, key


def vendor_grids() -> Iterator[tuple[str, Model, str, str, Mapping[str, Any]]]:
    """Id, model, release, system and settings of every shipped and published grid of a catalogued model."""
    for model, key in catalogued():
        for row in load_recipes(knowledge(), key):
            yield row["id"], model, row["tag"], row.get("hardware") or "H100", row
        for row in load_throughput(knowledge()):
            if row["model_key"] == key and row["tag"] in knowledge().revisions:
                yield row["id"], model, row["tag"], row["system"], {**row, "seq_length": row["seq_len"]}


def test_no_bound_excludes_a_vendor_grid() -> None:
    bounds = [(term.name, *term.bounds) for term in knowledge().terms.values() if term.bounds]
    assert len(bounds) >= 6
    cases: dict[tuple[Any, ...], Inference] = {}
    excluded, judged = [], 0
    for identity, model, tag, gpu, row in vendor_grids():
        if gpu not in knowledge().gpus or not row.get("seq_length"):
            continue
        asked = {"seq_length": row["seq_length"], "task": row["task"]}
        case = (model.name, tag, gpu, *asked.values())
        if case not in cases:
            cases[case] = conclude(model.name, gpu, asked, tag)
        facts: Mapping[str, Any] = cases[case].facts
        judged += 1
        for bound, name, side in bounds:
            value = row.get("etp_effective" if name == "etp" else name) or 1
            if bound in facts and (value > facts[bound] if side == "max" else value < facts[bound]):
                excluded.append((identity, model.name, gpu, name, value, facts[bound]))
    assert judged > 1000
    assert not excluded


def test_published_moe_grids_keep_to_the_preferred_tp_and_expert_tp() -> None:
    """What the preferences' reasons claim about the performance tables."""
    rows = [
        (row["tp"] or 1, conclude(model.name, "H100", SHORT).facts["tp_enough"])
        for model, key in catalogued()
        for row in load_throughput(knowledge())
        if row["model_key"] == key and model.architecture.is_moe
    ]
    assert len(rows) > 50
    assert all(isinstance(enough, int) and tp <= enough for tp, enough in rows)


# Pitfalls on the examples


def test_full_product_and_smallest_world_are_named() -> None:
    asked: Asked = {"world_size": 16, "seq_length": 4096, "tp": 2, "pp": 2, "ep": 8, "cp": 1, "etp": 1}
    text = shown(conclude("qwen3-30b-a3b", "H100", asked, grid=True), "MB-COUNT-002")
    assert "32" in text
    assert "16" in text


def test_max_formula_falls_short() -> None:
    asked: Asked = {"world_size": 12, "seq_length": 4096, "tp": 6, "pp": 1, "ep": 4, "cp": 1, "etp": 1}
    text = shown(conclude("qwen3-30b-a3b", "H100", asked, grid=True), "MB-COUNT-001")
    assert "12" in text
    assert "6" in text


def test_deepseek_v3_does_not_fit_four_gpus() -> None:
    assert "MB-FIT-001" in conclude("deepseek-v3", "H100", {**ON_256, "world_size": 4}).fired
    assert "MB-FIT-001" not in conclude("deepseek-v3", "H100", ON_256).fired
