"""One decoder layer: parameters on a rank, and bytes that a micro-batch leaves there for the backward pass.

All functions take and return arrays that broadcast over the candidates. Tensors are those that autograd keeps in
Megatron Core with Transformer Engine (``megatron/core/transformer``, ``transformer_engine/pytorch/module``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from ..architecture import Architecture
from .grids import Floats, Grids, Ints
from .parameters import LayerKind, layer_weights, mtp_layer_kinds, mtp_weights
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

    def __add__(self, other: Weights) -> Weights:
        return Weights(
            self.dense + other.dense,
            self.expert + other.expert,
            self.dense_linear + other.dense_linear,
            self.expert_linear + other.expert_linear,
        )

    def times(self, n: Floats) -> Weights:
        """The parameters of n such layers."""
        return Weights(n * self.dense, n * self.expert, n * self.dense_linear, n * self.expert_linear)

    def take(self, index: Ints) -> Weights:
        """Those of the given candidates."""
        return Weights(self.dense[index], self.expert[index], self.dense_linear[index], self.expert_linear[index])


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
    batch: Floats
    flags: dict[str, Floats]

    def take(self, index: Ints) -> Shape:
        """Those of the given candidates; recompute flags aren't needed there any more."""
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "flags"}
        return Shape(**columns, flags={})


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
    flags = {m: np.array([float(r.has(m)) for r in grids.recomputes])[grids.recompute] for m in RECOMPUTE_MODULES}
    return Shape(tp, cp, ep, etp, tokens, sp_tokens, routed, sent, seq, grids.mbs.astype(float), flags)


def weights(arch: Architecture, kind: LayerKind, s: Shape) -> Weights:
    """Parameters of one layer on one rank.

    With fewer key/value groups than TP ranks, each rank keeps one group whole (Core 0.16 on).
    """
    w = layer_weights(arch, kind)
    linear = w.tp / s.tp
    if kind.mixer == "attention":
        linear = linear + arch.hidden_size * 2 * arch.head_dim * np.maximum(s.tp - arch.query_groups, 0) / s.tp
    dense = linear + w.replicated
    if kind.mixer == "mla":
        latent = (arch.q_lora_rank or 0) + (arch.kv_lora_rank or 0) + (arch.qk_pos_emb_head_dim or 0)
        linear = linear + arch.hidden_size * latent
    expert = w.expert / (s.ep * s.etp)
    return Weights(dense, expert + w.expert_replicated / s.ep, linear, expert)


def mtp_depth(arch: Architecture, s: Shape) -> Weights:
    """Parameters of one MTP layer on one rank."""
    w = mtp_weights(arch)
    linear = w.tp / s.tp
    expert = w.expert / (s.ep * s.etp)
    return Weights(linear + w.replicated, expert + w.expert_replicated / s.ep, linear, expert)


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


def distinct_linear_weights(arch: Architecture, w: Weights, s: Shape) -> Floats:
    """Elements of one weight of each distinct shape in a layer; experts have one shape for each projection."""
    return w.dense_linear + w.expert_linear / (float(arch.num_moe_experts or 1) / s.ep)


def adapters(arch: Architecture, settings: Settings, kind: LayerKind, s: Shape) -> Floats:
    """LoRA parameters of one layer on one rank: two matrices of the adapter's dimension for each target."""
    h, d = arch.hidden_size, arch.head_dim
    heads, groups = arch.num_attention_heads, arch.query_groups
    gate = 2 if arch.gated_linear_unit else 1
    width = (arch.moe_ffn_hidden_size or arch.mlp_hidden_size) if kind.mlp == "moe" else arch.mlp_hidden_size
    split = s.etp if kind.mlp == "moe" else s.tp
    experts = float(arch.num_moe_experts or 0) / s.ep if kind.mlp == "moe" else np.ones_like(s.tp)
    sides = {
        "linear_qkv": (kind.mixer == "attention") * (h + (heads + 2 * groups) * d / s.tp),
        "linear_proj": (kind.mixer in ("attention", "mla")) * (heads * (arch.v_head_dim or d) / s.tp + h),
        "linear_fc1": (kind.mlp != "none") * experts * (h + gate * width / split),
        "linear_fc2": (kind.mlp != "none") * experts * (width / split + h),
    }
    return sum((settings.lora_rank * sides[t] for t in settings.lora_targets if t in sides), np.zeros_like(s.tp))


LINEAR_BYTES = {"fp8_mx": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Bytes of an 8- or 4-bit element with its share of the scales, where that isn't 1."""


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
        """All that is kept."""
        return self.norm + self.attention + self.mlp + self.moe

    def take(self, index: Ints) -> Saved:
        """Those of the given candidates."""
        return Saved(*(getattr(self, f.name)[index] for f in fields(self)))


def saved(arch: Architecture, settings: Settings, kind: LayerKind, s: Shape) -> Saved:
    """Activations of one layer for one micro-batch."""
    e = float(settings.element_bytes)
    # A linear layer keeps its input for the weight gradient; in 8 or 4 bits where it computes so.
    lin = LINEAR_BYTES.get(settings.precision, 1.0) if settings.low_precision else e
    h = arch.hidden_size
    zero = np.zeros_like(s.tp)
    stream = s.sp_tokens * h * e
    mask = s.sp_tokens * h if settings.hidden_dropout > 0 else zero
    statistics = s.sp_tokens * (8 if arch.normalization == "LayerNorm" else 4)
    mixer_norm, mlp_norm = recomputable_norms(arch, settings, kind)
    keep_mixer, keep_mlp = 1 - mixer_norm * s.flags["layernorm"], 1 - mlp_norm * s.flags["layernorm"]
    attention_stream = stream * (1 - _offloaded(settings, "attn_norm"))
    mlp_stream = stream * (1 - _offloaded(settings, "mlp_norm"))
    norm, attention, mlp, moe, temporary = zero, zero, zero, zero, zero
    if kind.mixer != "none":
        normed = keep_mixer * s.sp_tokens * h * lin * (1 - _offloaded(settings, "qkv_linear"))
        norm = norm + attention_stream + statistics + normed
        mixers = {"mamba": _mamba, "linear_attention": _linear_attention}
        if kind.mixer in mixers:
            attention, temporary = mixers[kind.mixer](arch, s, e, lin)
        else:
            attention, temporary = _attention(arch, settings, s, e, lin)
        attention = attention + mask
    if kind.mlp != "none":
        norm = norm + mlp_stream + statistics + keep_mlp * s.sp_tokens * h * lin
    if kind.mlp == "dense":
        inner, act, temp = _gated(arch, arch.mlp_hidden_size / s.tp * s.tokens, e, lin)
        mlp = (inner + act) * (1 - s.flags["mlp"]) + mask
        temporary = np.maximum(temporary, temp + s.tokens * h * e + s.flags["mlp"] * (inner + act))
    elif kind.mlp == "moe":
        moe, temp = _moe(arch, settings, s, e, lin)
        moe = moe + mask
        temporary = np.maximum(temporary, temp)
    if settings.fine_grained_activation_offloading and settings.offload_modules:
        # Two layers' tensors are on the device at any time: one in use, one on its way.
        whole = saved(arch, replace(settings, fine_grained_activation_offloading=False), kind, s).total
        temporary = temporary + 2 * (whole - (norm + attention + mlp + moe))
    return Saved(norm, attention, mlp, moe, stream, temporary)


def recomputable_norms(arch: Architecture, settings: Settings, kind: LayerKind) -> tuple[bool, bool]:
    """Whether recompute module ``layernorm`` drops the output of the norm before the mixer, and before the MLP.

    It works on norms that are modules of their own (``TransformerLayer``: not ``IdentityOp``). Transformer Engine's
    specification fuses the norm into the linear layer that follows, except before MLA and before a MoE layer; and a
    norm inside a captured router returns its output in a static buffer.
    """
    if settings.transformer_impl != "transformer_engine":
        return kind.mixer == "attention" or kind.mixer == "mla", kind.mlp != "none"
    scope = settings.cuda_graph_scope if settings.cuda_graph_impl == "transformer_engine" else ()
    inside = "moe_preprocess" in scope and (settings.moe_token_dispatcher_type == "alltoall" or arch.moe_latent_size)
    held = "moe_router" in scope and (settings.moe_shared_expert_overlap or not inside)
    return kind.mixer == "mla", kind.mlp == "moe" and not held


def mtp_saved(arch: Architecture, settings: Settings, s: Shape) -> Saved:
    """Activations of one MTP layer: its transformer layers, and two normed streams joined and projected."""
    parts = [saved(arch, settings, kind, s) for kind in mtp_layer_kinds(arch)]
    stream = s.sp_tokens * arch.hidden_size * float(settings.element_bytes)
    return Saved(
        norm=sum((p.norm for p in parts), 5 * stream),
        attention=sum((p.attention for p in parts), 0 * stream),
        mlp=sum((p.mlp for p in parts), 0 * stream),
        moe=sum((p.moe for p in parts), 0 * stream),
        input=stream,
        temporary=np.max([p.temporary for p in parts], axis=0),
    )


def _gated(arch: Architecture, elements: Floats, e: float, lin: float) -> tuple[Floats, Floats, Floats]:
    """(fc1 output, fc2 input, backward temporaries) of an MLP with ``elements`` = tokens * width."""
    gate = 2 if arch.gated_linear_unit else 1
    return gate * elements * e, elements * lin, gate * elements * e


def _attention(arch: Architecture, settings: Settings, s: Shape, e: float, lin: float) -> tuple[Floats, Floats]:
    heads, d = arch.num_attention_heads / s.tp, arch.head_dim
    unfused = settings.attention_backend in ("unfused", "local")
    zero = np.zeros_like(s.tp)
    if arch.multi_latent_attention:
        rope, nope, value = arch.qk_pos_emb_head_dim or 0, arch.qk_head_dim or 0, arch.v_head_dim or 0
        latent = (arch.kv_lora_rank or 0) + rope + (arch.q_lora_rank or 0)
        down = s.sp_tokens * latent * (e + lin)
        # Queries and keys get their rotary part appended in new tensors; fused kernels take a copy of the values,
        # unfused ones a view, which keeps the whole up-projection.
        up = s.tokens * heads * (2 * (nope + rope) + (nope + value if unfused else value)) * e
        qkv = down + up * (1 - s.flags["mla_up_proj"])
        out = s.tokens * heads * value
    else:
        groups = np.maximum(arch.query_groups, s.tp) / s.tp
        q = s.tokens * heads * d * e
        kv = s.tokens * 2 * groups * d * e
        qkv = q * (2 if arch.attention_output_gate else 1) + kv
        if arch.qk_layernorm:
            qkv = qkv + q + kv / 2
        out = s.tokens * heads * d
    if unfused:
        elements = s.tokens * heads * s.seq * s.cp
        core = elements * (e + (e + 1 if settings.attention_dropout > 0 else 0))
    else:
        core = s.tokens * heads * 4
        if settings.attention_backend == "flash" or settings.deterministic_mode:
            # FlashAttention works on (batch, sequence): its output is kept in both orders, unless the batch is 1.
            core = core + np.where(s.batch > 1, out * e, 0)
        core = core + np.where(s.cp > 1, out * e, 0)
    projected = out * e + (out * lin if settings.low_precision else zero)
    kept = (qkv + core * (1 - s.flags["core_attn"])) * (1 - _offloaded(settings, "core_attn"))
    kept = kept + projected * (1 - _offloaded(settings, "attn_proj"))
    return kept, core + qkv + out * e


def _linear_attention(arch: Architecture, s: Shape, e: float, lin: float) -> tuple[Floats, Floats]:
    keys = (arch.linear_num_key_heads or 0) * (arch.linear_key_head_dim or 0)
    values = (arch.linear_num_value_heads or 0) * (arch.linear_value_head_dim or 0)
    mixed = s.tokens * (2 * keys + 2 * values) / s.tp
    kept = (
        mixed * e * 2 + s.tokens * values / s.tp * (e + lin) + s.tokens * (arch.linear_num_value_heads or 0) / s.tp * 8
    )
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
    elements = s.routed * width / s.etp
    fc1, act, temp = _gated(arch, elements, e, lin)
    gated = arch.gated_linear_unit
    if not (settings.bias_activation_fusion if gated else settings.use_fused_weighted_squared_relu):
        # Unfused, the activation is kept once more to be multiplied by the router's probabilities; a gate once again.
        act = act + elements * e * (2 if gated else 1)
    permuted = s.routed * inner * lin
    fc1 = fc1 * (1 - _offloaded(settings, "moe_act"))
    keep = 1 - s.flags["moe"]
    kept = router + permuted * (1 - _offloaded(settings, "expert_fc1")) + fc1 + act * (1 - s.flags["moe_act"])
    kept = (kept + s.routed * 4) * keep
    temporary = temp + 2 * s.routed * inner * e + s.flags["moe"] * (permuted + fc1 + act)
    if arch.moe_latent_size:
        kept = kept + s.sp_tokens * (h + inner) * e * keep
    if arch.moe_shared_expert_intermediate_size:
        sfc1, sact, _ = _gated(arch, arch.moe_shared_expert_intermediate_size / s.tp * s.tokens, e, lin)
        kept = kept + (sfc1 + sact) * keep * (1 - s.flags["shared_experts"])
    return kept, temporary


def _offloaded(settings: Settings, module: str) -> float:
    """1.0 where a module's input waits in host memory."""
    return float(settings.fine_grained_activation_offloading and module in settings.offload_modules)


def state_bytes(settings: Settings) -> tuple[float, float, float]:
    """Bytes of one parameter before sharding: main parameter, optimizer state, state of a matrix.

    Adam keeps two moments; Muon one momentum for matrices and Adam's two for the rest.
    """
    if settings.use_precision_aware_optimizer:
        main = float(DTYPE_BYTES[settings.main_params_dtype])
        first, second = float(DTYPE_BYTES[settings.exp_avg_dtype]), float(DTYPE_BYTES[settings.exp_avg_sq_dtype])
    else:
        main = 0.0 if settings.precision == "fp32" and not settings.use_megatron_fsdp else 4.0
        first = second = 4.0
    return main, first + second, first if "muon" in settings.optimizer else first + second
