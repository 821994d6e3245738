"""Peak memory of each candidate: the worst pipeline rank, its components, and the moment of the peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..architecture import Architecture
from ..knowledge.model import Gpu
from . import calibration as calibration_
from .grids import Floats, Grids, Ints
from .layers import Saved, Shape, distinct_linear_weights, norm_parameters, saved, shape, state_bytes, weights
from .plan import Kind, Stages, stages
from .settings import Settings

COMPONENTS = (
    "weights",
    "gradients",
    "main_params",
    "optimizer_states",
    "fp8_copies",
    "activations_norm",
    "activations_attention",
    "activations_mlp",
    "activations_moe",
    "embedding",
    "logits_loss",
    "temporaries",
    "workspace",
)
MOMENTS = ("forward_backward", "loss", "optimizer_step")
CHUNK = 16384
"""Candidates evaluated at once, so that intermediate arrays stay in cache."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of each candidate in bytes, arrays of shape (N,).

    Attributes:
        components: bytes by component (:data:`COMPONENTS`) on the rank and at the moment of the peak.
        total: their sum, what ``torch.cuda.max_memory_allocated`` shows.
        stage: pipeline rank of the peak.
        moment: index into :data:`MOMENTS`.
        end_of_step: allocated between two steps on that rank.
        reserved: what the caching allocator holds at the peak, fragmentation included.
        outside_allocator: CUDA context, NCCL and libraries.
    """

    components: Mapping[str, Floats]
    total: Floats
    stage: Ints
    moment: Ints
    end_of_step: Floats
    reserved: Floats
    outside_allocator: Floats

    @property
    def device(self) -> Floats:
        """What the device must hold: reserved memory and what lies outside the allocator."""
        return self.reserved + self.outside_allocator

    def verdict(self, capacity: float) -> Ints:
        """0 fits, 1 tight, 2 does not fit, for a device with ``capacity`` bytes.

        *Fits* where even the upper end of the calibrated range is below capacity; *does not fit* where allocated
        memory alone is above it; *tight* between.
        """
        tight = self.device > capacity
        return np.where(self.total + self.outside_allocator > capacity, 2, np.where(tight, 1, 0)).astype(np.int64)


def estimate(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu | None = None,
    calibration: Mapping[str, float] | None = None,
) -> MemoryEstimate:
    """Estimate all candidates of ``grids``.

    Args:
        arch, settings: the model and what the candidates share.
        grids: N candidates; they need not be valid, the estimate is finite anyway.
        gpu: the device (decides on 8-bit transposes); None: a Hopper-class one.
        calibration: constants by name; None: those of the knowledge base.
    """
    constants = calibration_.default() if calibration is None else calibration
    parts = [
        _estimate(arch, settings, grids.take(slice(i, i + CHUNK)), gpu, constants, None)
        for i in range(0, max(len(grids), 1), CHUNK)
    ]
    if len(parts) == 1:
        return parts[0]
    return MemoryEstimate(
        {name: np.concatenate([p.components[name] for p in parts]) for name in COMPONENTS},
        *(
            np.concatenate([getattr(p, f) for p in parts])
            for f in ("total", "stage", "moment", "end_of_step", "reserved", "outside_allocator")
        ),
    )


def estimate_stage(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    stage: int,
    gpu: Gpu | None = None,
    calibration: Mapping[str, float] | None = None,
) -> MemoryEstimate:
    """As :func:`estimate`, for one given pipeline rank (negative counts from the last) of candidates with equal PP."""
    constants = calibration_.default() if calibration is None else calibration
    return _estimate(arch, settings, grids, gpu, constants, stage % int(grids.pp[0]))


def padded_vocab_size(arch: Architecture, tp: Floats) -> Floats:
    """Vocabulary padded to a multiple of ``make_vocab_size_divisible_by`` * TP (Bridge's ``should_pad_vocab``)."""
    if not arch.should_pad_vocab:
        return np.full_like(tp, arch.vocab_size)
    multiple = arch.make_vocab_size_divisible_by * tp
    return np.asarray(np.ceil(arch.vocab_size / multiple) * multiple)


def _estimate(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu | None,
    constants: Mapping[str, float],
    only: int | None,
) -> MemoryEstimate:
    s = shape(arch, settings, grids)
    st = stages(arch, grids, int(settings.overlap_moe_expert_parallel_comm), all_ranks=only is not None)
    layer_weights = [weights(arch, kind, s) for kind in st.kinds]
    layer_saved = [saved(arch, settings, kind, s) for kind in st.kinds]
    best: dict[str, Floats] | None = None
    for slot in range(st.rank.shape[0]) if only is None else [only]:
        found = _slot(arch, settings, grids, gpu, constants, s, st, slot, layer_weights, layer_saved)
        if best is None:
            best = found
        else:
            better = found["total"] > best["total"]
            if better.any():
                best = {name: np.where(better, found[name], best[name]) for name in best}
    assert best is not None
    reserved = best["total"] * (1 + constants["fragmentation"])
    outside = np.full(len(grids), constants["outside_allocator_bytes"])
    return MemoryEstimate(
        {name: best[name] for name in COMPONENTS},
        best["total"],
        best["stage"].astype(np.int64),
        best["moment"].astype(np.int64),
        best["end_of_step"],
        reserved,
        outside,
    )


def _slot(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu | None,
    constants: Mapping[str, float],
    s: Shape,
    st: Stages,
    slot: int,
    layer_weights: list,
    layer_saved: list[Saved],  # type: ignore[type-arg]
) -> dict[str, Floats]:
    """Everything on one pipeline rank of each candidate."""
    e = float(settings.element_bytes)
    h = arch.hidden_size
    zero = np.zeros(len(grids))
    # parameters
    dense, expert, dense_linear, expert_linear = zero, zero, zero, zero
    for k, w in enumerate(layer_weights):
        n = st.layers[slot, k]
        dense, expert = dense + n * w.dense, expert + n * w.expert
        dense_linear, expert_linear = dense_linear + n * w.dense_linear, expert_linear + n * w.expert_linear
    mtp = st.mtp[slot]
    last = layer_weights[-1]
    dense = dense + mtp * (last.dense + 2 * h * h / s.tp + 3 * norm_parameters(arch, h))
    dense_linear = dense_linear + mtp * (last.dense_linear + 2 * h * h / s.tp)
    expert, expert_linear = expert + mtp * last.expert, expert_linear + mtp * last.expert_linear
    vocab = padded_vocab_size(arch, s.tp) / s.tp
    has_embedding, has_loss = st.embedding[slot], st.loss[slot]
    tied = arch.share_embeddings_and_output_weights
    tables = has_embedding + has_loss * (1 - has_embedding if tied else 1)
    tables = tables + (mtp > 0) * (1 - has_embedding) * (0 if tied else 1)  # MTP keeps a copy of the embedding
    dense = dense + tables * vocab * h + has_loss * norm_parameters(arch, h)
    if arch.position_embedding_type == "learned_absolute":
        dense = dense + has_embedding * (arch.max_position_embeddings or settings.seq_length) * h

    out = _static(settings, grids, constants, gpu, dense, expert, dense_linear, expert_linear)
    out["workspace"] = _workspace(arch, settings, grids, gpu, s, st, slot, vocab)
    out["end_of_step"] = sum(out.values(), zero)

    # activations
    keep = {name: zero for name in ("norm", "attention", "mlp", "moe")}
    temporary = zero
    full = np.array([r.granularity == "full" for r in grids.recomputes])[grids.recompute]
    saved_full = zero
    for k, a in enumerate(layer_saved):
        kept = st.kept[slot, k] + (st.mtp_kept[slot] if k == len(layer_saved) - 1 else 0)
        for name in keep:
            keep[name] = keep[name] + kept * getattr(a, name)
        saved_full = saved_full + kept * a.input
        temporary = np.maximum(temporary, np.where(st.layers[slot, k] > 0, a.temporary, 0))
    if full.any():
        fraction, group = _full_recompute(grids, st, slot)
        largest = np.max([np.where(st.layers[slot, k] > 0, a.total, 0) for k, a in enumerate(layer_saved)], axis=0)
        temporary = temporary + np.where(full, largest * group, 0)
        for name in keep:
            keep[name] = np.where(full, keep[name] * (1 - fraction), keep[name])
        keep["norm"] = keep["norm"] + np.where(full, saved_full * fraction / np.maximum(group, 1), 0)
    out["activations_norm"], out["activations_attention"] = keep["norm"], keep["attention"]
    out["activations_mlp"], out["activations_moe"] = keep["mlp"], keep["moe"]
    # embedding: token ids, labels, masks and positions (8 bytes each), the dropout mask
    out["embedding"] = st.embedding_kept[slot] * (
        s.tokens * 5 * 8 + (s.sp_tokens * h if settings.hidden_dropout > 0 else 0)
    )
    # final norm input and output, then logits and loss; once for each MTP depth
    heads = has_loss * (1 + np.where(mtp > 0, mtp, 0))
    loss = _loss(settings, s.tokens * vocab, e) * has_loss + heads * s.sp_tokens * h * 2 * e
    # An MTP depth keeps what its loss needs until the main loss is done.
    loss = loss + (heads - has_loss) * s.tokens * vocab * (4.0 if not _te_loss(settings) else e)
    if settings.defer_embedding_wgrad_compute:
        limit = settings.wgrad_deferral_limit or grids.num_microbatches
        loss = loss + has_loss * (limit * s.tokens * vocab * e + grids.num_microbatches * s.sp_tokens * h * e)
    if not settings.skip_getting_attention_mask_from_dataset:
        out["embedding"] = out["embedding"] + grids.mbs * float(settings.seq_length) ** 2 / s.cp
    at_loss = loss > temporary
    out["logits_loss"] = np.where(at_loss, loss, 0)
    out["temporaries"] = np.where(at_loss, 0, temporary)
    total = zero
    for name in COMPONENTS:
        total = total + out[name]
    out["total"] = total
    out["stage"] = st.rank[slot].astype(float)
    out["moment"] = np.where(at_loss, 1.0, 0.0)
    return out


def _full_recompute(grids: Grids, st: Stages, slot: int) -> tuple[Floats, Floats]:
    """(share of layers recomputed, layers of a group) under full recompute."""
    table = grids.recomputes
    number = np.array([float(r.num_layers or 1) for r in table])[grids.recompute]
    block = np.array([r.method == "block" for r in table])[grids.recompute]
    per_chunk = np.maximum(st.layers[slot].sum(axis=0) / grids.vpp, 1)
    share = np.where(block, np.minimum(number / per_chunk, 1), 1.0)
    return share, np.where(block, np.minimum(number, 1), np.minimum(number, per_chunk))


def _loss(settings: Settings, logits: Floats, e: float) -> Floats:
    """Bytes around the loss for ``logits`` elements.

    Unfused: logits and the fp32 softmax made from them. Native fused: one more fp32 copy. TE: in place, the
    gradient overwrites the logits.
    """
    if _te_loss(settings):
        return logits * e
    return logits * (e + (8 if settings.cross_entropy_loss_fusion else 4))


def _te_loss(settings: Settings) -> bool:
    return settings.cross_entropy_loss_fusion and settings.cross_entropy_fusion_impl == "te"


def _static(
    settings: Settings,
    grids: Grids,
    constants: Mapping[str, float],
    gpu: Gpu | None,
    dense: Floats,
    expert: Floats,
    dense_linear: Floats,
    expert_linear: Floats,
) -> dict[str, Floats]:
    """Weights, gradients and optimizer of a rank with the given parameters."""
    e = float(settings.element_bytes)
    zero = np.zeros(len(grids))
    instances = settings.num_distributed_optimizer_instances
    shard = np.maximum(grids.dp * grids.cp / instances, 1.0)
    expert_shard = np.maximum(grids.edp / instances, 1.0)
    trainable = 1.0
    lora = zero
    if settings.task == "lora":
        trainable = 0.0
        lora = (dense_linear + expert_linear) * 0 + settings.lora_rank * 2 * np.sqrt(dense_linear + expert_linear)
    linear = dense_linear + expert_linear
    parameters = dense + expert
    weight_bytes = parameters * e
    copies = zero
    if settings.low_precision:
        hopper = gpu is None or gpu.compute_capability < 100
        both = hopper or settings.precision == "fp8_mx"  # a second, transposed or column-wise scaled copy
        eight = linear * (2.0 if both else 1.0)
        if settings.fp8_param_gather:
            weight_bytes = weight_bytes - linear * e + linear
            copies = eight - linear
        else:
            copies = eight
    gradient_bytes = 4.0 if settings.grad_reduce_in_fp32 or settings.precision == "fp32" else e
    gradients = (parameters * trainable + lora) * gradient_bytes
    main, states, matrix_states = state_bytes(settings)
    sharded = dense / shard + expert / expert_shard
    distributed = settings.use_distributed_optimizer or settings.use_megatron_fsdp
    owned = (sharded if distributed else parameters) * trainable + lora
    matrices = dense_linear / shard + expert_linear / expert_shard if distributed else linear
    state = owned * states - matrices * trainable * (states - matrix_states)
    if settings.use_megatron_fsdp:
        strategy = settings.data_parallel_sharding_strategy
        if strategy == "optim_grads_params":
            unit = np.where(parameters > 0, sharded / np.maximum(parameters, 1), 1.0)
            weight_bytes = weight_bytes * unit
        if strategy in ("optim_grads", "optim_grads_params"):
            gradients = sharded * trainable * gradient_bytes
    on_device = 1 - settings.optimizer_offload_fraction if settings.optimizer_cpu_offload else 1.0
    late = owned * 4 if gradient_bytes == 2 and main and not settings.use_precision_aware_optimizer else zero
    out = {
        "weights": weight_bytes + lora * e,
        "gradients": gradients,
        "main_params": owned * main * on_device,
        "optimizer_states": state * on_device,
        "fp8_copies": copies,
    }
    out["late_gradients"] = late
    return out


MIB = 1024.0 * 1024.0


def _workspace(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu | None,
    s: Shape,
    st: Stages,
    slot: int,
    vocab: Floats,
) -> Floats:
    """Buffers that live from the first step on.

    cuBLAS workspaces: Transformer Engine's (32 MiB from Hopper on, 4 before; four more for grouped GEMMs, one a
    stream) and PyTorch's, one for the forward and one for the autograd thread. With fused weight gradients Transformer
    Engine keeps a dummy gradient of each distinct weight shape. The output layer gathers its input into a buffer under
    sequence parallelism, local attention multiplies into one. Received activations and gradients of each virtual stage
    stay referenced until the next step.
    """
    modern = gpu is None or gpu.compute_capability >= 90
    e = float(settings.element_bytes)
    engine = settings.transformer_impl == "transformer_engine"
    te = (32 if modern else 4) * MIB
    torch_ = settings.cublas_workspace_bytes
    fixed = 2.0 * (torch_ if torch_ is not None else 32 * MIB if modern else 8.125 * MIB)
    if engine:
        fixed += te * (5 if arch.is_moe and settings.moe_grouped_gemm else 1)
    out = np.full(len(grids), fixed)
    hidden = s.sp_tokens * arch.hidden_size * e
    out = out + np.where(grids.pp > 1, 2 * grids.vpp * hidden, 0)
    if settings.gradient_accumulation_fusion and settings.task != "lora":
        for k, kind in enumerate(st.kinds):
            out = out + np.where(st.layers[slot, k] > 0, distinct_linear_weights(arch, kind, s), 0) * e
        out = out + st.loss[slot] * vocab * arch.hidden_size * e
    out = out + st.loss[slot] * np.where(grids.sp, s.tokens * arch.hidden_size * e, 0)
    if not engine:
        out = out + s.tokens * arch.num_attention_heads / s.tp * s.seq * s.cp * e
    return out
