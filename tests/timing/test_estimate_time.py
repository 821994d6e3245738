"""The time estimate: properties, and agreement of one candidate with many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mbridge_advisor.knowledge.load import load
from mbridge_advisor.memory import Grids, Recompute, Settings
from mbridge_advisor.timing import (
    COMPONENTS,
    TimeEstimate,
    estimate,
    model_flops_per_token,
    network,
    tokens_per_second_per_gpu,
)

KNOWLEDGE = load()
H100, GB200 = KNOWLEDGE.gpus["H100"], KNOWLEDGE.gpus["GB200"]
LLAMA = KNOWLEDGE.models["llama3-8b"].architecture
DEEPSEEK = KNOWLEDGE.models["deepseek-v3"].architecture
BASE = Settings(seq_length=4096, global_batch_size=1024)


def run(grids: Grids, settings: Settings = BASE, arch=LLAMA, gpu=H100) -> TimeEstimate:  # type: ignore[no-untyped-def]
    return estimate(arch, settings, grids, gpu)


def step(settings: Settings = BASE, arch=LLAMA, gpu=H100, **grid: object) -> float:  # type: ignore[no-untyped-def]
    grids = Grids.of(**{"world_size": 64, "global_batch_size": settings.global_batch_size, **grid})  # type: ignore[arg-type]
    return float(estimate(arch, settings, grids, gpu).step_seconds[0])


@pytest.mark.parametrize("arch", [LLAMA, DEEPSEEK], ids=["dense", "moe"])
def test_one_candidate_is_a_row_of_many(arch) -> None:  # type: ignore[no-untyped-def]
    r = np.random.default_rng(3)
    n = 200
    pp = 2 ** r.integers(0, 4, n)
    recomputes = (Recompute(), Recompute("selective"), Recompute("full", "uniform", 1), Recompute("full", "block", 2))
    grids = Grids.of(
        world_size=512,
        global_batch_size=1024,
        tp=2 ** r.integers(0, 4, n),
        pp=pp,
        vpp=np.where(pp > 1, r.choice([1, 2], n), 1),
        cp=2 ** r.integers(0, 2, n),
        mbs=2 ** r.integers(0, 3, n),
        ep=2 ** r.integers(0, 5, n) if arch.is_moe else 1,
        recompute=recomputes,
        recompute_index=r.integers(0, len(recomputes), n),
    )
    many = run(grids, arch=arch)
    for i in range(0, n, 9):
        one = run(grids.take(slice(i, i + 1)), arch=arch)
        assert one.step_seconds[0] == pytest.approx(many.step_seconds[i], rel=1e-12)
        for name in COMPONENTS:
            assert one.components[name][0] == pytest.approx(many.components[name][i], rel=1e-9, abs=1e-12), name
    rates = tokens_per_second_per_gpu(arch, BASE, grids, H100)
    np.testing.assert_allclose(rates, many.tokens_per_second_per_gpu, rtol=1e-12)


def test_full_recompute_repeats_the_launches_of_a_layer_that_waits_for_the_host() -> None:
    """128 small experts on a rank: the host is the bottleneck, and a second forward pass keeps it busy again."""
    arch = KNOWLEDGE.models["qwen3-30b-a3b"].architecture
    base = replace(BASE, moe_token_dispatcher_type="alltoall")
    grid = {"world_size": 8, "mbs": 1, "ep": 1}
    grids = Grids.of(**grid, global_batch_size=1024, recompute=Recompute())  # type: ignore[arg-type]
    assert run(grids, base, arch).components["launch"][0] > 0
    plain = step(base, arch, **grid)
    again = step(base, arch, **grid, recompute=Recompute("full", "uniform", 1))
    assert 1.15 * plain < again < 1.4 * plain


def test_components_add_up_and_rates_follow() -> None:
    found = run(Grids.of(world_size=64, tp=2, pp=4, vpp=2, global_batch_size=1024))
    assert sum(found.components[name][0] for name in COMPONENTS) == pytest.approx(found.step_seconds[0])
    assert all(found.components[name][0] >= 0 for name in COMPONENTS)
    tokens = 1024 * 4096 / found.step_seconds[0] / 64
    assert found.tokens_per_second_per_gpu[0] == pytest.approx(tokens)
    assert found.low[0] < tokens < found.high[0]
    assert found.model_tflops_per_gpu[0] == pytest.approx(tokens * found.model_flops_per_token / 1e12)


def test_model_flops_are_six_a_parameter_plus_attention() -> None:
    """Llama 3 8B: 6 for each weight but the input embedding, and 6 * layers * width * length for causal attention."""
    weights = 8_030_261_248 - 128_256 * 4096 - 65 * 4096
    attention = 6 * 32 * 4096 * 4096
    assert model_flops_per_token(LLAMA, BASE) == pytest.approx(6 * weights + attention, rel=1e-6)


def test_published_flops_agree() -> None:
    """The vendor prints tokens/s and TFLOP/s: 1633 and 734 for Llama 3 70B at 8192 tokens (26.04, H100)."""
    flops = model_flops_per_token(KNOWLEDGE.models["llama3-70b"].architecture, replace(BASE, seq_length=8192))
    assert flops == pytest.approx(734e12 / 1633, rel=0.01)


def test_no_faster_than_the_peak() -> None:
    for gpu in KNOWLEDGE.gpus.values():
        for precision in ("bf16", "fp8_cs", "nvfp4"):
            settings = replace(BASE, precision=precision)
            found = run(Grids.of(world_size=8, global_batch_size=1024, mbs=2), settings, gpu=gpu)
            assert found.model_tflops_per_gpu[0] * 1e12 < max(gpu.peak_flops.values())


def test_what_costs_time_costs_time() -> None:
    assert step(recompute=Recompute("full")) > step()
    assert step(recompute=Recompute("full", "block", 8)) < step(recompute=Recompute("full"))
    assert step(tp=8, sp=True) > step(tp=1)
    assert step(pp=4) > step(pp=4, vpp=2)  # the bubble
    assert step(gpu=GB200) < step()
    assert step(replace(BASE, precision="fp8_cs")) < step()
    assert step(replace(BASE, tp_comm_overlap=True), tp=4) < step(tp=4)
    windowed = replace(LLAMA, window_size=512)
    assert step(arch=windowed) < step()


def test_experts_within_the_nvlink_domain_are_faster() -> None:
    settings = replace(BASE, precision="fp8_cs", global_batch_size=4096)

    def seconds(gpu, ep: int) -> float:  # type: ignore[no-untyped-def]
        grids = Grids.of(world_size=256, pp=4, ep=ep, global_batch_size=4096)
        return float(run(grids, settings, DEEPSEEK, gpu).components["ep_communication"][0])

    assert seconds(H100, 8) < seconds(H100, 64) / 3
    assert seconds(GB200, 64) < seconds(H100, 64) / 3


def test_a_group_uses_the_link_that_its_ranks_share() -> None:
    one = np.ones(1)
    constants = {"nvlink_efficiency": 1.0, "network_efficiency": 1.0, "all_to_all_efficiency": 1.0}
    assert network.inside(8 * one, one, 8)[0] == 1
    assert network.inside(8 * one, 2 * one, 8)[0] == 0.5
    assert network.inside(4 * one, 8 * one, 8)[0] == 0.25
    near = network.ring_seconds(1e9 * one, 8 * one, one, H100, constants)
    far = network.ring_seconds(1e9 * one, 8 * one, 8 * one, H100, constants)
    assert near[0] == pytest.approx(1e9 * 7 / 8 / H100.nvlink_bandwidth)
    assert far[0] == pytest.approx(1e9 * 7 / 8 / H100.network_bandwidth)
    assert network.point_to_point_seconds(1e9 * one, 8 * one, H100, constants)[0] == pytest.approx(
        1e9 / H100.network_bandwidth
    )


def test_a_flexible_dispatcher_sends_a_token_once_to_a_rank_and_a_domain() -> None:
    one = np.ones(1)
    constants = {"network_efficiency": 1.0, "all_to_all_efficiency": 1.0}
    assert network.copies(4 * one, 1)[0] == pytest.approx(1)
    assert network.copies(4 * one, 1000)[0] == pytest.approx(4)
    across = (8.0, 64 * one, one)
    flex = network.all_to_all_seconds(1e6 * one, *across, True, H100, constants)
    plain = network.all_to_all_seconds(1e6 * one, *across, False, H100, constants)
    assert plain[0] == pytest.approx(1e6 * 8 * 7 / 8 / H100.network_bandwidth)
    assert flex[0] == pytest.approx(1e6 * 8 * (1 - (7 / 8) ** 8) * 7 / 8 / H100.network_bandwidth)


def test_frozen_weights_need_no_gradient() -> None:
    lora = replace(BASE, task="lora")
    assert step(lora) < step()
    assert model_flops_per_token(LLAMA, lora) < 0.75 * model_flops_per_token(LLAMA, BASE)


def test_graphs_take_launches_away() -> None:
    moe = KNOWLEDGE.models["qwen3-30b-a3b"].architecture

    def launch(**change: object) -> float:
        settings = replace(BASE, moe_token_dispatcher_type="flex", **change)  # type: ignore[arg-type]
        grids = Grids.of(world_size=16, ep=8, global_batch_size=1024)
        return float(run(grids, settings, moe, GB200).components["launch"][0])

    none, some = launch(), launch(cuda_graph_impl="transformer_engine", cuda_graph_scope=("attn", "moe_router"))
    assert none > some > launch(cuda_graph_impl="full_iteration") == 0
