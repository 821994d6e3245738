"""Step time of each candidate: compute by module, communication with what overlaps, pipeline bubble, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..architecture import Architecture
from ..knowledge.model import Gpu
from ..memory import calibration as calibration_
from ..memory.estimate import padded_vocab_size
from ..memory.grids import Floats, Grids
from ..memory.layers import Shape, Weights, mamba_sizes, shape, weights
from ..memory.plan import Kind, Stages, layer_kinds, stages
from ..memory.settings import Settings
from . import network

COMPONENTS = (
    "attention",
    "mlp",
    "moe",
    "elementwise",
    "output_layer",
    "recompute",
    "tp_communication",
    "cp_communication",
    "ep_communication",
    "launch",
    "bubble",
    "pp_communication",
    "dp_communication",
    "optimizer",
    "host",
)
CHUNK = 16384


@dataclass(frozen=True)
class TimeEstimate:
    """Step time of each candidate, arrays of shape (N,).

    Attributes:
        step_seconds: one optimizer step.
        tokens_per_second_per_gpu: global batch * sequence length / step / GPUs.
        low, high: tokens/s/GPU; 80 % of measured rows lie between.
        components: seconds by component (:data:`COMPONENTS`), exposed time only; their sum is the step.
        model_flops_per_token: forward and backward, of the whole model, without recompute.
        model_tflops_per_gpu: model FLOPs at the estimated rate.
    """

    step_seconds: Floats
    tokens_per_second_per_gpu: Floats
    low: Floats
    high: Floats
    components: Mapping[str, Floats]
    model_flops_per_token: float
    model_tflops_per_gpu: Floats


def estimate(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu,
    calibration: Mapping[str, float] | None = None,
) -> TimeEstimate:
    """Estimate all candidates of ``grids`` on systems of kind ``gpu``.

    ``calibration``: constants by name; None: those of the knowledge base.
    """
    constants = calibration_.default() if calibration is None else calibration
    parts = [
        _components(arch, settings, grids.take(slice(i, i + CHUNK)), gpu, constants)
        for i in range(0, max(len(grids), 1), CHUNK)
    ]
    components = {name: np.concatenate([p[name] for p in parts]) for name in COMPONENTS}
    step = np.sum(list(components.values()), axis=0)
    tokens = grids.num_microbatches * grids.mbs * grids.dp * float(settings.seq_length)
    rate = tokens / step / grids.world_size
    flops = model_flops_per_token(arch, settings)
    return TimeEstimate(
        step_seconds=step,
        tokens_per_second_per_gpu=rate,
        low=rate * constants["time_range_low"],
        high=rate * constants["time_range_high"],
        components=components,
        model_flops_per_token=flops,
        model_tflops_per_gpu=rate * flops / 1e12,
    )


@dataclass(frozen=True)
class LayerWork:
    """Work of one layer for one micro-batch on one rank, shape (N,).

    FLOPs are those of the forward pass; the backward pass of a GEMM takes twice as many.

    Attributes:
        attention_gemm, mlp_gemm, moe_gemm: FLOPs of projections.
        attention_core: FLOPs of scores and values (causal half).
        attention_bytes, mlp_bytes, moe_bytes: operands and results of those GEMMs, forward pass.
        elementwise_bytes: read and written outside GEMMs and attention, forward pass.
    """

    attention_gemm: Floats
    attention_core: Floats
    mlp_gemm: Floats
    moe_gemm: Floats
    gemm_bytes: Floats
    moe_gemm_bytes: Floats
    elementwise_bytes: Floats
    scan_bytes: Floats


def layer_work(arch: Architecture, settings: Settings, kind: Kind, s: Shape, w: Weights) -> LayerWork:
    """The work of one layer."""
    zero = np.zeros_like(s.tp)
    e = float(settings.element_bytes)
    h = arch.hidden_size
    expert = w.expert_linear
    shared = zero
    if kind.mlp == "dense":
        shared = (3 if arch.gated_linear_unit else 2) * h * arch.mlp_hidden_size / s.tp
    elif kind.mlp == "moe" and arch.moe_shared_expert_intermediate_size:
        shared = (3 if arch.gated_linear_unit else 2) * h * arch.moe_shared_expert_intermediate_size / s.tp
    if kind.mlp == "moe" and arch.moe_latent_size:
        shared = shared + 2 * h * arch.moe_latent_size
    mixer = np.maximum(w.dense_linear - shared, 0)
    core = zero
    window = float(arch.window_size or 0) if kind.mixer == "windowed" else 0.0
    if kind.mixer in ("attention", "windowed"):
        heads = arch.num_attention_heads / s.tp
        if arch.multi_latent_attention:
            widths = (arch.qk_head_dim or 0) + (arch.qk_pos_emb_head_dim or 0) + (arch.v_head_dim or 0)
        else:
            widths = 2 * arch.head_dim
        looked_at = settings.seq_length / 2
        if window and window < settings.seq_length:
            looked_at = window - window * window / (2 * settings.seq_length)
        core = 2 * s.tokens * heads * widths * looked_at
    scan = zero
    if kind.mixer == "mamba":
        inner, bc, heads_ = mamba_sizes(arch)
        scan = s.tokens * (2 * inner + bc + heads_) / s.tp * e * 4
        core = 2 * s.tokens * (inner / s.tp) * ((arch.mamba_state_dim or 128) * 2 + 256)
    elif kind.mixer == "linear":
        keys = (arch.linear_num_key_heads or 0) * (arch.linear_key_head_dim or 0)
        values = (arch.linear_num_value_heads or 0) * (arch.linear_value_head_dim or 0)
        scan = s.tokens * (2 * keys + 2 * values) / s.tp * e * 4
        core = 2 * s.tokens * (values / s.tp) * ((arch.linear_key_head_dim or 128) * 2 + 128)
    moe_flops, moe_bytes = zero, zero
    streams = 2.0 * ((kind.mixer is not None) + (kind.mlp is not None))  # norm, residual
    elementwise = streams * 2 * s.sp_tokens * h * e
    gate = 2 if arch.gated_linear_unit else 1
    if kind.mlp == "dense":
        elementwise = elementwise + (gate + 1) * s.tokens * arch.mlp_hidden_size / s.tp * e
    if kind.mlp == "moe":
        width = arch.moe_ffn_hidden_size or arch.mlp_hidden_size
        inner_ = arch.moe_latent_size or h
        moe_flops = 2 * s.routed * (gate + 1) * inner_ * width / s.etp
        moe_bytes = expert * e + s.routed * (2 * inner_ + (gate + 1) * width / s.etp) * e
        elementwise = elementwise + (gate + 1) * s.routed * width / s.etp * e
        elementwise = elementwise + 4 * s.routed * inner_ * e + s.sp_tokens * float(arch.num_moe_experts or 0) * 12
    return LayerWork(
        attention_gemm=2 * s.tokens * mixer if kind.mixer else zero,
        attention_core=core,
        mlp_gemm=2 * s.tokens * shared,
        moe_gemm=moe_flops,
        gemm_bytes=w.dense_linear * e + s.tokens * 4 * h * e,
        moe_gemm_bytes=moe_bytes,
        elementwise_bytes=elementwise,
        scan_bytes=scan,
    )


def peak(gpu: Gpu, precision: str) -> float:
    """Dense FLOP/s of GEMMs in a training precision; where the GPU lacks it, of the next wider one."""
    keys = {"nvfp4": ("fp4", "fp8", "bf16"), "bf16": ("bf16",), "fp16": ("fp16", "bf16"), "fp32": ("tf32", "bf16")}
    for key in keys.get(precision, ("fp8", "bf16")):
        if key in gpu.peak_flops:
            return gpu.peak_flops[key]
    return next(iter(gpu.peak_flops.values()))


def generation(gpu: Gpu) -> str:
    """Constants differ between Hopper and before, and Blackwell and later."""
    return "blackwell" if gpu.compute_capability >= 100 else "hopper"


def model_flops_per_token(arch: Architecture, settings: Settings) -> float:
    """Forward and backward FLOPs of one token through the whole model, causal attention counted once."""
    one = Grids.of(world_size=1, num_microbatches=1)
    s = shape(arch, settings, one)
    total = 0.0
    tokens = float(settings.seq_length)
    kinds = layer_kinds(arch)
    for kind in dict.fromkeys(kinds):
        work = layer_work(arch, settings, kind, s, weights(arch, kind, s))
        flops = work.attention_gemm + work.attention_core + work.mlp_gemm + work.moe_gemm
        total += float(flops[0]) * (kinds.count(kind) + (arch.mtp_num_layers or 0) * (kind == kinds[-1]))
    total += 2 * tokens * arch.vocab_size * arch.hidden_size * (1 + (arch.mtp_num_layers or 0))
    return 3 * total / tokens


def _components(
    arch: Architecture, settings: Settings, grids: Grids, gpu: Gpu, c: Mapping[str, float]
) -> dict[str, Floats]:
    s = shape(arch, settings, grids)
    st = stages(arch, grids)
    per_kind = []
    for kind in st.kinds:
        w = weights(arch, kind, s)
        per_kind.append((w, _layer_seconds(arch, settings, kind, s, grids, gpu, c, w)))
    head = _output_seconds(arch, settings, s, gpu, c)
    worst: dict[str, Floats] | None = None
    total_worst = np.zeros(len(grids))
    mean = np.zeros(len(grids))
    kinds = layer_kinds(arch)
    for (_, seconds), kind in zip(per_kind, st.kinds, strict=True):
        mean = mean + sum(seconds.values(), np.zeros(len(grids))) * kinds.count(kind)
    mean = (mean + head) / grids.pp
    for slot in range(st.rank.shape[0]):
        found = _stage_seconds(st, slot, per_kind, head)
        total = sum(found.values(), np.zeros(len(grids)))
        if worst is None:
            worst, total_worst = found, total
        else:
            better = total > total_worst
            worst = {name: np.where(better, found[name], worst[name]) for name in worst}
            total_worst = np.maximum(total, total_worst)
    assert worst is not None
    m = grids.num_microbatches.astype(float)
    out = {name: worst.get(name, np.zeros(len(grids))) * m for name in COMPONENTS}
    out["bubble"] = (grids.pp - 1) / np.maximum(grids.vpp, 1) * mean
    stage_bytes = s.sp_tokens * arch.hidden_size * float(settings.element_bytes)
    hop = network.point_to_point_seconds(stage_bytes, grids.world_size / grids.pp, gpu, c)
    exposed = np.where((grids.vpp > 1) & settings.overlap_p2p_comm, c["pp_exposed"], 1.0)
    out["pp_communication"] = np.where(grids.pp > 1, 2 * hop * m * grids.vpp * exposed, 0)
    parameters = _parameters(arch, grids, s, st, per_kind)
    out.update(_step_seconds(settings, grids, gpu, c, parameters, sum(out.values(), np.zeros(len(grids))), m))
    return out


def _layer_seconds(
    arch: Architecture,
    settings: Settings,
    kind: Kind,
    s: Shape,
    grids: Grids,
    gpu: Gpu,
    c: Mapping[str, float],
    w: Weights,
) -> dict[str, Floats]:
    """Seconds of one layer, forward and backward, for one micro-batch."""
    g = generation(gpu)
    work = layer_work(arch, settings, kind, s, w)
    fast = peak(gpu, settings.precision)
    slow = peak(gpu, "bf16")
    low = settings.low_precision
    gemm = fast * c[f"gemm_efficiency_{_precision_class(settings)}_{g}"]
    grouped = gemm * c["grouped_gemm_efficiency"]
    core = slow * c[f"attention_efficiency_{g}"]
    memory = gpu.memory_bandwidth * c["memory_efficiency"]
    quantise = 1.0 + (c["quantise_passes"] if low else 0.0)
    zero = np.zeros_like(s.tp)
    full = np.array([float(r.granularity == "full") for r in grids.recomputes])[grids.recompute]
    attention_forward = work.attention_gemm / gemm + work.attention_core / core
    mlp_forward = work.mlp_gemm / gemm
    moe_forward = work.moe_gemm / grouped + work.moe_gemm_bytes / memory
    elementwise_forward = (work.elementwise_bytes + work.gemm_bytes) * quantise / memory + work.scan_bytes / memory
    forward = attention_forward + mlp_forward + moe_forward + elementwise_forward
    again = full * forward
    again = again + s.flags["core_attn"] * work.attention_core / core
    again = again + s.flags["mlp"] * (mlp_forward if kind.mlp == "dense" else zero)
    again = again + s.flags["moe"] * moe_forward
    out = {
        "attention": 3 * work.attention_gemm / gemm + 3.5 * work.attention_core / core,
        "mlp": 3 * mlp_forward,
        "moe": 3 * moe_forward,
        "elementwise": 2.5 * elementwise_forward,
        "recompute": again,
    }
    e = float(settings.element_bytes)
    h = arch.hidden_size
    # TP: gather and scatter around attention and MLP, forward and backward, and one gather for weight gradients
    blocks = (
        float(kind.mixer is not None)
        + float(kind.mlp == "dense")
        + (1.0 if kind.mlp == "moe" and arch.moe_shared_expert_intermediate_size else 0.0)
    )
    one = network.ring_seconds(s.tokens * h * e, s.tp, np.ones_like(s.tp), gpu, c)
    exposed = c["tp_exposed_overlapped"] if settings.tp_comm_overlap else 1.0
    out["tp_communication"] = np.where(s.tp > 1, 5 * blocks * one * exposed, 0)
    # CP: keys and values travel around the ring, forward once, backward twice
    if kind.mixer in ("attention", "windowed"):
        groups = np.maximum(arch.query_groups, s.tp) / s.tp
        kv = s.tokens * 2 * groups * arch.head_dim * e
        ring = network.ring_seconds(kv * s.cp, s.cp, s.tp, gpu, c)
        out["cp_communication"] = np.where(s.cp > 1, 3 * ring * c["cp_exposed"], 0)
    else:
        out["cp_communication"] = zero
    if kind.mlp == "moe":
        inner = arch.moe_latent_size or h
        sent = s.sent
        if settings.moe_token_dispatcher_type == "flex":
            # a token goes to a rank once, however many of its experts live there
            reach = s.ep * (1 - (1 - 1 / s.ep) ** float(arch.moe_router_topk or 1))
            sent = s.sp_tokens * np.minimum(reach, float(arch.moe_router_topk or 1))
        dispatch = network.all_to_all_seconds(sent * inner * e, s.ep, s.etp, gpu, c)
        exposed_ep = c["ep_exposed_overlapped"] if settings.overlap_moe_expert_parallel_comm else 1.0
        out["ep_communication"] = np.where(s.ep > 1, 4 * dispatch * exposed_ep, 0)
        if settings.moe_token_dispatcher_type == "allgather":
            gather = network.ring_seconds(
                s.sp_tokens * s.ep * s.etp * inner * e, s.ep * s.etp, np.ones_like(s.tp), gpu, c
            )
            out["ep_communication"] = np.where(s.ep * s.etp > 1, 4 * gather, 0)
    else:
        out["ep_communication"] = zero
    busy = sum(out.values(), zero)
    host = c["launch_seconds_moe_layer"] if kind.mlp == "moe" else c["launch_seconds_layer"]
    host *= _uncaptured(settings, kind, c)
    out["launch"] = np.maximum(host - busy, 0)
    return out


def _uncaptured(settings: Settings, kind: Kind, c: Mapping[str, float]) -> float:
    """Share of a layer's kernel launches that CUDA graphs don't take over."""
    scope = settings.cuda_graph_scope
    if settings.cuda_graph_impl == "none":
        return 1.0
    if settings.cuda_graph_impl == "full_iteration" or "full_iteration" in scope or not scope:
        return 0.0
    if kind.mlp == "moe":
        return 1 - c["graph_share_attention"] * ("attn" in scope) - c["graph_share_router"] * ("moe_router" in scope)
    return 1 - 0.5 * ("attn" in scope) - 0.5 * ("mlp" in scope)


def _precision_class(settings: Settings) -> str:
    return "fp4" if settings.precision == "nvfp4" else "fp8" if settings.low_precision else "bf16"


def _output_seconds(arch: Architecture, settings: Settings, s: Shape, gpu: Gpu, c: Mapping[str, float]) -> Floats:
    """Output layer (always 16 bits) and loss, forward and backward, for one micro-batch; MTP depths included."""
    vocab = padded_vocab_size(arch, s.tp) / s.tp
    flops = 2 * s.tokens * vocab * arch.hidden_size
    gemm = peak(gpu, "bf16") * c[f"gemm_efficiency_bf16_{generation(gpu)}"]
    loss = s.tokens * vocab * 8.0 / (gpu.memory_bandwidth * c["memory_efficiency"])
    return np.asarray((3 * flops / gemm + loss) * (1 + (arch.mtp_num_layers or 0)))


def _stage_seconds(
    st: Stages, slot: int, per_kind: list[tuple[Weights, dict[str, Floats]]], head: Floats
) -> dict[str, Floats]:
    out: dict[str, Floats] = {"output_layer": head * st.loss[slot]}
    last = len(per_kind) - 1
    for k, (_, seconds) in enumerate(per_kind):
        n = st.layers[slot, k] + (st.mtp[slot] if k == last else 0)
        for name, value in seconds.items():
            out[name] = out.get(name, 0) + n * value
    return out


def _parameters(
    arch: Architecture, grids: Grids, s: Shape, st: Stages, per_kind: list[tuple[Weights, dict[str, Floats]]]
) -> tuple[Floats, Floats]:
    """(dense, expert) parameters of the fullest rank."""
    dense = np.zeros(len(grids))
    expert = np.zeros(len(grids))
    for slot in range(st.rank.shape[0]):
        d = (st.embedding[slot] + st.loss[slot]) * padded_vocab_size(arch, s.tp) / s.tp * arch.hidden_size
        x = np.zeros(len(grids))
        for k, (w, _) in enumerate(per_kind):
            d, x = d + st.layers[slot, k] * w.dense, x + st.layers[slot, k] * w.expert
        dense, expert = np.maximum(dense, d), np.maximum(expert, x)
    return dense, expert


def _step_seconds(
    settings: Settings,
    grids: Grids,
    gpu: Gpu,
    c: Mapping[str, float],
    parameters: tuple[Floats, Floats],
    compute: Floats,
    microbatches: Floats,
) -> dict[str, Floats]:
    """What happens once a step: gradients and parameters between replicas, the optimizer, the host."""
    dense, expert = parameters
    e = float(settings.element_bytes)
    gradient = 4.0 if settings.grad_reduce_in_fp32 or settings.precision == "fp32" else e
    replicas = (grids.dp * grids.cp).astype(float)
    expert_replicas = grids.edp.astype(float)
    one = np.ones_like(replicas)
    passes = 1.0 if not settings.use_megatron_fsdp else 1.0 + microbatches
    stride = grids.tp.astype(float)
    expert_stride = (grids.etp * grids.ep).astype(float)
    traffic = gradient + e * passes
    seconds = network.ring_seconds(dense * traffic, replicas, stride, gpu, c) + network.ring_seconds(
        expert * traffic, expert_replicas, expert_stride, gpu, c
    )
    if settings.task == "lora":
        seconds = seconds * 0
    # With overlap, transfers hide behind the backward pass of the last and the forward pass of the first micro-batch.
    hidden = compute / np.maximum(microbatches, 1) * c["dp_hidden"] if settings.overlap_grad_reduce else 0 * one
    if settings.use_megatron_fsdp:
        hidden = compute * c["dp_hidden"]
    exposed = np.maximum(seconds - hidden, seconds * c["dp_exposed"])
    owned = dense / replicas + expert / expert_replicas if settings.use_distributed_optimizer else dense + expert
    if settings.task == "lora":
        owned = owned * 0
    optimizer = owned * (28 + gradient) / (gpu.memory_bandwidth * c["memory_efficiency"])
    return {
        "dp_communication": exposed,
        "optimizer": optimizer,
        "host": one * c["host_seconds_per_step"],
    }
