"""The search: layouts, completeness against brute force, agreement of the vectorised and the scalar judgement."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mbridge_advisor import advise
from mbridge_advisor.advice.plan import bounds_of, find, make_plans, run_plan
from mbridge_advisor.advice.programs import program_for
from mbridge_advisor.inference import infer
from mbridge_advisor.intake.facts import build_facts
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import load
from mbridge_advisor.layout import parse_layout
from mbridge_advisor.search import run as run_module
from mbridge_advisor.search.layouts import balanced_layout, loss_cost
from mbridge_advisor.search.run import _Pool, _with_schedules
from mbridge_advisor.search.space import GRID, divisors, expand, grid_columns, schedules, take

BASE = load()


@given(st.integers(1, 10**6))
def test_divisors(n: int) -> None:
    found = divisors(n)
    assert found == sorted(set(found))
    assert all(n % d == 0 for d in found)
    assert {n // d for d in found} == set(found)


@given(
    layers=st.integers(1, 130),
    mtp=st.integers(0, 2),
    pp=st.integers(2, 32),
    vpp=st.integers(1, 8),
    cost=st.floats(0, 8),
)
def test_a_balanced_layout_holds_everything_once(layers: int, mtp: int, pp: int, vpp: int, cost: float) -> None:
    text = balanced_layout(layers, mtp, pp, vpp, cost)
    if text is None:
        return
    layout = parse_layout(text)
    assert len(layout) == pp * vpp
    assert (layout.decoder_layers, layout.mtp_layers) == (layers, mtp)
    assert (layout.embeddings, layout.losses) == (1, 1)
    assert layout.starts_with_embedding
    assert layout.ends_with_loss
    assert all(layout)
    assert layout.decoders_after_mtp == 0
    assert len(layout.mtp_entries) <= 1


@given(layers=st.integers(2, 40), pp=st.integers(2, 5), cost=st.floats(0, 4))
def test_a_balanced_layout_is_as_even_as_any(layers: int, pp: int, cost: float) -> None:
    """Against brute force over how many layers the last rank gets (the others share the rest evenly)."""
    text = balanced_layout(layers, 0, pp, 1, cost)
    best = min(max(-(-(layers - last) // (pp - 1)), last + cost) for last in range(layers + 1))
    if text is not None:
        counts = [entry.count("t") for entry in parse_layout(text)]
        assert max(*counts[:-1], counts[-1] + cost) == pytest.approx(best)


def test_the_layout_of_deepseek_v3_puts_less_on_the_last_stage() -> None:
    arch = BASE.models["deepseek-v3"].architecture
    text = balanced_layout(61, 1, 16, 1, loss_cost(arch))
    assert text is not None
    counts = [entry.count("t") for entry in parse_layout(text)]
    assert counts[-1] < min(counts[:-1])
    assert max(counts) - min(counts[:-2]) <= 1


REQUESTS: list[dict[str, Any]] = [
    {"model": "llama3-8b", "cluster": {"gpu": "H100", "gpus": 12}, "training": {"global_batch_size": 48}},
    {"model": "qwen3-30b-a3b", "cluster": {"gpu": "H100", "gpus": 16}, "bridge": "v0.5.1"},
    {"model": "qwen3-30b-a3b", "cluster": {"gpu": "H100", "gpus": 24}, "training": {"global_batch_size": 96}},
    {"model": "deepseek-v2-lite", "cluster": {"gpu": "H100", "gpus": 8}, "bridge": "v0.2.0"},
    {"model": "deepseek-v3", "cluster": {"gpu": "B200", "gpus": 64}, "bridge": "v0.3.1"},
]


@pytest.mark.parametrize("data", REQUESTS, ids=lambda d: f"{d['model']}-{d['cluster']['gpus']}")
def test_the_masks_keep_exactly_what_the_inference_accepts(data: dict[str, Any]) -> None:
    """Every candidate, judged once vectorised and once alone by the reference evaluator."""
    request = parse_request(data, BASE)
    program = program_for(BASE, request.revision)
    plan = make_plans(request, BASE)[0]
    arch = request.architecture
    assert arch is not None
    facts = {**plan.inference.facts, "recompute_granularity": None}
    columns = grid_columns(data["cluster"]["gpus"], arch, {}, bounds_of(plan.inference, BASE, {}))
    columns["sequence_parallel"] = columns["tp"] > 1
    layouts: list[str] = []
    columns = _with_schedules(arch, columns, {}, layouts)
    columns = expand(columns, mbs=np.array([1, 2, 3], dtype=np.int64))
    rows = np.random.default_rng(0).permutation(len(columns["tp"]))[:400]
    columns = {**take(columns, rows), "number": rows}
    scalars = {k: v for k, v in program.columns(facts).items() if k not in columns}
    pool = _Pool(program, scalars, dict(columns), {}, set())  # type: ignore[arg-type]
    pool.prune()
    kept = set(pool.columns["number"].tolist())
    counts: Counter[str] = Counter()
    for i, number in enumerate(rows.tolist()):
        choice: dict[str, Any] = {name: int(columns[name][i]) for name in ("tp", "pp", "cp", "ep", "mbs")}
        choice["etp"] = int(columns["etp"][i]) or None
        choice["vpp"] = int(columns["vpp"][i]) or None
        choice["sequence_parallel"] = bool(columns["sequence_parallel"][i])
        at = int(columns["layout"][i])
        choice["pipeline_model_parallel_layout"] = layouts[at] if at >= 0 else None
        choice["recompute_granularity"] = None
        known = build_facts(plan.request.with_values(**choice), BASE, assumed=plan.assumed).values
        inference = infer(program, known, engine="reference")
        broken = [f.rule for f in inference.firings if program.rules[f.rule].enforced]
        assert (number in kept) == (not broken), (choice, broken)
        counts.update(broken)
    assert kept, counts
    assert counts


def test_every_grid_within_the_bounds_is_looked_at() -> None:
    arch = BASE.models["qwen3-30b-a3b"].architecture
    columns = grid_columns(48, arch, {}, {"tp": (1, 8), "cp": (1, 2), "etp": (1, 1)})
    found = set(zip(*(columns[n].tolist() for n in GRID), strict=True))
    ds = [d for d in range(1, 49) if 48 % d == 0]
    want = {
        (tp, pp, cp, ep, 1)
        for tp, pp, cp, ep in itertools.product([d for d in ds if d <= 8], ds, [1, 2], [d for d in ds if 128 % d == 0])
        if tp * pp * cp <= 48
    }
    assert found == want


def test_pinned_values_are_kept() -> None:
    arch = BASE.models["llama3-70b"].architecture
    columns = grid_columns(64, arch, {"tp": 4, "etp": None}, {"tp": (1, 2)})
    assert set(columns["tp"].tolist()) == {4}
    assert schedules(arch, 4, {"vpp": 5}) == [(5, "")]
    answer = advise(
        {
            "model": "llama3-70b",
            "cluster": {"gpu": "H100", "gpus": 64},
            "training": {"seq_length": 8192, "micro_batch_size": 1},
            "grid": {"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 4},
        }
    )
    assert answer.grids
    for grid in answer.grids:
        assert grid.fields["tensor_model_parallel_size"] == 4
        assert grid.fields["pipeline_model_parallel_size"] == 4
        assert grid.fields["micro_batch_size"] == 1


@settings(max_examples=15, deadline=None)
@given(
    model=st.sampled_from(["llama3.2-1b", "qwen3-30b-a3b", "llama3-8b", "gpt-oss-20b", "nemotron-h-8b"]),
    gpu=st.sampled_from(["H100", "GB200", "A100-80GB"]),
    gpus=st.sampled_from([1, 2, 3, 7, 8, 12, 16, 36]),
    seq=st.sampled_from([1024, 4096, 32768, 5000]),
    bridge=st.sampled_from(list(BASE.revisions)),
)
def test_any_request_gets_an_answer(model: str, gpu: str, gpus: int, seq: int, bridge: str) -> None:
    answer = advise(
        {
            "bridge": bridge,
            "model": model,
            "cluster": {"gpu": gpu, "gpus": gpus},
            "training": {"seq_length": seq},
        }
    )
    assert bool(answer.grids) != (answer.miss is not None)
    speeds = [g.throughput.tokens_per_second_per_gpu for g in answer.grids if g.throughput]
    assert all(s > 0 for s in speeds)
    for grid in answer.grids:
        assert grid.memory.decision in ("fits", "tight")
        assert grid.sizes["data_parallel_size"]
    answer.to_dict("zh")


@pytest.mark.parametrize("data", REQUESTS, ids=lambda d: f"{d['model']}-{d['cluster']['gpus']}")
def test_the_bound_hides_no_better_candidate(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks that stop early find what one block of everything finds."""
    plan = make_plans(parse_request(data, BASE), BASE)[0]
    monkeypatch.setattr(run_module, "BLOCK", 10**9)
    everything = run_plan(plan, 5)
    monkeypatch.setattr(run_module, "BLOCK", 16)
    early = run_plan(plan, 5)
    assert [dict(c) for c in early.choices] == [dict(c) for c in everything.choices]
    assert early.score == pytest.approx(everything.score)


def test_finalists_differ_in_work() -> None:
    """More CP with as much larger micro-batches is no alternative."""
    request = parse_request({"model": "llama3-70b", "cluster": {"gpu": "GB200", "gpus": 64}}, BASE)
    choices = [f.choice for f in find(request, BASE, 20).finalists]
    works = [(*(c[n] for n in ("tp", "pp", "ep", "use_megatron_fsdp")), c["mbs"] / c["cp"]) for c in choices]  # type: ignore[operator]
    assert len(works) > 5
    assert len(set(works)) == len(works)


def test_a_wholly_pinned_grid_is_searched() -> None:
    grid = {"tp": 2, "pp": 4, "cp": 1, "ep": 1, "vpp": 5}
    request = {"model": "llama3-70b", "cluster": {"gpu": "GB200", "gpus": 64}, "training": {"mbs": 1}, "grid": grid}
    (only,) = advise(request).grids[:1]
    assert only.fields["virtual_pipeline_model_parallel_size"] == 5


def test_tentative_suggestions_are_tried_and_can_be_refused() -> None:
    data: dict[str, Any] = {"model": "deepseek-v3", "cluster": {"gpu": "GB200", "gpus": 256}}
    request = parse_request({**data, "training": {"precision": "fp8_mx"}}, BASE)
    outcome = find(request, BASE, 10)
    tried = {f.plan.facts["cuda_graph_impl"] for f in find(request, BASE, 50).finalists}
    assert "transformer_engine" in tried
    scores = [f.score for f in outcome.finalists]
    assert scores == sorted(scores, reverse=True)
    refused = parse_request({**data, "training": {"cuda_graph_impl": "none"}}, BASE)
    assert {f.plan.facts["cuda_graph_impl"] for f in find(refused, BASE, 5).finalists} == {"none"}
    answer = advise({**data, "training": {"precision": "fp8_mx"}})
    for grid in answer.grids:
        captured = grid.fields.get("cuda_graph_impl", "none") != "none"
        assert captured == ("MB-SET-007" in {r.rule for r in grid.reasons})


@pytest.mark.parametrize("gpu", ["H100", "GB200"])
def test_a_floor_takes_away_nothing_that_is_above_it(gpu: str) -> None:
    """Candidates that can't reach the floor are left out, the others come as without it."""
    data = {"model": "qwen3-30b-a3b", "cluster": {"gpu": gpu, "gpus": 32}, "training": {"seq_length": 4096}}
    plan = make_plans(parse_request(data, BASE), BASE)[0]
    free = run_plan(plan, 5)
    assert len(free.choices) == 5
    floor = float(free.score[2])
    above = int((free.score > floor).sum())
    held = run_plan(plan, 5, floor=floor)
    assert held.choices[:above] == free.choices[:above]
    assert run_plan(plan, 5, floor=2 * float(free.score[0])).fits is False


def test_the_second_plan_loses_nothing_by_the_first_ones_floor() -> None:
    """Both searches alone and merged give what ``find`` gives, which starts the second from the first one's slowest."""
    data = {"model": "deepseek-v3", "cluster": {"gpu": "GB200", "gpus": 256}, "training": {"seq_length": 4096}}
    request = parse_request(data, BASE)
    plans = make_plans(request, BASE)
    assert len(plans) == 2
    alone = [run_plan(plan, 5) for plan in plans]
    scores = sorted((float(s) for found in alone if found.fits for s in found.score), reverse=True)
    best = [finalist.score for finalist in find(request, BASE, 5).finalists]
    assert best[0] == scores[0]
    assert set(best) <= set(scores)
