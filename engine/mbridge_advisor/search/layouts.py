"""Pipeline layouts that spread layers, MTP, embedding and loss evenly, where an even split is impossible or unwise."""

from __future__ import annotations

from functools import lru_cache

from ..architecture import Architecture
from ..memory.parameters import layer_kinds, layer_weights


@lru_cache(maxsize=4096)
def balanced_layout(num_layers: int, mtp_layers: int, stages: int, loss_cost: float) -> str | None:
    """A layout string for ``stages`` = PP * VPP entries, as Core's ``pipeline_model_parallel_layout`` reads it.

    Decoder layers go in order into entries so that the busiest entry does as little as possible. A decoder or MTP layer
    costs 1; the output layer with its loss costs ``loss_cost`` layers; the embedding lookup costs nothing.
    MTP layers and the loss stand in the last entry, which Core requires of MTP at the releases that the advisor knows.

    Returns:
        the layout, or None where more than the last entry would be without layers.
    """
    tail = mtp_layers + loss_cost
    if stages > num_layers + 1:
        return None
    # The last entry takes what is left below the mean load; the others share the rest, the larger ones first, as an
    # early entry holds more micro-batches only in memory, not in time.
    best: tuple[float, int] | None = None
    for last in range(0, num_layers + 1):
        rest = num_layers - last
        if stages > 1 and rest < stages - 1:
            break
        busiest = max(-(-rest // (stages - 1)) if stages > 1 else 0, last + tail)
        if best is None or busiest < best[0] or (busiest == best[0] and last + tail <= busiest and last > best[1]):
            best = (busiest, last)
    if best is None:
        return None
    last = best[1]
    if stages == 1:
        counts = [num_layers]
    else:
        base, extra = divmod(num_layers - last, stages - 1)
        counts = [base + (i < extra) for i in range(stages - 1)] + [last]
    return layout_string(counts, mtp_layers)


def layout_string(counts: list[int], mtp_layers: int) -> str:
    """The shortest readable spelling: ``Et*4|(tttt|)*14mL`` style, with equal neighbours folded."""
    parts: list[tuple[str, int]] = []
    for i, n in enumerate(counts):
        entry = ("E" if i == 0 else "") + _times("t", n)
        if i == len(counts) - 1:
            entry += _times("m", mtp_layers) + "L"
        if parts and parts[-1][0] == entry:
            parts[-1] = (entry, parts[-1][1] + 1)
        else:
            parts.append((entry, 1))
    out = ""
    for i, (entry, n) in enumerate(parts):
        bar = "" if i == len(parts) - 1 else "|"
        out += f"({entry}{bar})*{n}" if n > 1 and bar else f"{entry}{bar}"
    return out


def _times(letter: str, n: int) -> str:
    return letter * n if n < 4 else f"{letter}*{n}"


def loss_cost(arch: Architecture) -> float:
    """Work of the output layer in units of an average decoder layer, by active weights (2 FLOPs a weight and token).

    Attention over the sequence is left out of both, so this slightly overstates the loss of long-sequence runs.
    """
    layers = [layer_weights(arch, kind) for kind in layer_kinds(arch)]
    share = (arch.moe_router_topk or 0) / arch.num_moe_experts if arch.num_moe_experts else 0.0
    active = sum(w.tp + w.replicated + share * (w.expert + w.expert_replicated) for w in layers) / len(layers)
    return arch.vocab_size * arch.hidden_size / active
