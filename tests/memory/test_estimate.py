"""The memory estimate: against plain loops, and the properties that any estimate must have."""

from __future__ import annotations

from dataclasses import replace

import loops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mbridge_advisor.architecture import Architecture
from mbridge_advisor.errors import RequestError
from mbridge_advisor.memory import (
    COMPONENTS,
    MOMENTS,
    Grids,
    Recompute,
    Settings,
    StageLayout,
    estimate,
    estimate_stage,
)
from mbridge_advisor.memory.plan import in_flight, unique_columns

CONSTANTS = {"fragmentation": 0.08, "outside_allocator_bytes": 2e9, "communicator_bytes": 5e8}
DENSE = Architecture(
    num_layers=16,
    hidden_size=1024,
    num_attention_heads=16,
    vocab_size=32000,
    ffn_hidden_size=4096,
    num_query_groups=8,
    kv_channels=64,
)
MOE = replace(
    DENSE,
    num_moe_experts=16,
    moe_router_topk=2,
    moe_ffn_hidden_size=512,
    moe_shared_expert_intermediate_size=1024,
    moe_layer_freq=(0,) + (1,) * 15,
)
RECOMPUTES = (
    Recompute(),
    Recompute("selective", modules=("core_attn", "mlp")),
    Recompute("full", "uniform", 1),
    Recompute("full", "block", 2),
)
powers = st.sampled_from([1, 2, 4])


def architectures() -> st.SearchStrategy[Architecture]:
    return st.builds(
        lambda layers, moe, mla, bias, norm, tied, positions, gated, qk: replace(
            DENSE,
            num_layers=layers,
            add_bias_linear=bias,
            normalization=norm,
            gated_linear_unit=gated,
            qk_layernorm=qk,
            share_embeddings_and_output_weights=tied,
            position_embedding_type=positions,
            max_position_embeddings=2048,
            **(
                {
                    "num_moe_experts": 16,
                    "moe_router_topk": 2,
                    "moe_ffn_hidden_size": 512,
                    "moe_shared_expert_intermediate_size": 1024,
                    "moe_layer_freq": 2,
                }
                if moe
                else {}
            ),
            **(
                {
                    "multi_latent_attention": True,
                    "q_lora_rank": 256,
                    "kv_lora_rank": 128,
                    "qk_head_dim": 64,
                    "qk_pos_emb_head_dim": 32,
                    "v_head_dim": 64,
                }
                if mla
                else {}
            ),
        ),
        st.sampled_from([8, 16]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["RMSNorm", "LayerNorm"]),
        st.booleans(),
        st.sampled_from(["rope", "learned_absolute"]),
        st.booleans(),
        st.booleans(),
    )


def random_grids(n: int, seed: int) -> Grids:
    r = np.random.default_rng(seed)
    pp = 2 ** r.integers(0, 4, n)
    return Grids.of(
        world_size=256,
        global_batch_size=1024,
        tp=2 ** r.integers(0, 4, n),
        pp=pp,
        vpp=np.where(pp > 1, r.choice([1, 2], n), 1),
        cp=2 ** r.integers(0, 2, n),
        ep=2 ** r.integers(0, 4, n),
        mbs=2 ** r.integers(0, 3, n),
        recompute=RECOMPUTES,
        recompute_index=r.integers(0, len(RECOMPUTES), n),
    )


@settings(max_examples=60, deadline=None)
@given(architectures(), powers, powers, st.sampled_from([1, 2]), powers, powers, powers, st.booleans(), st.booleans())
def test_static_memory_is_that_of_the_tensors(
    arch: Architecture, tp: int, pp: int, vpp: int, cp: int, ep: int, etp: int, distributed: bool, fp32: bool
) -> None:
    vpp = vpp if pp > 1 else 1
    world = 4 * pp * np.lcm(tp * cp, ep * etp)
    grids = Grids.of(world_size=world, tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, etp=etp, num_microbatches=8)
    common = Settings(seq_length=2048, use_distributed_optimizer=distributed, grad_reduce_in_fp32=fp32)
    for stage in range(pp):
        expected = loops.static_bytes(
            loops.rank(arch, stage, pp, vpp, tp, ep, etp),
            dp=int(grids.dp[0]),
            cp=cp,
            edp=int(grids.edp[0]),
            distributed=distributed,
            fp32_gradients=fp32,
        )
        found = estimate_stage(arch, common, grids, stage, calibration=CONSTANTS)
        for name, value in expected.items():
            assert found.components[name][0] == pytest.approx(value, rel=1e-12), (name, stage)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 6), st.integers(0, 20))
def test_micro_batches_in_flight_are_those_of_the_schedule(pp: int, vpp: int, groups: int, extra: int) -> None:
    vpp = vpp if pp > 1 else 1
    m = groups * pp + (extra if vpp == 1 else 0)
    table = in_flight(pp, vpp, pp, m, 0)
    for stage in range(pp):
        assert list(table[stage]) == loops.kept_micro_batches(stage, pp, vpp, pp, m)


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "moe"])
def test_one_candidate_is_a_row_of_many(arch: Architecture) -> None:
    grids = random_grids(300, seed=1)
    common = Settings(seq_length=4096, global_batch_size=1024)
    many = estimate(arch, common, grids, calibration=CONSTANTS)
    for i in range(0, 300, 7):
        one = estimate(arch, common, grids.take(slice(i, i + 1)), calibration=CONSTANTS)
        assert one.total[0] == pytest.approx(many.total[i], rel=1e-12)
        assert (one.stage[0], one.moment[0]) == (many.stage[i], many.moment[i])
        for name in COMPONENTS:
            assert one.components[name][0] == pytest.approx(many.components[name][i], rel=1e-9, abs=1e-3), name


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "moe"])
def test_the_peak_is_the_worst_stage_and_the_sum_of_its_components(arch: Architecture) -> None:
    common = Settings(seq_length=2048, global_batch_size=256)
    for pp, vpp in ((1, 1), (4, 1), (4, 2), (8, 1)):
        for recompute in RECOMPUTES:
            grids = Grids.of(
                world_size=64, tp=2, pp=pp, vpp=vpp, ep=2, mbs=2, global_batch_size=256, recompute=recompute
            )
            found = estimate(arch, common, grids, calibration=CONSTANTS)
            stages = [estimate_stage(arch, common, grids, p, calibration=CONSTANTS).total[0] for p in range(pp)]
            assert found.total[0] == pytest.approx(max(stages))
            assert found.stage[0] == int(np.argmax(stages))
            assert sum(found.components[name][0] for name in COMPONENTS) == pytest.approx(found.total[0])
            assert 0 <= found.moment[0] < len(MOMENTS)
            assert found.end_of_step[0] <= found.total[0]


def compare(arch: Architecture, common: Settings, fewer: Grids, more: Grids, components: tuple[str, ...] = ()) -> None:
    """``more`` needs at least what ``fewer`` does."""
    for name in components:
        low, high = (estimate_stage(arch, common, g, 0, calibration=CONSTANTS) for g in (fewer, more))
        assert (high.components[name] >= low.components[name] - 1).all(), name
    if not components:
        low, high = (estimate(arch, common, g, calibration=CONSTANTS) for g in (fewer, more))
        assert (high.total >= low.total - 1).all()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([DENSE, MOE]), powers, powers, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_sharding_never_costs_static_memory(arch: Architecture, tp: int, pp: int, m: int, mbs: int) -> None:
    common = Settings(seq_length=2048)

    def grid(**change: int) -> Grids:
        return Grids.of(**{"world_size": 128, "tp": tp, "pp": pp, "mbs": mbs, "num_microbatches": m, **change})

    compare(
        arch, common, grid(tp=2 * tp, dp=8), grid(dp=8), ("weights", "gradients", "main_params", "optimizer_states")
    )
    compare(arch, common, grid(world_size=256), grid(), ("weights", "main_params", "optimizer_states"))
    compare(arch, common, grid(), grid(mbs=2 * mbs))
    compare(arch, common, grid(), grid(num_microbatches=m + 1))
    compare(arch, common, grid(cp=2), grid())
    if arch.is_moe:
        compare(arch, common, grid(ep=4), grid(), ("weights", "gradients"))


@pytest.mark.parametrize("module", ["core_attn", "mlp", "moe", "moe_act", "layernorm", "shared_experts"])
def test_recompute_never_keeps_more(module: str) -> None:
    common = Settings(seq_length=4096, attention_backend="unfused")
    kept = ("activations_norm", "activations_attention", "activations_mlp", "activations_moe")
    for arch in (DENSE, MOE):
        grids = [
            Grids.of(world_size=64, pp=4, tp=2, num_microbatches=8, recompute=r)
            for r in (Recompute("full", "uniform", 1), Recompute("selective", modules=(module,)), Recompute())
        ]
        full, some, none = (estimate_stage(arch, common, g, 1, calibration=CONSTANTS) for g in grids)
        for name in kept:
            assert some.components[name][0] <= none.components[name][0]
        assert sum(full.components[n][0] for n in kept) < 0.2 * sum(none.components[n][0] for n in kept)


def test_layernorm_recompute_works_on_norms_of_their_own_alone() -> None:
    """Transformer Engine fuses the norm into the next linear layer, except before MLA and before a MoE layer."""
    grids = [
        Grids.of(world_size=64, pp=2, tp=2, num_microbatches=8, recompute=r)
        for r in (Recompute("selective", modules=("layernorm",)), Recompute())
    ]

    def saved(arch: Architecture, **change: object) -> float:
        common = replace(Settings(seq_length=4096), **change)  # type: ignore[arg-type]
        some, none = (estimate(arch, common, g, calibration=CONSTANTS).components["activations_norm"][0] for g in grids)
        return float(none - some)

    assert saved(DENSE) == 0
    assert saved(DENSE, transformer_impl="local") > 0
    assert saved(MOE) > 0
    captured: dict[str, object] = {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ("attn", "moe_router")}
    assert saved(MOE, **captured) == 0
    captured["cuda_graph_scope"] = ("moe_router", "moe_preprocess")
    assert saved(MOE, **captured) > 0
    assert saved(MOE, **captured, moe_token_dispatcher_type="flex") == 0


def test_captured_modules_need_a_second_pool_unless_segments_expand() -> None:
    grids = Grids.of(world_size=64, tp=2, pp=2, num_microbatches=8)
    plain = Settings(seq_length=4096)
    graph = replace(plain, cuda_graph_impl="transformer_engine", cuda_graph_scope=("mlp",))
    expandable = replace(graph, pytorch_cuda_alloc_conf="expandable_segments:True")
    found = [estimate(DENSE, s, grids, calibration=CONSTANTS) for s in (plain, graph, expandable)]
    assert len({f.total[0] for f in found}) == 1
    assert found[1].reserved[0] - found[0].reserved[0] == pytest.approx(found[0].components["activations_mlp"][0])
    assert found[2].reserved[0] == found[0].reserved[0]


def test_settings_act_as_they_should() -> None:
    grids = Grids.of(world_size=64, tp=2, pp=2, ep=4, mbs=2, num_microbatches=8)
    base = Settings(seq_length=4096)

    def total(**change: object) -> float:
        return float(estimate(MOE, replace(base, **change), grids, calibration=CONSTANTS).total[0])  # type: ignore[arg-type]

    assert total(use_distributed_optimizer=False) > total()
    assert total(grad_reduce_in_fp32=False) < total()
    assert total(cross_entropy_loss_fusion=False) >= total()
    assert total(attention_backend="unfused") > total()
    assert total(use_precision_aware_optimizer=True, exp_avg_dtype="bf16", exp_avg_sq_dtype="bf16") < total()
    assert total(precision="fp8_cs") < total()
    assert total(task="lora") < total()
    assert total(optimizer="muon") < total()
    assert total(optimizer_cpu_offload=True) < total()
    assert total(use_megatron_fsdp=True) < total()
    assert total(router_imbalance=1.5) > total()
    assert total(hidden_dropout=0.1) > total()


def test_a_layout_is_honoured() -> None:
    arch = replace(DENSE, num_layers=13)
    layout = StageLayout.parse("Et*3|t*4|(ttt|)*2L")
    assert layout.layers == (3, 4, 3, 3, 0)
    assert layout.loss == 4
    grids = Grids.of(world_size=20, pp=5, num_microbatches=5, layout=layout)
    weights = [
        estimate_stage(arch, Settings(), grids, p, calibration=CONSTANTS).components["weights"][0] for p in range(5)
    ]
    assert weights[1] / weights[2] == pytest.approx(4 / 3)
    assert weights[4] < weights[0]


def test_invalid_candidates_get_a_finite_figure() -> None:
    grids = Grids.of(world_size=7, tp=3, pp=5, vpp=3, num_microbatches=1)
    found = estimate(DENSE, Settings(), grids, calibration=CONSTANTS)
    assert np.isfinite(found.total).all()
    assert (found.total > 0).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from([3, 10**6, 10**9]), st.integers(0, 10**6))
def test_distinct_columns_are_found(n: int, rows: int, spread: int, seed: int) -> None:
    columns = np.random.default_rng(seed).integers(-1, spread, (rows, n)) // (spread // 3)
    first, inverse = unique_columns(columns * (spread // 3))
    assert (columns[:, first][:, inverse] == columns).all()
    assert len(first) == len(np.unique(columns, axis=1).T)


def test_verdicts_are_ordered() -> None:
    grids = Grids.of(world_size=8, num_microbatches=8)
    found = estimate(DENSE, Settings(), grids, calibration=CONSTANTS)
    need, least = float(found.device[0]), float(found.total[0] + found.outside_allocator[0])
    assert found.verdict(need + 1)[0] == 0
    assert found.verdict((need + least) / 2)[0] == 1
    assert found.verdict(least - 1)[0] == 2


def test_bad_arguments_name_the_field() -> None:
    with pytest.raises(RequestError, match="tp"):
        Grids.of(world_size=8, tp=0, num_microbatches=1)
    with pytest.raises(RequestError, match="global_batch_size"):
        Grids.of(world_size=8)
    with pytest.raises(RequestError, match="precision"):
        Settings(precision="fp7")
    with pytest.raises(RequestError, match="recompute_granularity"):
        Recompute("some")
