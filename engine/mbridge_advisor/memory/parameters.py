"""Exact parameter counts, by how Megatron Core shards them, and the layers of every pipeline stage.

Counts follow the modules that Megatron Core builds for an architecture (``megatron/core/transformer``, ``ssm`` and
``models``); a buffer, such as the router's expert bias, is no parameter. All counts are whole numbers of parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from ..architecture import Architecture
from ..errors import RequestError
from ..layout import FIELD as LAYOUT_FIELD
from ..layout import Layout

Mixer = Literal["attention", "mla", "mamba", "linear_attention", "none"]
Mlp = Literal["dense", "moe", "none"]


@dataclass(frozen=True)
class Weights:
    """Parameters of a block, by how they are spread over ranks.

    A rank holds ``tp / TP + replicated + expert / (EP * ETP) + expert_replicated / EP`` of them.

    Attributes:
        tp: divided by TP.
        replicated: whole on each TP rank.
        expert: of routed experts, divided by EP * ETP.
        expert_replicated: of routed experts, divided by EP but whole on each ETP rank.
    """

    tp: int = 0
    replicated: int = 0
    expert: int = 0
    expert_replicated: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(
            self.tp + other.tp,
            self.replicated + other.replicated,
            self.expert + other.expert,
            self.expert_replicated + other.expert_replicated,
        )

    def __mul__(self, times: int) -> Weights:
        return Weights(self.tp * times, self.replicated * times, self.expert * times, self.expert_replicated * times)

    __rmul__ = __mul__

    @property
    def total(self) -> int:
        """All parameters of the block."""
        return self.tp + self.replicated + self.expert + self.expert_replicated

    @property
    def routed(self) -> int:
        """Parameters of routed experts."""
        return self.expert + self.expert_replicated


@dataclass(frozen=True)
class LayerKind:
    """What a decoder layer consists of.

    Attributes:
        mixer: what mixes tokens.
        mlp: what follows, or stands alone in a hybrid model's layer.
        windowed: whether attention looks back ``window_size`` tokens only (time and memory, not parameters).
    """

    mixer: Mixer
    mlp: Mlp
    windowed: bool = False


_HYBRID_LETTERS: dict[str, tuple[Mixer, Mlp]] = {
    "M": ("mamba", "none"),
    "G": ("linear_attention", "none"),
    "*": ("attention", "none"),
    "+": ("mla", "none"),
    "-": ("none", "dense"),
    "E": ("none", "moe"),
}


@lru_cache(maxsize=1024)
def layer_kinds(arch: Architecture) -> tuple[LayerKind, ...]:
    """The kind of each decoder layer, in order; shape (num_layers,).

    As Core reads ``hybrid_override_pattern``, ``moe_layer_freq``, ``linear_attention_freq``, ``window_attn_skip_freq``.

    Raises:
        RequestError: a pattern has another length than ``num_layers``, or an unknown letter.
    """
    if arch.hybrid_override_pattern is not None:
        # Text after "/" describes MTP layers; bars only mark pipeline stages.
        kinds = _hybrid_kinds("hybrid_override_pattern", arch.hybrid_override_pattern.split("/")[0])
        if len(kinds) != arch.num_layers:
            raise _wrong_length("hybrid_override_pattern", len(kinds), arch.num_layers)
        return kinds
    full: Mixer = "mla" if arch.multi_latent_attention else "attention"
    every = range(arch.num_layers)
    moe = linear = windowed = [False] * arch.num_layers
    if arch.is_moe:
        freq = arch.moe_layer_freq
        moe = [i % freq == 0 for i in every] if isinstance(freq, int) else _flags(arch, "moe_layer_freq", freq)
    if (linear_freq := arch.linear_attention_freq) is not None:
        linear = (
            [(i + 1) % linear_freq != 0 for i in every]
            if isinstance(linear_freq, int)
            else _flags(arch, "linear_attention_freq", linear_freq)
        )
    if arch.window_size is not None:
        skip = arch.window_attn_skip_freq
        if skip is None:
            windowed = [True] * arch.num_layers
        elif isinstance(skip, int):
            windowed = [(i + 1) % skip != 0 for i in every]
        else:
            windowed = _flags(arch, "window_attn_skip_freq", skip)
    return tuple(
        LayerKind("linear_attention" if lin else full, "moe" if routed else "dense", window and not lin)
        for lin, routed, window in zip(linear, moe, windowed, strict=True)
    )


def _hybrid_kinds(field: str, pattern: str) -> tuple[LayerKind, ...]:
    letters = pattern.replace("|", "")
    unknown = sorted(set(letters) - set(_HYBRID_LETTERS))
    if unknown:
        raise RequestError(
            f"model.{field}", pattern, f"has the unknown letter {unknown[0]!r}", f"Known: {' '.join(_HYBRID_LETTERS)}."
        )
    return tuple(LayerKind(*_HYBRID_LETTERS[letter]) for letter in letters)


def _flags(arch: Architecture, field: str, values: tuple[int, ...]) -> list[bool]:
    if len(values) != arch.num_layers:
        raise _wrong_length(field, len(values), arch.num_layers)
    return [bool(value) for value in values]


def _wrong_length(field: str, length: int, layers: int) -> RequestError:
    return RequestError(
        f"model.{field}", length, f"entries don't match num_layers = {layers}", "Give one entry for each decoder layer."
    )


@lru_cache(maxsize=4096)
def layer_weights(arch: Architecture, kind: LayerKind) -> Weights:
    """Parameters of one decoder layer with its norms.

    Raises:
        RequestError: the architecture lacks a dimension that this kind of layer needs.
    """
    mixers = {
        "attention": _attention,
        "mla": _latent_attention,
        "mamba": _mamba,
        "linear_attention": _gated_delta_net,
    }
    mlps = {"dense": _dense_mlp, "moe": _moe}
    parts = [table[name](arch) for table, name in ((mixers, kind.mixer), (mlps, kind.mlp)) if name in table]
    norms = (2 if arch.post_block_norms else 1) * len(parts)
    return sum(parts, Weights(replicated=norms * _norm(arch, arch.hidden_size)))


def _need(arch: Architecture, *names: str) -> tuple[int, ...]:
    values = tuple(getattr(arch, name) for name in names)
    for name, value in zip(names, values, strict=True):
        if value is None:
            raise RequestError(f"model.{name}", None, "is unset, but a layer of this model needs it", "Give its size.")
    return values


def _norm(arch: Architecture, width: int) -> int:
    """Every norm is whole on each rank; LayerNorm has a bias."""
    return width * (2 if arch.normalization == "LayerNorm" else 1)


def _attention(arch: Architecture) -> Weights:
    hidden, heads, width = arch.hidden_size, arch.num_attention_heads, arch.head_dim
    queries = heads * width * (2 if arch.attention_output_gate else 1)
    qkv = queries + 2 * arch.query_groups * width
    sharded = hidden * (qkv + heads * width)
    replicated = 0
    if arch.add_bias_linear or arch.add_qkv_bias:
        sharded += qkv
    if arch.add_bias_linear:
        replicated += hidden  # a row-parallel layer adds its bias after the reduction
    if arch.qk_layernorm:
        replicated += 2 * _norm(arch, heads * width if arch.qk_layernorm_all_heads else width)
    if arch.softmax_offset:
        sharded += heads
    return Weights(sharded, replicated)


def _latent_attention(arch: Architecture) -> Weights:
    hidden, heads = arch.hidden_size, arch.num_attention_heads
    kv_rank, nope, rope, value = _need(arch, "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
    query = heads * (nope + rope)
    sharded = kv_rank * heads * (nope + value) + heads * value * hidden
    replicated = hidden * (kv_rank + rope)  # down-projections are whole on each TP rank
    normed = kv_rank
    if arch.q_lora_rank is None:
        sharded += hidden * query
    else:
        sharded += arch.q_lora_rank * query
        replicated += hidden * arch.q_lora_rank
        normed += arch.q_lora_rank
    if arch.qk_layernorm:
        replicated += _norm(arch, normed)
    if arch.add_bias_linear:
        replicated += hidden
    return Weights(sharded, replicated)


def _mamba(arch: Architecture) -> Weights:
    hidden = arch.hidden_size
    state, width, groups = _need(arch, "mamba_state_dim", "mamba_head_dim", "mamba_num_groups")
    heads = arch.mamba_num_heads or 2 * hidden // width
    inner, shared = heads * width, 2 * groups * state
    in_proj = hidden * (2 * inner + shared + heads)
    conv = (inner + shared) * (arch.mamba_conv_kernel + 1)  # with bias
    scalars = 3 * heads  # A_log, D, dt_bias
    return Weights(tp=in_proj + conv + scalars + inner + inner * hidden)  # the gated norm is sharded too


def _gated_delta_net(arch: Architecture) -> Weights:
    hidden = arch.hidden_size
    kernel, key_dim, value_dim, key_heads, value_heads = _need(
        arch,
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
    )
    keys, values = key_dim * key_heads, value_dim * value_heads
    in_proj = hidden * 2 * (keys + values + value_heads)  # q and k; v and gate; alpha and beta
    conv = (2 * keys + values) * kernel
    scalars = 2 * value_heads  # A_log, dt_bias
    return Weights(tp=in_proj + conv + scalars + values * hidden, replicated=_norm(arch, value_dim))


def _mlp(arch: Architecture, hidden: int, width: int) -> tuple[int, int]:
    """Parameters of a two-layer MLP: (divided by tensor parallelism, whole: the bias of the second layer)."""
    first = width * (2 if arch.gated_linear_unit else 1)
    bias = arch.add_bias_linear
    return hidden * (first + width) + (first if bias else 0), hidden if bias else 0


def _dense_mlp(arch: Architecture) -> Weights:
    return Weights(*_mlp(arch, arch.hidden_size, arch.mlp_hidden_size))


def _moe(arch: Architecture) -> Weights:
    hidden = arch.hidden_size
    (experts,) = _need(arch, "num_moe_experts")
    latent = arch.moe_latent_size
    split, whole = _mlp(arch, latent or hidden, arch.moe_ffn_hidden_size or arch.mlp_hidden_size)
    weights = Weights(expert=experts * split, expert_replicated=experts * whole)
    weights += Weights(replicated=experts * hidden + (experts if arch.add_bias_linear else 0))  # the router
    if latent:
        weights += Weights(replicated=2 * hidden * latent + (hidden + latent if arch.add_bias_linear else 0))
    if arch.moe_shared_expert_intermediate_size:
        weights += Weights(*_mlp(arch, hidden, arch.moe_shared_expert_intermediate_size))
        if arch.moe_shared_expert_gate:
            weights += Weights(replicated=hidden)
    return weights


@overload
def padded_vocab_size(arch: Architecture, tp: int) -> int: ...
@overload
def padded_vocab_size(arch: Architecture, tp: NDArray[np.int64]) -> NDArray[np.int64]: ...
def padded_vocab_size(arch: Architecture, tp: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
    """Rows of the embedding: ``vocab_size``, padded to a multiple of ``make_vocab_size_divisible_by * tp`` if asked.

    Works element-wise on an array of TP sizes of any shape (Core: ``calculate_padded_vocab_size``).
    """
    if not arch.should_pad_vocab:
        return arch.vocab_size + 0 * tp
    multiple = arch.make_vocab_size_divisible_by * tp
    return -(-arch.vocab_size // multiple) * multiple


def embedding_weights(arch: Architecture, padded_vocab: int) -> Weights:
    """The word embedding, divided by TP, and learned positions, whole on each rank.

    Raises:
        RequestError: learned positions without ``max_position_embeddings``.
    """
    positions = 0
    if arch.position_embedding_type == "learned_absolute":
        (positions,) = _need(arch, "max_position_embeddings")
    return Weights(tp=padded_vocab * arch.hidden_size, replicated=positions * arch.hidden_size)


def output_weights(arch: Architecture, padded_vocab: int, *, holds_embedding: bool = False) -> Weights:
    """The output layer as the last pipeline stage holds it.

    A tied output layer needs no weights of its own on a stage that holds the embedding (``holds_embedding``: PP = 1);
    elsewhere the last stage keeps a second copy of the shared matrix.
    """
    if arch.share_embeddings_and_output_weights and holds_embedding:
        return Weights()
    return Weights(tp=padded_vocab * arch.hidden_size)


def final_norm_weights(arch: Architecture) -> Weights:
    """The norm after the last decoder layer."""
    return Weights(replicated=_norm(arch, arch.hidden_size))


def mtp_weights(arch: Architecture) -> Weights:
    """One MTP layer: three norms, the projection of twice the hidden size, and its own transformer layer.

    The layer is of the kind of the last decoder layer, or as ``mtp_hybrid_override_pattern`` says. Embedding and output
    layer are shared with the model, though a stage that holds MTP but not the embedding keeps a copy of it.
    """
    hidden = arch.hidden_size
    own = Weights(tp=2 * hidden * hidden, replicated=3 * _norm(arch, hidden))
    return sum((layer_weights(arch, kind) for kind in mtp_layer_kinds(arch)), own)


def mtp_layer_kinds(arch: Architecture) -> tuple[LayerKind, ...]:
    """The layers inside one MTP layer."""
    if arch.mtp_hybrid_override_pattern:
        return _hybrid_kinds("mtp_hybrid_override_pattern", arch.mtp_hybrid_override_pattern)
    return layer_kinds(arch)[-1:]


def mtp_layers_held(arch: Architecture) -> int:
    """MTP layers with weights of their own: one where all depths repeat the same layer."""
    depth = arch.mtp_num_layers or 0
    return min(depth, 1) if arch.mtp_use_repeated_layer else depth


def model_weights(arch: Architecture, *, include_mtp: bool = False, padded_vocab: int | None = None) -> Weights:
    """The whole model, each parameter once.

    Args:
        include_mtp: count MTP layers too.
        padded_vocab: rows of the embedding; None counts ``vocab_size`` without padding.
    """
    rows = arch.vocab_size if padded_vocab is None else padded_vocab
    weights = sum((layer_weights(arch, kind) for kind in layer_kinds(arch)), embedding_weights(arch, rows))
    weights += output_weights(arch, rows, holds_embedding=True) + final_norm_weights(arch)
    if include_mtp:
        weights += mtp_weights(arch) * mtp_layers_held(arch)
    return weights


def total_parameters(
    arch: Architecture,
    *,
    include_mtp: bool = False,
    embedding: bool = True,
    output: bool = True,
    padded_vocab: int | None = None,
) -> int:
    """Parameters of the model, each counted once.

    Args:
        include_mtp, padded_vocab: as in :func:`model_weights`.
        embedding: count the embedding. A tied matrix counts as embedding.
        output: count an output layer that isn't tied.
    """
    total = model_weights(arch, include_mtp=include_mtp, padded_vocab=padded_vocab).total
    rows = arch.vocab_size if padded_vocab is None else padded_vocab
    if not embedding:
        total -= embedding_weights(arch, rows).total
    if not output:
        total -= output_weights(arch, rows, holds_embedding=True).total
    return total


def expert_parameters(arch: Architecture, *, include_mtp: bool = False) -> int:
    """Parameters of all routed experts."""
    return model_weights(arch, include_mtp=include_mtp).routed


def active_parameters(
    arch: Architecture, *, include_mtp: bool = False, embedding: bool = True, output: bool = True
) -> int:
    """Parameters that one token passes: all but the routed experts that its router leaves out.

    Arguments as in :func:`total_parameters`; of the embedding a token reads one row only, so some authors leave it out.
    """
    total = total_parameters(arch, include_mtp=include_mtp, embedding=embedding, output=output)
    if not arch.is_moe:
        return total
    experts, chosen = _need(arch, "num_moe_experts", "moe_router_topk")
    return total - expert_parameters(arch, include_mtp=include_mtp) // experts * (experts - chosen)


@lru_cache(maxsize=16384)
def stage_layers(
    num_layers: int,
    pp: int,
    vpp: int | None = None,
    first: int | None = None,
    last: int | None = None,
    account_for_embedding: bool = False,
    account_for_loss: bool = False,
    layout: Layout | None = None,
) -> tuple[tuple[range, ...], ...]:
    """Decoder layers of each pipeline rank and virtual stage, as Core places them.

    Virtual stage v of rank p comes v * PP + p-th in the order of the layers (Core: ``get_num_layers_to_build``,
    ``get_transformer_layer_offset``).

    Args:
        num_layers: decoder layers of the model.
        pp, vpp: pipeline size, virtual stages of a rank (None: not interleaved).
        first, last: ``num_layers_in_first_pipeline_stage``, ``num_layers_in_last_pipeline_stage``.
        account_for_embedding, account_for_loss: let embedding or loss take the place of one layer.
        layout: an explicit layout, which decides alone.

    Returns:
        ``[rank][virtual stage]`` -> range of layer indices (0-based); shape (PP, VPP), ``len`` gives the count.

    Raises:
        RequestError: the layers can't be placed so; names the field.
    """
    if layout is not None:
        counts = _layout_counts(num_layers, pp, vpp, layout)
    else:
        counts = _even_counts(num_layers, pp, vpp, first, last, account_for_embedding, account_for_loss)
    chunks = len(counts[0])
    ranges: dict[tuple[int, int], range] = {}
    start = 0
    for chunk in range(chunks):
        for rank in range(pp):
            ranges[rank, chunk] = range(start, start + counts[rank][chunk])
            start += counts[rank][chunk]
    if start != num_layers:
        raise RequestError(
            "grid.num_layers_in_first_pipeline_stage",
            first,
            f"and num_layers_in_last_pipeline_stage = {last} place {start} of {num_layers} layers",
            "First, last and middle stages must add up to num_layers.",
        )
    return tuple(tuple(ranges[rank, chunk] for chunk in range(chunks)) for rank in range(pp))


def _layout_counts(num_layers: int, pp: int, vpp: int | None, layout: Layout) -> list[list[int]]:
    chunks = len(layout) // pp
    if len(layout) % pp or (vpp is not None and vpp != chunks):
        raise RequestError(
            LAYOUT_FIELD, str(layout), f"has {len(layout)} entries", f"It needs PP * VPP = {pp} * {vpp or 1} of them."
        )
    if layout.decoder_layers != num_layers:
        raise RequestError(
            LAYOUT_FIELD, str(layout), f"places {layout.decoder_layers} decoder layers", f"The model has {num_layers}."
        )
    return [[layout.entries[chunk * pp + rank].count("t") for chunk in range(chunks)] for rank in range(pp)]


def _even_counts(
    num_layers: int,
    pp: int,
    vpp: int | None,
    first: int | None,
    last: int | None,
    account_for_embedding: bool,
    account_for_loss: bool,
) -> list[list[int]]:
    if first is not None or last is not None:
        if account_for_embedding or account_for_loss:
            raise RequestError(
                "grid.account_for_embedding_in_pipeline_split",
                account_for_embedding,
                "can't be combined with a first or last stage of its own size (nor can the one for the loss)",
                "Drop one of the two.",
            )
        given = [n for n in (first, last) if n is not None]
        middle, rest = max(pp - len(given), 0), num_layers - sum(given)
        if rest < 0 or (middle and rest % middle):
            raise RequestError(
                "model.num_layers",
                num_layers,
                f"leaves {rest} layers for {middle} stages between the first and the last",
                "Choose first and last stages so that the rest divides evenly.",
            )
        ranks = [rest // middle if middle else 0] * pp
        if first is not None:
            ranks[0] = first
        if last is not None:
            ranks[-1] = last
    else:
        slots = num_layers + account_for_embedding + account_for_loss
        if slots % pp:
            raise RequestError(
                "grid.pipeline_model_parallel_size",
                pp,
                f"doesn't divide {slots} (layers, with embedding and loss where they count)",
                "Choose a divisor, or give a layout.",
            )
        ranks = [slots // pp] * pp
    chunks = vpp or 1
    if uneven := [n for n in ranks if n % chunks]:
        raise RequestError(
            "grid.virtual_pipeline_model_parallel_size",
            vpp,
            f"doesn't divide the {uneven[0]} layers of a stage",
            "Choose a divisor, or give a layout.",
        )
    counts = [[n // chunks] * chunks for n in ranks]
    counts[0][0] -= account_for_embedding
    counts[-1][-1] -= account_for_loss
    if min(counts[0][0], counts[-1][-1]) < 0:
        raise RequestError(
            "grid.pipeline_model_parallel_size", pp, "leaves no room for embedding and loss", "Use fewer stages."
        )
    return counts
