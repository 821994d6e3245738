"""A slow second implementation of what a rank holds: loops over layers and tensors, nothing shared with the engine.

Shapes are those that Megatron Core's modules allocate for one (TP, EP, ETP) rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from mbridge_advisor.architecture import Architecture


@dataclass(frozen=True)
class Tensor:
    """A parameter tensor of one rank."""

    shape: tuple[int, ...]
    expert: bool = False

    @property
    def elements(self) -> int:
        return prod(self.shape)


def norm(arch: Architecture, size: int) -> list[Tensor]:
    return [Tensor((size,))] * (2 if arch.normalization == "LayerNorm" else 1)


def attention(arch: Architecture, tp: int) -> list[Tensor]:
    h, heads = arch.hidden_size, arch.num_attention_heads
    out: list[Tensor] = []
    if arch.multi_latent_attention:
        rope, nope, v = arch.qk_pos_emb_head_dim or 0, arch.qk_head_dim or 0, arch.v_head_dim or 0
        kv, q = arch.kv_lora_rank or 0, arch.q_lora_rank
        out.append(Tensor((kv + rope, h)))
        out.append(Tensor((heads * (nope + v) // tp, kv)))
        if q:
            out += [Tensor((q, h)), Tensor((heads * (nope + rope) // tp, q))]
        else:
            out.append(Tensor((heads * (nope + rope) // tp, h)))
        out.append(Tensor((h, heads * v // tp)))
        if arch.qk_layernorm:
            out += norm(arch, kv) + (norm(arch, q) if q else [])
        if arch.add_bias_linear:
            out.append(Tensor((h,)))
        return out
    d, groups = arch.head_dim, max(arch.query_groups // tp, 1)
    qkv = (heads // tp + 2 * groups) * d
    out += [Tensor((qkv, h)), Tensor((h, heads // tp * d))]
    if arch.add_bias_linear:
        out += [Tensor((qkv,)), Tensor((h,))]
    if arch.qk_layernorm:
        out += norm(arch, d) * 2
    return out


def mlp(arch: Architecture, width: int, split: int, expert: bool = False) -> list[Tensor]:
    h, first = arch.hidden_size, width * (2 if arch.gated_linear_unit else 1) // split
    out = [Tensor((first, h), expert), Tensor((h, width // split), expert)]
    if arch.add_bias_linear:
        out += [Tensor((first,), expert), Tensor((h,), expert)]
    return out


def layer(arch: Architecture, index: int, tp: int, ep: int, etp: int) -> list[Tensor]:
    h = arch.hidden_size
    out = norm(arch, h) * 2 + attention(arch, tp)
    freq = arch.moe_layer_freq
    routed = arch.is_moe and (index % freq == 0 if isinstance(freq, int) else bool(freq[index]))
    if not routed:
        return out + mlp(arch, arch.mlp_hidden_size, tp)
    experts = arch.num_moe_experts or 0
    out.append(Tensor((experts, h)))
    if arch.add_bias_linear:
        out.append(Tensor((experts,)))
    for _ in range(experts // ep):
        out += mlp(arch, arch.moe_ffn_hidden_size or arch.mlp_hidden_size, etp, expert=True)
    if arch.moe_shared_expert_intermediate_size:
        out += mlp(arch, arch.moe_shared_expert_intermediate_size, tp)
    return out


def rank(arch: Architecture, stage: int, pp: int, vpp: int, tp: int, ep: int, etp: int) -> list[Tensor]:
    """Parameters of one rank; layers split evenly, virtual stages dealt out in turn."""
    h = arch.hidden_size
    multiple = arch.make_vocab_size_divisible_by * tp
    rows = ceil(arch.vocab_size / multiple) * multiple // tp
    out: list[Tensor] = []
    each = arch.num_layers // (pp * vpp)
    for chunk in range(vpp):
        start = (chunk * pp + stage) * each
        for index in range(start, start + each):
            out += layer(arch, index, tp, ep, etp)
    first, last = stage == 0, stage == pp - 1
    if first:
        out.append(Tensor((rows, h)))
        if arch.position_embedding_type == "learned_absolute":
            out.append(Tensor((arch.max_position_embeddings or 0, h)))
    if last:
        out += norm(arch, h)
        if not (first and arch.share_embeddings_and_output_weights):
            out.append(Tensor((rows, h)))
    return out


def static_bytes(
    tensors: list[Tensor], *, dp: int, cp: int, edp: int, distributed: bool, fp32_gradients: bool
) -> dict[str, float]:
    """Bytes of bf16 training with Adam: weights, gradient buffer, fp32 parameters, two moments."""
    dense = sum(t.elements for t in tensors if not t.expert)
    expert = sum(t.elements for t in tensors if t.expert)
    owned = dense / (dp * cp) + expert / edp if distributed else dense + expert
    return {
        "weights": 2.0 * (dense + expert),
        "gradients": (4.0 if fp32_gradients else 2.0) * (dense + expert),
        "main_params": 4.0 * owned,
        "optimizer_states": 8.0 * owned,
    }


def kept_micro_batches(stage: int, pp: int, vpp: int, group: int, m: int) -> list[int]:
    """Micro-batches whose activations are alive at the fullest moment, by virtual stage: the schedule, played through.

    Forward passes follow the table of micro-batch groups; after the warm-up one forward alternates with one backward.
    """
    table = [
        (micro, chunk)
        for start in range(0, m, group)
        for chunk in range(vpp)
        for micro in range(start, min(start + group, m))
    ]
    warmup = pp - stage - 1 if vpp == 1 else (pp - stage - 1) * 2 + (vpp - 1) * group
    warmup = min(warmup, len(table))
    alive = [0] * vpp
    best = list(alive)
    for k, (_, chunk) in enumerate(table):
        alive[chunk] += 1
        if sum(alive) > sum(best):
            best = list(alive)
        if k >= warmup:
            alive[vpp - 1 - table[k - warmup][1]] -= 1
    return best
