"""Which layers a pipeline stage holds and how many micro-batches it keeps, for every distinct pipeline.

Rules are those of Megatron Core: ``get_num_layers_to_build`` and ``get_transformer_layer_offset`` for the layers,
``get_pp_rank_microbatches`` and ``get_schedule_table`` for the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..architecture import Architecture
from ..errors import RequestError
from .grids import Floats, Grids, Ints, StageLayout
from .parameters import LayerKind, layer_kinds, stage_layers


@dataclass(frozen=True)
class Pipeline:
    """One distinct pipeline, as arrays over its pipeline ranks.

    Attributes:
        layers: decoder layers by rank, virtual stage and kind, shape (pp, vpp, kinds).
        mtp: MTP layers by rank and virtual stage, shape (pp, vpp).
        loss: (rank, virtual stage) with output layer and loss.
    """

    layers: NDArray[np.int64]
    mtp: NDArray[np.int64]
    loss: tuple[int, int]


@lru_cache(maxsize=4096)
def pipeline(
    arch: Architecture,
    pp: int,
    vpp: int,
    layout: StageLayout | None,
    first: int,
    last: int,
    account_for_embedding: bool,
    account_for_loss: bool,
) -> Pipeline:
    """Lay the layers out over ranks and virtual stages.

    A split that Core refuses (layers that don't divide) is spread as evenly as it goes, so that the estimate of an
    invalid candidate is still finite.
    """
    kinds = layer_kinds(arch)
    distinct = tuple(dict.fromkeys(kinds))
    mtp = np.zeros((pp, vpp), dtype=np.int64)
    loss = (pp - 1, vpp - 1)
    if layout is not None and len(layout.layers) == pp * vpp and sum(layout.layers) == len(kinds):
        counts = list(layout.layers)
        mtp = np.array(layout.mtp, dtype=np.int64).reshape(vpp, pp).T.copy()
        loss = (layout.loss % pp, layout.loss // pp)
    else:
        counts = _counts(len(kinds), pp, vpp, first, last, account_for_embedding, account_for_loss)
        mtp[loss] = arch.mtp_num_layers or 0
    layers = np.zeros((pp, vpp, len(distinct)), dtype=np.int64)
    start = 0
    for entry, count in enumerate(counts):
        for kind in kinds[start : start + count]:
            layers[entry % pp, entry // pp, distinct.index(kind)] += 1
        start += count
    return Pipeline(layers, mtp, loss)


def _counts(n: int, pp: int, vpp: int, first: int, last: int, embedding: bool, loss: bool) -> list[int]:
    """Decoder layers of each entry, PP fastest."""
    try:
        placed = stage_layers(
            n, pp, vpp if vpp > 1 else None, first if first >= 0 else None, last if last >= 0 else None, embedding, loss
        )
    except RequestError:
        return [n // (pp * vpp) + (i < n % (pp * vpp)) for i in range(pp * vpp)]
    return [len(placed[p][v]) for v in range(vpp) for p in range(pp)]


@lru_cache(maxsize=8192)
def in_flight(pp: int, vpp: int, group: int, num_microbatches: int, extra: int) -> NDArray[np.int64]:
    """Micro-batches whose activations a rank keeps when it keeps most, by rank and virtual stage, shape (pp, vpp).

    ``extra`` is the additional warm-up micro-batch of the overlapped expert-parallel schedule (0 or 1).
    """
    out = np.zeros((pp, vpp), dtype=np.int64)
    for p in range(pp):
        if vpp == 1:
            out[p] = min(pp - p, num_microbatches)
            continue
        kept = min((pp - p - 1) * 2 + (vpp - 1) * group + extra + 1, num_microbatches * vpp)
        whole, rest = divmod(kept, group * vpp)
        for v in range(vpp):
            out[p, v] = whole * group + min(max(rest - v * group, 0), group)
        out[p] = np.minimum(out[p], num_microbatches)
    return out


@dataclass(frozen=True)
class Stages:
    """The stages that can hold the peak, for all candidates: arrays over (slots, N).

    A slot is one of the few pipeline ranks that can be the worst of a candidate: the first (most micro-batches and
    the embedding), the last (output layer and loss), the second (most micro-batches without the embedding) and the
    one with the most layers.

    Attributes:
        rank: pipeline rank, shape (slots, N).
        layers: decoder layers of the rank, shape (slots, kinds, N).
        kept: layers times micro-batches kept, shape (slots, kinds, N).
        mtp, mtp_kept: MTP layers, and times micro-batches; shape (slots, N).
        embedding, embedding_kept: 1.0 where the rank has the embedding, and micro-batches it keeps; (slots, N).
        loss: 1.0 where the rank has the output layer and loss, shape (slots, N).
        chunks_kept: virtual stages times micro-batches kept, shape (slots, N).
        kinds: the distinct kinds.
    """

    rank: Ints
    layers: Floats
    kept: Floats
    mtp: Floats
    mtp_kept: Floats
    embedding: Floats
    embedding_kept: Floats
    loss: Floats
    chunks_kept: Floats
    kinds: tuple[LayerKind, ...]


def stages(arch: Architecture, grids: Grids, extra_warmup: int = 0, all_ranks: bool = False) -> Stages:
    """Evaluate the distinct pipelines of ``grids`` and spread them over the candidates.

    ``all_ranks`` keeps every pipeline rank in a slot of its own (all candidates must then have one PP).
    """
    columns = np.stack(
        [
            grids.pp,
            grids.vpp,
            grids.layout,
            grids.first_layers,
            grids.last_layers,
            grids.account_for_embedding.astype(np.int64),
            grids.account_for_loss.astype(np.int64),
            grids.microbatch_group_size,
            np.minimum(grids.num_microbatches, 4 * grids.pp + grids.microbatch_group_size),
        ]
    )
    distinct, inverse = _unique_columns(columns)
    rows = [_slots(arch, grids, tuple(int(x) for x in column), extra_warmup, all_ranks) for column in distinct.T]
    table = np.stack(rows, axis=-1)  # (fields, slots, distinct)
    spread = table[:, :, inverse]
    kinds = tuple(dict.fromkeys(layer_kinds(arch)))
    k = len(kinds)
    return Stages(
        rank=spread[0].astype(np.int64),
        layers=spread[8 : 8 + k].swapaxes(0, 1),
        kept=spread[8 + k :].swapaxes(0, 1),
        mtp=spread[1],
        mtp_kept=spread[2],
        embedding=spread[3],
        embedding_kept=spread[4],
        loss=spread[5],
        chunks_kept=spread[6],
        kinds=kinds,
    )


def _unique_columns(columns: Ints) -> tuple[Ints, Ints]:
    """Distinct columns and the index of each column among them (sorts one mixed-radix key)."""
    low = columns.min(axis=1, keepdims=True)
    span = columns.max(axis=1) - low[:, 0] + 1
    key = np.zeros(columns.shape[1], dtype=np.int64)
    for row, size in zip(columns - low, span, strict=True):
        key = key * size + row
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return columns[:, first], inverse


def _slots(arch: Architecture, grids: Grids, column: tuple[int, ...], extra: int, all_ranks: bool) -> Floats:
    """One distinct pipeline as an array (fields, slots)."""
    pp, vpp, layout, first, last, embedding, loss, group, microbatches = column
    pipe = pipeline(
        arch, pp, vpp, grids.layouts[layout] if layout >= 0 else None, first, last, bool(embedding), bool(loss)
    )
    kept = in_flight(pp, vpp, max(group, 1), microbatches, extra if vpp > 1 else 0)
    layers = pipe.layers.sum(axis=1)  # (pp, kinds)
    layers_kept = (pipe.layers * kept[:, :, None]).sum(axis=1)
    if all_ranks:
        ranks = list(range(pp))
    else:
        weight = layers_kept.sum(axis=1)
        ranks = [0, pp - 1, min(1, pp - 1), int(np.argmax(layers.sum(axis=1))), int(np.argmax(weight)), pipe.loss[0]]
    out = np.zeros((8 + 2 * layers.shape[1], len(ranks)))
    for slot, p in enumerate(ranks):
        out[0, slot] = p
        out[1, slot] = pipe.mtp[p].sum()
        out[2, slot] = (pipe.mtp[p] * kept[p]).sum()
        out[3, slot] = p == 0
        out[4, slot] = kept[0, 0] if p == 0 else 0
        out[5, slot] = p == pipe.loss[0]
        out[6, slot] = kept[p].sum()
        out[8 : 8 + layers.shape[1], slot] = layers[p]
        out[8 + layers.shape[1] :, slot] = layers_kept[p]
    return out
