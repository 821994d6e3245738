"""One decoder layer: parameters on a rank, and bytes that a micro-batch leaves there for the backward pass.

All functions take and return arrays that broadcast over the candidates. Tensors are those that autograd keeps in
Megatron Core with Transformer Engine (``megatron/core/transformer``, ``transformer_engine/pytorch/module``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..architecture import Architecture
from .grids import Floats, Grids
from .plan import Kind
from .settings import DTYPE_BYTES, Settings


@dataclass(frozen=True)
class Weights:
    """Parameters of something on one rank, shape (N,).

    Attributes:
        dense: sharded like dense parameters (optimizer over DP * CP).
        expert: routed experts (optimizer over EDP).
        dense_linear, expert_linear: the part that 8-bit parameters can hold (weights of TE linear layers).
    """

    dense: Floats
    expert: Floats
    dense_linear: Floats
    expert_linear: Floats


@dataclass(frozen=True)
class Shape:
    """Columns of the candidates that a layer's tensors depend on, as floats of shape (N,), and recompute flags.

    Attributes:
        tokens: of a micro-batch on one context-parallel rank.
        sp_tokens: the same divided by TP where sequence parallelism is on.
        routed: tokens that the rank's experts process: sent here by all ranks, top-k times.
        sent: token copies that the rank sends: its tokens times top-k.
        flags: recompute module -> 1.0 where it is recomputed.
    """

    tp: Floats
    cp: Floats
    ep: Floats
    etp: Floats
    tokens: Floats
    sp_tokens: Floats
    routed: Floats
    sent: Floats
    seq: Floats
    flags: dict[str, Floats]


RECOMPUTE_MODULES = ("core_attn", "mlp", "moe", "moe_act", "shared_experts", "layernorm", "mla_up_proj")


def shape(arch: Architecture, settings: Settings, grids: Grids) -> Shape:
    """The columns that layers need, from the grids."""
    tp, cp = grids.tp.astype(float), grids.cp.astype(float)
    ep, etp = grids.ep.astype(float), grids.etp.astype(float)
    seq = settings.seq_length / cp
    tokens = grids.mbs * seq
    sp_tokens = np.where(grids.sp, tokens / tp, tokens)
    topk = float(arch.moe_router_topk or 0)
    # Routing works on the tokens that a TP rank holds under SP; without SP (TP 1) on all of them.
    capacity = settings.moe_expert_capacity_factor
    load = settings.router_imbalance if capacity is None else min(capacity, 1.0)
    if settings.moe_pad_expert_input_to_capacity and capacity is not None:
        load = capacity
    sent = sp_tokens * topk * (1.0 if capacity is None else load)
    routed = sp_tokens * topk * load * etp
    flags = {
        m: np.array([float(r.has(m)) for r in grids.recomputes])[grids.recompute] for m in RECOMPUTE_MODULES
    }
    return Shape(tp, cp, ep, etp, tokens, sp_tokens, routed, sent, seq, flags)


def norm_parameters(arch: Architecture, size: float) -> float:
    """Parameters of one norm: a scale, for LayerNorm a bias too."""
    return size * (2 if arch.normalization == "LayerNorm" else 1)


def _mlp(arch: Architecture, width: float, split: Floats) -> tuple[Floats, Floats]:
    """(all, linear weights) of an MLP of the given width divided by ``split``."""
    gate = 2 if arch.gated_linear_unit else 1
    linear = (gate + 1) * arch.hidden_size * width / split
    bias = gate * width / split + arch.hidden_size if arch.add_bias_linear else np.zeros_like(split)
    return linear + bias, linear


def weights(arch: Architecture, kind: Kind, s: Shape) -> Weights:
    """Parameters of one layer on one rank."""
    h = arch.hidden_size
    zero = np.zeros_like(s.tp)
    dense, linear, expert, expert_linear = zero.copy(), zero.copy(), zero.copy(), zero.copy()
    if kind.mixer in ("attention", "windowed"):
        all_, lin = _attention_weights(arch, s.tp)
        dense, linear = dense + all_, linear + lin
    elif kind.mixer == "linear":
        all_, lin = _linear_attention_weights(arch, s.tp)
        dense, linear = dense + all_, linear + lin
    elif kind.mixer == "mamba":
        all_, lin = _mamba_weights(arch, s.tp)
        dense, linear = dense + all_, linear + lin
    if kind.mixer is not None:
        dense = dense + norm_parameters(arch, h) * (2 if arch.post_block_norms else 1)
    if kind.mlp is not None:
        dense = dense + norm_parameters(arch, h) * (2 if arch.post_block_norms else 1)
    if kind.mlp == "dense":
        all_, lin = _mlp(arch, arch.mlp_hidden_size, s.tp)
        dense, linear = dense + all_, linear + lin
    elif kind.mlp == "moe":
        experts = float(arch.num_moe_experts or 0)
        dense = dense + h * experts + (experts if arch.moe_router_bias else 0)
        width = arch.moe_ffn_hidden_size or arch.mlp_hidden_size
        inner = arch.moe_latent_size or h
        gate = 2 if arch.gated_linear_unit else 1
        one = (gate + 1) * inner * width / s.etp
        bias = gate * width / s.etp + inner if arch.add_bias_linear else zero
        expert_linear = one * experts / s.ep
        expert = (one + bias) * experts / s.ep
        if arch.moe_latent_size:
            dense, linear = dense + 2 * h * inner, linear + 2 * h * inner
        if arch.moe_shared_expert_intermediate_size:
            all_, lin = _mlp(arch, arch.moe_shared_expert_intermediate_size, s.tp)
            dense, linear = dense + all_, linear + lin
            if arch.moe_shared_expert_gate:
                dense = dense + h
    return Weights(dense, expert, linear, expert_linear)


def _attention_weights(arch: Architecture, tp: Floats) -> tuple[Floats, Floats]:
    h, heads, d = arch.hidden_size, arch.num_attention_heads, arch.head_dim
    bias: Floats = np.zeros_like(tp)
    if arch.multi_latent_attention:
        rope, nope, value = arch.qk_pos_emb_head_dim or 0, arch.qk_head_dim or 0, arch.v_head_dim or 0
        kv = arch.kv_lora_rank or 0
        linear = (h * (kv + rope) + heads * kv * (nope + value) / tp + heads * value * h / tp)
        other = norm_parameters(arch, kv)
        if arch.q_lora_rank:
            linear = linear + h * arch.q_lora_rank + arch.q_lora_rank * heads * (nope + rope) / tp
            other += norm_parameters(arch, arch.q_lora_rank)
        else:
            linear = linear + h * heads * (nope + rope) / tp
        if arch.add_bias_linear:
            bias = bias + h
        return linear + bias + other, linear
    groups = np.maximum(arch.query_groups, tp)  # below TP groups are copied (Core 0.16 on)
    queries = heads * (2 if arch.attention_output_gate else 1)
    width = (queries + 2 * groups) * d / tp
    linear = h * width + h * heads * d / tp
    if arch.add_bias_linear or arch.add_qkv_bias:
        bias = bias + width
    if arch.add_bias_linear:
        bias = bias + h
    other = 2 * norm_parameters(arch, d) if arch.qk_layernorm else 0
    sinks = heads / tp if arch.softmax_offset else 0
    return linear + bias + other + sinks, linear


def _linear_attention_weights(arch: Architecture, tp: Floats) -> tuple[Floats, Floats]:
    h = arch.hidden_size
    keys = (arch.linear_num_key_heads or 0) * (arch.linear_key_head_dim or 0)
    heads = arch.linear_num_value_heads or 0
    values = heads * (arch.linear_value_head_dim or 0)
    linear = h * (2 * keys + 2 * values + 2 * heads) / tp + values * h / tp
    conv = (2 * keys + values) * (arch.linear_conv_kernel_dim or 0) / tp
    return linear + conv + 2 * heads / tp + (arch.linear_value_head_dim or 0), linear


def mamba_sizes(arch: Architecture) -> tuple[int, int, int]:
    """(inner width, width of B and C together, heads) of a Mamba 2 layer."""
    heads = arch.mamba_num_heads or 2 * arch.hidden_size // (arch.mamba_head_dim or 64)
    inner = heads * (arch.mamba_head_dim or 64)
    return inner, 2 * (arch.mamba_num_groups or 8) * (arch.mamba_state_dim or 128), heads


def _mamba_weights(arch: Architecture, tp: Floats) -> tuple[Floats, Floats]:
    inner, bc, heads = mamba_sizes(arch)
    linear = arch.hidden_size * (2 * inner + bc + heads) / tp + inner * arch.hidden_size / tp
    conv = (inner + bc) * (arch.mamba_conv_kernel + 1) / tp
    return linear + conv + (3 * heads + inner) / tp, linear


@dataclass(frozen=True)
class Saved:
    """Bytes that one layer keeps of one micro-batch, shape (N,), and its largest temporary.

    Attributes:
        norm, attention, mlp, moe: kept until the backward pass.
        input: the layer's input alone (what full recompute keeps).
        temporary: largest sum of short-lived tensors in its forward or backward pass.
    """

    norm: Floats
    attention: Floats
    mlp: Floats
    moe: Floats
    input: Floats
    temporary: Floats

    @property
    def total(self) -> Floats:
        return self.norm + self.attention + self.mlp + self.moe


def saved(arch: Architecture, settings: Settings, kind: Kind, s: Shape) -> Saved:
    """Activations of one layer for one micro-batch."""
    e = float(settings.element_bytes)
    # A linear layer keeps its input for the weight gradient; in 8 or 4 bits where it computes so.
    lin = {True: 1.0, False: e}[settings.low_precision]
    if settings.precision == "fp8_mx":
        lin = 1.0 + 1 / 32
    elif settings.precision == "nvfp4":
        lin = 0.5 + 1 / 16
    h = arch.hidden_size
    zero = np.zeros_like(s.tp)
    stream = s.sp_tokens * h * e
    mask = s.sp_tokens * h if settings.hidden_dropout > 0 else zero
    statistics = s.sp_tokens * (8 if arch.normalization == "LayerNorm" else 4)
    keep_norm = 1 - s.flags["layernorm"]
    norm, attention, mlp, moe, temporary = zero, zero, zero, zero, zero
    if kind.mixer is not None:
        norm = norm + stream + statistics + keep_norm * s.sp_tokens * h * lin
        if kind.mixer in ("attention", "windowed"):
            attention, temporary = _attention(arch, settings, s, e, lin)
        elif kind.mixer == "linear":
            attention, temporary = _linear_attention(arch, s, e, lin)
        else:
            attention, temporary = _mamba(arch, s, e, lin)
        attention = attention + mask
    if kind.mlp is not None:
        norm = norm + stream + statistics + keep_norm * s.sp_tokens * h * lin
    if kind.mlp == "dense":
        inner, act, temp = _gated(arch, arch.mlp_hidden_size / s.tp * s.tokens, e, lin)
        mlp = (inner + act) * (1 - s.flags["mlp"]) + mask
        temporary = np.maximum(temporary, temp + s.tokens * h * e + s.flags["mlp"] * (inner + act))
    elif kind.mlp == "moe":
        moe, temp = _moe(arch, settings, s, e, lin)
        moe = moe + mask
        temporary = np.maximum(temporary, temp)
    return Saved(norm, attention, mlp, moe, stream, temporary)


def _gated(arch: Architecture, elements: Floats, e: float, lin: float) -> tuple[Floats, Floats, Floats]:
    """(fc1 output, fc2 input, backward temporaries) of an MLP with ``elements`` = tokens * width."""
    gate = 2 if arch.gated_linear_unit else 1
    return gate * elements * e, elements * lin, (gate + 1) * elements * e


def _attention(arch: Architecture, settings: Settings, s: Shape, e: float, lin: float) -> tuple[Floats, Floats]:
    heads, d, h = arch.num_attention_heads / s.tp, arch.head_dim, arch.hidden_size
    if arch.multi_latent_attention:
        rope, nope, value = arch.qk_pos_emb_head_dim or 0, arch.qk_head_dim or 0, arch.v_head_dim or 0
        latent = (arch.kv_lora_rank or 0) + rope + (arch.q_lora_rank or 0)
        down = s.sp_tokens * latent * (e + lin)
        q = s.tokens * heads * (nope + rope) * e
        k, v = q, s.tokens * heads * value * e
        up = s.tokens * heads * (nope + value) * e
        qkv = down + (q + k + v + up) * (1 - s.flags["mla_up_proj"])
        out = s.tokens * heads * value
    else:
        groups = np.maximum(arch.query_groups, s.tp) / s.tp
        q = s.tokens * heads * d * e
        kv = s.tokens * 2 * groups * d * e
        qkv = (q * (2 if arch.attention_output_gate else 1) + kv)
        if arch.position_embedding_type != "learned_absolute":
            qkv = qkv + q + kv / 2
        if arch.qk_layernorm:
            qkv = qkv + q + kv / 2
        out = s.tokens * heads * d
    scores: Floats = np.zeros_like(s.tp)
    if settings.attention_backend in ("unfused", "local"):
        elements = s.tokens * heads * s.seq * s.cp
        scores = elements * (e + (e + 1 if settings.attention_dropout > 0 else 0))
    else:
        scores = s.tokens * heads * 4
    core = scores * (1 - s.flags["core_attn"])
    kept = qkv + core + out * e + (out * lin if settings.low_precision else 0)
    return kept, scores + 2 * qkv


def _linear_attention(arch: Architecture, s: Shape, e: float, lin: float) -> tuple[Floats, Floats]:
    keys = (arch.linear_num_key_heads or 0) * (arch.linear_key_head_dim or 0)
    values = (arch.linear_num_value_heads or 0) * (arch.linear_value_head_dim or 0)
    mixed = s.tokens * (2 * keys + 2 * values) / s.tp
    kept = mixed * e * 2 + s.tokens * values / s.tp * (e + lin) + s.tokens * (arch.linear_num_value_heads or 0) / s.tp * 8
    return kept, mixed * e


def _mamba(arch: Architecture, s: Shape, e: float, lin: float) -> tuple[Floats, Floats]:
    inner, bc, heads = mamba_sizes(arch)
    projected = s.tokens * (2 * inner + bc + heads) / s.tp
    # in_proj output, convolution output, scan output, gated output (input of out_proj), chunk states
    kept = projected * e + s.tokens * (inner + bc) / s.tp * e + s.tokens * inner / s.tp * (e + lin)
    return kept, projected * e


def _moe(arch: Architecture, settings: Settings, s: Shape, e: float, lin: float) -> tuple[Floats, Floats]:
    h, experts = arch.hidden_size, float(arch.num_moe_experts or 0)
    inner = arch.moe_latent_size or h
    width = arch.moe_ffn_hidden_size or arch.mlp_hidden_size
    # router: logits and probabilities in fp32, the routing map as bytes
    router = s.sp_tokens * experts * (4 + 4 + 1)
    fc1, act, temp = _gated(arch, s.routed * width / s.etp, e, lin)
    permuted = s.routed * inner * lin
    combine = s.sent * inner * e
    keep = 1 - s.flags["moe"]
    kept = (router + permuted + fc1 + act * (1 - s.flags["moe_act"]) + combine + s.routed * 4) * keep
    temporary = temp + 2 * s.routed * inner * e + s.flags["moe"] * (permuted + fc1 + act + combine)
    if arch.moe_shared_expert_intermediate_size:
        sfc1, sact, _ = _gated(arch, arch.moe_shared_expert_intermediate_size / s.tp * s.tokens, e, lin)
        kept = kept + (sfc1 + sact) * keep * (1 - s.flags["shared_experts"])
    return kept, temporary


def state_bytes(settings: Settings) -> tuple[float, float]:
    """(main parameter, optimizer state) bytes of one parameter, before sharding."""
    if settings.use_precision_aware_optimizer:
        main = float(DTYPE_BYTES[settings.main_params_dtype])
        states = DTYPE_BYTES[settings.exp_avg_dtype] + DTYPE_BYTES[settings.exp_avg_sq_dtype]
    else:
        main = 0.0 if settings.precision == "fp32" else 4.0
        states = 8
    return main, float(states)
