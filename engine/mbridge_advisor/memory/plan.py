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
    """The pipeline ranks that can be the worst of their candidate, one row each: arrays of shape (R,).

    Rows of a candidate follow each other. A rank is left out where another one holds at least as much of everything.

    Attributes:
        candidate: index of the candidate, rising.
        rank: pipeline rank.
        kinds: the K distinct kinds of layer.
        layers: decoder layers by kind, shape (K, R).
        kept: layers times micro-batches kept, shape (K, R).
        chunk: decoder layers of the rank's fullest virtual stage.
        mtp, mtp_kept: MTP layers, and times micro-batches.
        embedding, embedding_kept: 1.0 where the rank has the embedding, and the micro-batches it keeps.
        loss: 1.0 where the rank has the output layer and loss.
        stall: layers by which a pass waits for fuller virtual stages of other ranks, beyond the busiest rank's own.
    """

    candidate: Ints
    rank: Ints
    kinds: tuple[LayerKind, ...]
    layers: Floats
    kept: Floats
    chunk: Floats
    mtp: Floats
    mtp_kept: Floats
    embedding: Floats
    embedding_kept: Floats
    loss: Floats
    stall: Floats

    def worst(self, score: Floats) -> Ints:
        """For each candidate the row with the highest score (the first of equal ones), shape (N,)."""
        starts = np.flatnonzero(np.diff(self.candidate, prepend=-1))
        best = np.maximum.reduceat(score, starts)
        rows = np.flatnonzero(score == best[self.candidate])
        return rows[np.diff(self.candidate[rows], prepend=-1) > 0]


def stages(arch: Architecture, grids: Grids, extra_warmup: int = 0, only: int | None = None) -> Stages:
    """Evaluate the distinct pipelines of ``grids`` and spread them over the candidates.

    Args:
        extra_warmup: 1 where the schedule warms up one micro-batch more (overlapped expert-parallel communication).
        only: keep this pipeline rank alone (negative counts from the last), instead of all that can be the worst.
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
            np.minimum(grids.num_microbatches, 3 * grids.pp + grids.microbatch_group_size),
        ]
    )
    first, inverse = unique_columns(columns)
    distinct = [tuple(int(x) for x in column) for column in columns[:, first].T]
    known = _tables(arch, grids.layouts, extra_warmup, only)
    for column in distinct:
        if column not in known:
            known[column] = _ranks(arch, grids.layouts, column, extra_warmup, only)
    tables = [known[column] for column in distinct]
    sizes = np.array([t.shape[1] for t in tables])
    offsets = np.cumsum(sizes) - sizes
    counts = sizes[inverse]
    candidate = np.repeat(np.arange(len(grids)), counts)
    within = np.arange(len(candidate)) - np.repeat(np.cumsum(counts) - counts, counts)
    spread = np.concatenate(tables, axis=1)[:, offsets[inverse][candidate] + within]
    k = (spread.shape[0] - _FIELDS) // 2
    rank, chunk, mtp, mtp_kept, embedding, embedding_kept, loss, stall = spread[:_FIELDS]
    return Stages(
        candidate,
        rank.astype(np.int64),
        tuple(dict.fromkeys(layer_kinds(arch))),
        spread[_FIELDS : _FIELDS + k],
        spread[_FIELDS + k :],
        chunk,
        mtp,
        mtp_kept,
        embedding,
        embedding_kept,
        loss,
        stall,
    )


_FIELDS = 8


def unique_columns(columns: Ints) -> tuple[Ints, Ints]:
    """(index of one of each distinct column, index of each column among the distinct ones)."""
    key = np.zeros(columns.shape[1], dtype=np.int64)
    for row in columns:
        low = int(row.min())
        span = int(row.max()) - low + 1
        if span > 1:
            if (int(key.max()) + 1) * span > 2**60:  # too large for the integer: rank what is there
                key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            key *= span
            key += row - low
    largest = int(key.max())
    if largest > 8 * len(key) + 1024:
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return first, inverse
    place = np.full(largest + 1, -1, dtype=np.int64)  # few possible keys: a table instead of a sort
    place[key] = np.arange(len(key))
    present = np.flatnonzero(place >= 0)
    first = place[present]
    place[present] = np.arange(len(present))
    return first, place[key]


@lru_cache(maxsize=64)
def _tables(
    arch: Architecture, layouts: tuple[StageLayout, ...], extra: int, only: int | None
) -> dict[tuple[int, ...], Floats]:
    """What :func:`_ranks` said of pipelines of one model: hashing the model for each of them would take longer."""
    return {}


def _ranks(
    arch: Architecture, layouts: tuple[StageLayout, ...], column: tuple[int, ...], extra: int, only: int | None
) -> Floats:
    """The ranks of one distinct pipeline that can be the worst, shape (fields, ranks)."""
    pp, vpp, layout, first, last, embedding, loss, group, microbatches = column
    pipe = pipeline(arch, pp, vpp, layouts[layout] if layout >= 0 else None, first, last, bool(embedding), bool(loss))
    kept = in_flight(pp, vpp, max(group, 1), microbatches, extra if vpp > 1 else 0)
    ranks = np.arange(pp)
    work = pipe.layers.sum(axis=2) + pipe.mtp
    work[pipe.loss] += 1  # about a layer's work
    stall = work.max(axis=0).sum() - work.sum(axis=1).max()
    table = np.concatenate(
        [
            np.stack(
                [
                    ranks,
                    pipe.layers.sum(axis=2).max(axis=1),
                    pipe.mtp.sum(axis=1),
                    (pipe.mtp * kept).sum(axis=1),
                    ranks == 0,
                    np.where(ranks == 0, kept[0, 0], 0),
                    ranks == pipe.loss[0],
                    np.full(pp, stall),
                ]
            ),
            pipe.layers.sum(axis=1).T,
            (pipe.layers * kept[:, :, None]).sum(axis=1).T,
        ]
    ).astype(float)
    if only is not None:
        return np.asarray(table[:, [only % pp]])
    covers = np.ones((pp, pp), dtype=bool)  # covers[i, j]: rank i holds at least what j holds
    for held in table[1:]:
        covers &= held[:, None] >= held[None, :]
    equal = covers & covers.T
    dominated = (covers & ~equal).any(axis=0) | (equal & (ranks[:, None] < ranks[None, :])).any(axis=0)
    return np.asarray(table[:, ~dominated])
