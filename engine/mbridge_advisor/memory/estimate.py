"""Peak memory of each candidate: the worst pipeline rank, its components, and the moment of the peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..architecture import Architecture
from ..knowledge.model import Gpu
from . import calibration as calibration_
from .grids import Floats, Grids, Ints
from .layers import (
    LINEAR_BYTES,
    Saved,
    Shape,
    Weights,
    adapters,
    distinct_linear_weights,
    mtp_depth,
    mtp_saved,
    saved,
    shape,
    state_bytes,
    weights,
)
from .parameters import embedding_weights, final_norm_weights, padded_vocab_size
from .plan import Stages, stages, unique_columns
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
MOMENTS = ("forward_backward", "loss", "embedding_backward", "optimizer_step")
MIB = 1024.0 * 1024.0


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
        gpu: the device (decides on 8-bit copies and workspaces); None: a Hopper-class one.
        calibration: constants by name; None: those of the knowledge base.
    """
    return _chunks(arch, settings, grids, gpu, calibration, None)


def estimate_stage(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    stage: int,
    gpu: Gpu | None = None,
    calibration: Mapping[str, float] | None = None,
) -> MemoryEstimate:
    """As :func:`estimate`, for one given pipeline rank (negative counts from the last)."""
    return _chunks(arch, settings, grids, gpu, calibration, stage)


def _chunks(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu | None,
    calibration: Mapping[str, float] | None,
    only: int | None,
) -> MemoryEstimate:
    constants = calibration_.default() if calibration is None else calibration
    parts = [_estimate(arch, settings, part, gpu, constants, only) for part in grids.slices()]
    if len(parts) == 1:
        return parts[0]
    return MemoryEstimate(
        {name: np.concatenate([p.components[name] for p in parts]) for name in COMPONENTS},
        *(
            np.concatenate([getattr(p, f) for p in parts])
            for f in ("total", "stage", "moment", "end_of_step", "reserved", "outside_allocator")
        ),
    )


@dataclass(frozen=True)
class _Rows:
    """What the rows of :class:`Stages` need of their candidates, shape (R,).

    Attributes:
        s: shapes; kinds, saves, mtp, mtp_save: weights and activations by kind of layer and of MTP.
        vocab: rows of the embedding on a rank.
    """

    grids: Grids
    st: Stages
    s: Shape
    kinds: list[Weights]
    saves: list[Saved]
    mtp: Weights | None
    mtp_save: Saved | None
    vocab: Floats


def _rows(arch: Architecture, settings: Settings, grids: Grids, only: int | None) -> _Rows:
    """Layers depend on few columns, so they are worked out once for each distinct combination."""
    st = stages(arch, grids, int(settings.overlap_moe_expert_parallel_comm), only)
    first, inverse = unique_columns(
        np.stack(
            [
                grids.tp,
                grids.cp,
                grids.ep,
                grids.etp,
                grids.sp.astype(np.int64),
                grids.mbs,
                grids.recompute,
            ]
        )
    )
    few = shape(arch, settings, grids.take(first))
    index = inverse[st.candidate]
    has_mtp = bool(arch.mtp_num_layers)
    return _Rows(
        grids.take(st.candidate),
        st,
        few.take(index),
        [weights(arch, kind, few).take(index) for kind in st.kinds],
        [saved(arch, settings, kind, few).take(index) for kind in st.kinds],
        mtp_depth(arch, few).take(index) if has_mtp else None,
        mtp_saved(arch, settings, few).take(index) if has_mtp else None,
        (padded_vocab_size(arch, grids.tp[first]) / few.tp)[index],
    )


def _estimate(
    arch: Architecture,
    settings: Settings,
    grids: Grids,
    gpu: Gpu | None,
    constants: Mapping[str, float],
    only: int | None,
) -> MemoryEstimate:
    r = _rows(arch, settings, grids, only)
    out = _static(arch, settings, r, gpu, _parameters(arch, settings, r))
    out["workspace"] = _workspace(arch, settings, r, gpu)
    late = out.pop("late_gradients")
    static = sum(out.values(), np.zeros(len(r.vocab)))
    end = static + late
    kept, temporary = _activations(arch, settings, r)
    loss = _loss(arch, settings, r)
    working = out.pop("working")
    end = end - working
    held = static + sum(kept.values(), np.zeros(len(r.vocab)))
    # The embedding's gradient is a dense matrix, made when the oldest micro-batch has left its first virtual stage.
    table = r.st.embedding * r.vocab * arch.hidden_size * float(settings.element_bytes)
    oldest = sum((kept[name] for name in kept if name != "embedding"), np.zeros(len(r.vocab)))
    oldest = oldest / np.maximum(r.st.embedding_kept, 1) / r.grids.vpp
    if settings.task == "lora":
        table = 0 * table
    totals = np.stack([held + temporary, held + loss, held - oldest + table, end + working])
    row = r.st.worst(totals.max(axis=0))
    moment = totals[:, row].argmax(axis=0)
    asleep = moment == 3
    components = {name: out[name][row] for name in COMPONENTS if name in out}
    components |= {name: np.where(asleep, 0, value[row]) for name, value in kept.items()}
    for name in ("activations_norm", "activations_attention", "activations_mlp", "activations_moe"):
        share = oldest[row] / np.maximum(held[row] - static[row] - kept["embedding"][row], 1)
        components[name] = np.where(moment == 2, components[name] * (1 - share), components[name])
    components["logits_loss"] = np.where(moment == 1, loss[row], 0)
    extra = np.choose(moment, [temporary[row], 0, table[row], late[row]])
    components["temporaries"] = extra + working[row]
    total = totals[moment, row]
    reserved = total * (1 + constants["fragmentation"]) + _graph_pool(settings, components)
    sizes = (grids.tp, grids.pp, grids.cp, grids.ep, grids.dp)
    groups = sum(((n > 1).astype(float) for n in sizes), np.zeros(len(grids)))
    outside = constants["outside_allocator_bytes"] + constants["communicator_bytes"] * groups
    return MemoryEstimate(
        {name: components[name] for name in COMPONENTS}, total, r.st.rank[row], moment, end[row], reserved, outside
    )


def _graph_pool(settings: Settings, components: Mapping[str, Floats]) -> Floats:
    """Captured modules lie in a memory pool of their own.

    What they took while they still ran eagerly stays cached, and useless to that pool, unless segments are expandable.
    A graph of the whole iteration holds everything in one pool.
    """
    scope = settings.cuda_graph_scope
    expandable = "expandable_segments:True" in (settings.pytorch_cuda_alloc_conf or "")
    none = 0 * components["weights"]
    if settings.cuda_graph_impl == "none" or not scope or expandable:
        return none
    captured = {"activations_attention": "attn", "activations_mlp": "mlp", "activations_moe": "moe"}
    return sum((components[name] for name, module in captured.items() if module in scope), none)


def _parameters(arch: Architecture, settings: Settings, r: _Rows) -> Weights:
    """Parameters of each row's rank."""
    h, tied = arch.hidden_size, arch.share_embeddings_and_output_weights
    st = r.st
    zero = np.zeros(len(r.vocab))
    total = Weights(zero, zero, zero, zero)
    for n, w in zip(st.layers, r.kinds, strict=True):
        total = total + w.times(n)
    if r.mtp is not None:
        total = total + r.mtp.times(np.minimum(st.mtp, 1) if arch.mtp_use_repeated_layer else st.mtp)
    # A tied output layer away from the embedding, and MTP there, keep a copy of the embedding.
    apart = 1 - st.embedding
    tables = st.embedding + st.loss * (apart if tied else 1) + (st.mtp > 0) * apart * (0 if tied else 1)
    other = st.loss * final_norm_weights(arch).replicated + st.embedding * embedding_weights(arch, 0).replicated
    return total + Weights(tables * r.vocab * h + other, zero, zero, zero)


def _static(arch: Architecture, settings: Settings, r: _Rows, gpu: Gpu | None, p: Weights) -> dict[str, Floats]:
    """Weights, gradients and optimizer; ``working``: gathered by FSDP; ``late_gradients``: made by the optimizer."""
    e = float(settings.element_bytes)
    grids = r.grids
    zero = np.zeros(len(r.vocab))
    shard = np.maximum(grids.dp * grids.cp / settings.num_distributed_optimizer_instances, 1.0)
    expert_shard = np.maximum(grids.edp / settings.num_distributed_optimizer_instances, 1.0)
    linear, parameters = p.dense_linear + p.expert_linear, p.dense + p.expert
    # 8-bit weights: stored instead of, or made beside, the 16-bit ones; MXFP8 scales rows and columns apart.
    weight_bytes, copies = parameters * e, zero
    if settings.low_precision:
        kept = settings.low_precision_parameters
        twice = settings.precision in ("fp8_mx", "nvfp4") or (
            not kept and (gpu is None or gpu.compute_capability < 100)
        )
        one = LINEAR_BYTES.get(settings.precision, 1.0)
        if kept:
            weight_bytes = weight_bytes - linear * (e - one)
            copies = linear * one if twice else zero
        else:
            copies = linear * one * (2 if twice else 1)
    gradient_bytes = 4.0 if settings.grad_reduce_in_fp32 or e == 4 else e
    main, states, matrix_states = state_bytes(settings)
    trained, sharded = parameters, p.dense / shard + p.expert / expert_shard
    matrices, sharded_matrices = linear, p.dense_linear / shard + p.expert_linear / expert_shard
    if settings.task == "lora":
        trained = sum(
            (n * adapters(arch, settings, kind, r.s) for n, kind in zip(r.st.layers, r.st.kinds, strict=True)), zero
        )
        matrices, sharded, sharded_matrices = trained, trained / shard, trained / shard
        weight_bytes = weight_bytes + trained * e
    distributed = settings.use_distributed_optimizer or settings.use_megatron_fsdp
    owned, owned_matrices = (sharded, sharded_matrices) if distributed else (trained, matrices)
    gradients = trained * gradient_bytes
    working = zero
    if settings.use_megatron_fsdp:
        strategy = settings.data_parallel_sharding_strategy
        largest = np.max([w.dense + w.expert for w in r.kinds], axis=0)
        if strategy == "optim_grads_params":
            # Two layers are gathered at a time; with overlap the embedding and output layer stay so.
            working = 2 * largest * e
            weight_bytes = weight_bytes * sharded / np.maximum(parameters, 1)
            if settings.overlap_param_gather:
                weight_bytes = weight_bytes + (r.st.embedding + r.st.loss) * r.vocab * arch.hidden_size * e
            copies = copies * sharded / np.maximum(parameters, 1)
        if strategy in ("optim_grads", "optim_grads_params"):
            # Gradients are whole until they are reduced: two layers', or without overlap all.
            working = working + (2 * largest if settings.overlap_grad_reduce else trained) * gradient_bytes
            gradients = sharded * gradient_bytes
    on_device = 1 - settings.optimizer_offload_fraction if settings.optimizer_cpu_offload else 1.0
    converts = gradient_bytes == 2 and main > 0 and not settings.use_precision_aware_optimizer
    return {
        "weights": weight_bytes,
        "gradients": gradients,
        "main_params": owned * main * on_device,
        "optimizer_states": (owned * states - owned_matrices * (states - matrix_states)) * on_device,
        "fp8_copies": copies,
        "working": working,
        "late_gradients": owned * 4 * on_device if converts else zero,
    }


def _workspace(arch: Architecture, settings: Settings, r: _Rows, gpu: Gpu | None) -> Floats:
    """Buffers that live from the first step on.

    cuBLAS workspaces: Transformer Engine's (32 MiB from Hopper on, 4 before; four more for grouped GEMMs, one a
    stream) and PyTorch's, one for the forward and one for the autograd thread. With fused weight gradients Transformer
    Engine keeps a dummy gradient of each distinct weight shape. The output layer gathers its input into a buffer under
    sequence parallelism, local attention multiplies into one. Received activations and gradients of each virtual stage
    stay referenced until the next step.
    """
    s, st, grids = r.s, r.st, r.grids
    modern = gpu is None or gpu.compute_capability >= 90
    e = float(settings.element_bytes)
    engine = settings.transformer_impl == "transformer_engine"
    torch_ = settings.cublas_workspace_bytes
    fixed = 2.0 * (torch_ if torch_ is not None else 32 * MIB if modern else 8.125 * MIB)
    if engine:
        fixed += (32 if modern else 4) * MIB * (5 if arch.is_moe and settings.moe_grouped_gemm else 1)
    out = fixed + np.where(grids.pp > 1, 2 * grids.vpp * s.sp_tokens * arch.hidden_size * e, 0)
    if settings.gradient_accumulation_fusion and settings.task != "lora" and not settings.use_megatron_fsdp:
        for n, w in zip(st.layers, r.kinds, strict=True):
            out = out + np.where(n > 0, distinct_linear_weights(arch, w, s), 0) * e
        out = out + st.loss * r.vocab * arch.hidden_size * e
    out = out + st.loss * np.where(grids.sp, s.tokens * arch.hidden_size * e, 0)
    if not engine:
        out = out + s.tokens * arch.num_attention_heads / s.tp * s.seq * s.cp * e
    return np.asarray(out)


def _activations(arch: Architecture, settings: Settings, r: _Rows) -> tuple[dict[str, Floats], Floats]:
    """(bytes kept for the backward pass by component, largest temporary)."""
    st, s, grids = r.st, r.s, r.grids
    zero = np.zeros(len(r.vocab))
    parts = [(n, kept, a) for n, kept, a in zip(st.layers, st.kept, r.saves, strict=True)]
    if r.mtp_save is not None:
        parts.append((st.mtp, st.mtp_kept, r.mtp_save))
    keep = {
        f"activations_{name}": sum((kept * getattr(a, name) for _, kept, a in parts), zero)
        for name in ("norm", "attention", "mlp", "moe")
    }
    temporary = np.max([np.where(n > 0, a.temporary, 0) for n, _, a in parts], axis=0)
    if settings.cpu_offloading_num_layers:
        layers = np.maximum(st.layers.sum(axis=0), 1)
        stays = np.maximum(1 - settings.cpu_offloading_num_layers / layers, np.minimum(2 / layers, 1))
        keep = {name: value * stays for name, value in keep.items()}
    table = grids.recomputes
    full = np.array([t.granularity == "full" for t in table])[grids.recompute]
    if full.any():
        number = np.array([float(t.num_layers or 1) for t in table])[grids.recompute]
        block = np.array([t.method == "block" for t in table])[grids.recompute]
        chunk = np.maximum(st.chunk, 1)
        # uniform: groups of ``number`` layers keep their input; block: the first ``number`` of a virtual stage do
        share = np.where(full, np.where(block, np.minimum(number / chunk, 1), 1.0), 0)
        group = np.where(block, np.minimum(number, 1), np.minimum(number, chunk))
        inputs = sum((kept * a.input for _, kept, a in parts), zero)
        largest = np.max([np.where(n > 0, a.total, 0) for n, _, a in parts], axis=0)
        temporary = temporary + np.where(full, largest * group, 0)
        keep = {name: value * (1 - share) for name, value in keep.items()}
        keep["activations_norm"] = keep["activations_norm"] + share * inputs / np.maximum(group, 1)
    if not settings.gradient_accumulation_fusion:
        widest = np.max(
            [np.where(n > 0, distinct_linear_weights(arch, w, s), 0) for n, w in zip(st.layers, r.kinds, strict=True)],
            axis=0,
        )
        temporary = temporary + widest / 2 * float(settings.element_bytes)
    # token ids, labels, positions (8 bytes each), loss mask; the dropout mask of the embedding; the attention mask
    dropout = s.sp_tokens * arch.hidden_size if settings.hidden_dropout > 0 else zero
    keep["embedding"] = st.embedding_kept * (s.tokens * 28 + dropout)
    if not settings.skip_getting_attention_mask_from_dataset:
        keep["embedding"] = keep["embedding"] + grids.mbs * float(settings.seq_length) ** 2 / s.cp
    return keep, temporary


def _loss(arch: Architecture, settings: Settings, r: _Rows) -> Floats:
    """Bytes around the loss: final norm's input and output, logits, and what the loss makes of them.

    Unfused: the fp32 softmax beside the logits (fp32 logits are overwritten). Native fused: one more fp32 copy.
    Transformer Engine: the gradient overwrites the logits. An MTP depth keeps its share until the main loss is done.
    """
    e = float(settings.element_bytes)
    st, s = r.st, r.s
    logits = s.tokens * r.vocab
    in_place = settings.cross_entropy_loss_fusion and settings.cross_entropy_fusion_impl == "te"
    if in_place or (e == 4 and not settings.cross_entropy_loss_fusion):
        around, later = e, e
    else:
        around, later = e + (8 if settings.cross_entropy_loss_fusion else 4), 4.0
    hidden = s.sp_tokens * arch.hidden_size * e
    loss = (logits * around + 2 * hidden) + st.mtp * (logits * later + 2 * hidden)
    if settings.defer_embedding_wgrad_compute:
        limit = settings.wgrad_deferral_limit or r.grids.num_microbatches
        loss = loss + limit * logits * e + r.grids.num_microbatches * hidden
    return np.asarray(st.loss * loss)
