"""What a layer computes and moves for one micro-batch on one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..architecture import Architecture
from ..memory.grids import Floats
from ..memory.layers import Shape, Weights, mamba_sizes
from ..memory.parameters import LayerKind
from ..memory.settings import Settings

_SCAN_PASSES = 8
"""Times that a chunked scan moves its operands: convolution, chunk states, scan and gated norm read and write them."""


@dataclass(frozen=True)
class Work:
    """Forward work of one layer, arrays of shape (N,); the backward pass of a GEMM takes twice as much.

    Attributes:
        projections, mlp, experts: FLOPs of the mixer's projections, of dense and shared MLPs, of routed experts.
        core: FLOPs of attention scores and values, each token looking at half the sequence or its window.
        expert_elements: weights and tokens that the grouped GEMMs read and write, in elements.
        stream_bytes: read and written by norms, residuals, rotary embedding and activations (forward).
        quantised: elements of GEMM inputs and of their gradients that are cast to 8 or 4 bits.
        route_bytes: read and written by router and permutations (forward).
        scan_bytes: read and written by convolution and scan of Mamba or linear attention (forward).
        projected: elements of the mixer's result before its output projection.
        mixer_width, mlp_width, expert_width: the narrower side of those GEMMs on a rank, in channels.
    """

    projections: Floats
    mlp: Floats
    experts: Floats
    core: Floats
    expert_elements: Floats
    stream_bytes: Floats
    quantised: Floats
    route_bytes: Floats
    scan_bytes: Floats
    projected: Floats
    mixer_width: Floats
    mlp_width: Floats
    expert_width: Floats

    @property
    def gemms(self) -> Floats:
        """FLOPs of all GEMMs."""
        return self.projections + self.mlp + self.experts


def layer_work(arch: Architecture, settings: Settings, kind: LayerKind, s: Shape, w: Weights) -> Work:
    """The work of one layer of a kind, given its weights."""
    zero = np.zeros_like(s.tp)
    e = float(settings.element_bytes)
    h = arch.hidden_size
    gate = 2 if arch.gated_linear_unit else 1
    inner = arch.moe_latent_size or h
    width = arch.moe_ffn_hidden_size or arch.mlp_hidden_size
    shared = zero
    hidden_width = zero
    if kind.mlp == "dense":
        hidden_width = arch.mlp_hidden_size / s.tp
    elif kind.mlp == "moe":
        hidden_width = (arch.moe_shared_expert_intermediate_size or 0) / s.tp
        if arch.moe_latent_size:
            shared = shared + 2 * h * arch.moe_latent_size
    shared = shared + (gate + 1) * h * hidden_width
    in_linear = shared - (2 * h * arch.moe_latent_size if kind.mlp == "moe" and arch.moe_latent_size else 0)
    projections = np.maximum(w.dense_linear - in_linear, 0) if kind.mixer != "none" else zero
    core, scan, rotated, projected = zero, zero, zero, zero
    if kind.mixer in ("attention", "mla"):
        heads = arch.num_attention_heads / s.tp
        if arch.multi_latent_attention:
            widths = (arch.qk_head_dim or 0) + (arch.qk_pos_emb_head_dim or 0) + (arch.v_head_dim or 0)
            rotated = s.tokens * heads * 2 * widths
            projected = s.tokens * heads * (arch.v_head_dim or 0)
        else:
            widths = 2 * arch.head_dim
            groups = np.maximum(arch.query_groups, s.tp) / s.tp
            rotated = s.tokens * (heads + 2 * groups) * arch.head_dim * (2 if arch.qk_layernorm else 1)
            projected = s.tokens * heads * arch.head_dim
        span = settings.seq_length / 2
        if kind.windowed and arch.window_size and arch.window_size < settings.seq_length:
            span = arch.window_size - arch.window_size**2 / (2 * settings.seq_length)
        core = 2 * s.tokens * heads * widths * span
    elif kind.mixer == "mamba":
        mamba, bc, heads_ = mamba_sizes(arch)
        scan = _SCAN_PASSES * s.tokens * (2 * mamba + bc + heads_) / s.tp * e
        projected = s.tokens * mamba / s.tp
    elif kind.mixer == "linear_attention":
        keys = (arch.linear_num_key_heads or 0) * (arch.linear_key_head_dim or 0)
        values = (arch.linear_num_value_heads or 0) * (arch.linear_value_head_dim or 0)
        scan = _SCAN_PASSES * s.tokens * (2 * keys + 2 * values) / s.tp * e
        projected = s.tokens * values / s.tp
    blocks = float(kind.mixer != "none") + float(kind.mlp != "none")
    stream = blocks * 5 * s.sp_tokens * h * e + 2 * rotated * e + (gate + 1) * s.tokens * hidden_width * e
    quantised = s.tokens * (blocks * 2 * h + (gate + 1) * hidden_width) + 2 * projected
    experts, elements, route = zero, zero, zero
    if kind.mlp == "moe":
        many = s.routed * width / s.etp
        experts = 2 * many * (gate + 1) * inner
        elements = w.expert_linear + s.routed * (2 * inner) + (gate + 1) * many
        stream = stream + (gate + 1) * many * e
        quantised = quantised + 2 * s.routed * inner + (gate + 1) * many
        route = 2 * (s.sent + s.routed) * inner * e + s.sp_tokens * float(arch.num_moe_experts or 0) * 40
    return Work(
        projections=2 * s.tokens * projections,
        mlp=2 * s.tokens * shared,
        experts=experts,
        core=core,
        expert_elements=elements,
        stream_bytes=stream,
        quantised=quantised,
        route_bytes=route,
        scan_bytes=scan,
        projected=projected,
        mixer_width=np.maximum(projected / s.tokens, 1),
        mlp_width=np.maximum(hidden_width + zero, 1),
        expert_width=width / s.etp,
    )
