"""Pipeline layouts that spread layers, MTP, embedding and loss evenly, where an even split is impossible or unwise."""

from __future__ import annotations

from functools import lru_cache
from math import inf

from ..architecture import Architecture
from ..memory.parameters import layer_kinds, layer_weights


@lru_cache(maxsize=4096)
def balanced_layout(num_layers: int, mtp_layers: int, pp: int, vpp: int, loss_cost: float) -> str | None:
    """A layout of PP * VPP entries, as Core's ``pipeline_model_parallel_layout`` reads it, with even work on the ranks.

    A decoder or MTP layer counts 1; the output layer with its loss counts ``loss_cost``, once for the main loss and
    once for each MTP layer; the embedding lookup counts nothing. Every rank runs VPP entries in turn, so what matters
    most is the sum over the entries of a rank. MTP layers stand in the entry of the loss or in the one before, where
    that leaves the busiest rank with less (Core wants them in one entry of the last virtual stage).

    Returns:
        the layout, or None where some entry would be left empty.
    """
    places = (pp - 1, pp - 2) if mtp_layers and pp > 1 else (pp - 1,)
    best: tuple[float, list[list[int]], int] | None = None
    for mtp_rank in places:
        extra = [0.0] * pp
        extra[-1] += loss_cost * (1 + mtp_layers)
        extra[mtp_rank] += mtp_layers
        # No decoder layer may follow an MTP layer, so then the last entry holds the loss alone.
        apart = mtp_rank != pp - 1
        counts = _fill(num_layers, [*extra[:-1], inf] if apart and vpp == 1 else extra)
        busiest = max(n + e for n, e in zip(counts, extra, strict=True))
        if best is None or busiest < best[0]:
            # Within a rank the entry with MTP or loss gets fewer layers, for the same reason.
            last = [*extra[:-1], inf] if apart else extra
            chunks = [_fill(n, [0.0] * (vpp - 1) + [e]) for n, e in zip(counts, last, strict=True)]
            best = (busiest, chunks, mtp_rank)
    assert best is not None
    _, chunks, mtp_rank = best
    entries = []
    for v in range(vpp):
        for rank in range(pp):
            entry = _times("t", chunks[rank][v])
            if (v, rank) == (0, 0):
                entry = "E" + entry
            if v == vpp - 1:
                entry += _times("m", mtp_layers) if rank == mtp_rank else ""
                entry += "L" if rank == pp - 1 else ""
            if not entry:
                return None
            entries.append(entry)
    return _folded(entries)


def _fill(layers: int, load: list[float]) -> list[int]:
    """Give ``layers`` one by one to the least loaded place, the later one among equals: early ranks hold more."""
    counts, load = [0] * len(load), list(load)
    for _ in range(layers):
        place = min(range(len(load)), key=lambda i: (load[i], -i))
        counts[place] += 1
        load[place] += 1
    return counts


def _folded(entries: list[str]) -> str:
    """The shortest readable spelling, with equal neighbours folded: ``Ett|(ttt|)*14tmL``."""
    parts: list[tuple[str, int]] = []
    for entry in entries:
        if parts and parts[-1][0] == entry:
            parts[-1] = (entry, parts[-1][1] + 1)
        else:
            parts.append((entry, 1))
    bars = [f"({entry}|)*{n}" if n > 1 else f"{entry}|" for entry, n in parts]
    return "".join(bars).removesuffix("|")


def _times(letter: str, n: int) -> str:
    return letter * n if n < 4 else f"{letter}*{n}"


@lru_cache(maxsize=256)
def loss_cost(arch: Architecture) -> float:
    """Work of the output layer in units of an average decoder layer, by active weights (2 FLOPs a weight and token).

    Attention over the sequence is left out of both, so this slightly overstates the loss of long-sequence runs.
    """
    layers = [layer_weights(arch, kind) for kind in layer_kinds(arch)]
    share = (arch.moe_router_topk or 0) / arch.num_moe_experts if arch.num_moe_experts else 0.0
    active = sum(w.tp + w.replicated + share * (w.expert + w.expert_replicated) for w in layers) / len(layers)
    return arch.vocab_size * arch.hidden_size / active
