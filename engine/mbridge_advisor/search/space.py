"""The candidates of a request, as NumPy columns.

Two steps keep the number small: the process grid (TP, PP, CP, EP, ETP) is enumerated and pruned first; what is left is
multiplied by the schedule (VPP, layout), micro-batch size and recompute. Values that the request pins are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..architecture import Architecture
from ..memory.grids import Recompute
from .layouts import balanced_layout, loss_cost

Columns = dict[str, Any]
GRID = ("tp", "pp", "cp", "ep", "etp")
SCHEDULE = (
    "vpp",
    "pipeline_model_parallel_layout",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
RECOMPUTE = ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules")
OPEN = (*GRID, *SCHEDULE, "sequence_parallel", "mbs", *RECOMPUTE)
MICRO_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
VIRTUAL_STAGES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)


def divisors(n: int) -> list[int]:
    """All divisors, rising."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def grid_columns(
    world_size: int, arch: Architecture, pinned: Mapping[str, Any], bounds: Mapping[str, tuple[float, float]]
) -> Columns:
    """Every process grid within the bounds: columns tp, pp, cp, ep, etp (0 = unset, for dense models).

    Args:
        world_size: GPUs.
        arch: the model.
        pinned: short name -> value that the request fixes.
        bounds: short name -> (smallest, largest) that the knowledge allows.
    """
    choices = {
        "tp": divisors(world_size),
        "pp": [d for d in divisors(world_size) if d <= arch.num_layers + 1],
        "cp": divisors(world_size),
        "ep": [d for d in divisors(arch.num_moe_experts or 1) if world_size % d == 0],
        # An unset expert TP means something else from release to release, so for MoE it is always spelled out.
        "etp": divisors(world_size) if arch.is_moe else [0],
    }
    for name, (low, high) in bounds.items():
        if name in choices and not (name == "etp" and not arch.is_moe):
            choices[name] = [v for v in choices[name] if low <= v <= high]
    for name in GRID:
        if name in pinned:
            choices[name] = [0 if pinned[name] is None else pinned[name]]
    # Dense sizes first: their product must divide the world, which is by far the sharpest cut.
    mesh = _product([choices[n] for n in ("tp", "pp", "cp")])
    dense = mesh[:, 0] * mesh[:, 1] * mesh[:, 2]
    # The rule itself prunes and counts; here only what can't even be laid out is skipped.
    mesh = mesh[dense <= world_size]
    expert = _product([choices["ep"], choices["etp"]])
    left = np.repeat(mesh, len(expert), axis=0)
    right = np.tile(expert, (len(mesh), 1))
    both = np.hstack([left, right])
    return {name: np.ascontiguousarray(both[:, i]) for i, name in enumerate(GRID)}


def _product(lists: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    if not all(lists):
        return np.zeros((0, len(lists)), dtype=np.int64)
    return np.stack([a.ravel() for a in np.meshgrid(*map(np.array, lists), indexing="ij")], axis=1).astype(np.int64)


def schedules(arch: Architecture, pp: int, pinned: Mapping[str, Any]) -> list[tuple[int, str]]:
    """``(vpp, layout)`` choices for one PP: vpp 0 = unset, layout "" = even split.

    An even split is offered where it exists, with and without interleaving; a balanced layout where layers don't divide
    or where MTP or the loss would weigh on the last stage.
    """
    if "vpp" in pinned or any(name in pinned for name in SCHEDULE[1:]):
        return [(pinned.get("vpp") or 0, pinned.get("pipeline_model_parallel_layout") or "")]
    if pp == 1:
        return [(0, "")]
    out: list[tuple[int, str]] = []
    mtp, cost = arch.mtp_num_layers or 0, loss_cost(arch)
    for vpp in (0, *VIRTUAL_STAGES):
        stages = pp * max(vpp, 1)
        if stages > arch.num_layers + 1:
            break
        even = arch.num_layers % stages == 0
        if arch.num_layers % pp == 0 and not even:
            continue  # a rank's layers divide, but not by this VPP: its neighbours do as well
        if even and not (mtp and vpp):
            out.append((vpp, ""))
        # Hybrid models mark their stages in the layer pattern instead of in a layout.
        if (not even or mtp or cost > 0.5) and not arch.hybrid_override_pattern:
            layout = balanced_layout(arch.num_layers, mtp, pp, max(vpp, 1), cost)
            if layout is not None:
                out.append((vpp, layout))
    return out


def recompute_choices(arch: Architecture, pinned: Mapping[str, Any]) -> tuple[Recompute, ...]:
    """What may be recomputed, least first; a recompute setting that the request fixes leaves one choice.

    Whatever a rule takes away from the end, the last choice that is left recomputes at least as much as the others.
    Modules that a release doesn't know are removed by the rule that says so.
    """
    if any(pinned.get(name) is not None for name in RECOMPUTE) or "recompute_granularity" in pinned:
        return (
            Recompute(
                pinned.get("recompute_granularity"),
                pinned.get("recompute_method"),
                pinned.get("recompute_num_layers"),
                tuple(pinned.get("recompute_modules") or ()),
            ),
        )
    # Norms are only worth naming where they are modules of their own: before MLA and before a MoE layer.
    mla = ("mla_up_proj",) if arch.multi_latent_attention else ()
    ladder: list[tuple[str, ...]] = []
    if arch.is_moe:
        ladder += [("moe_act",), ("layernorm", "moe_act")]
        if mla:
            ladder += [mla, (*mla, "moe_act"), ("layernorm", *mla, "moe_act")]
        ladder += [("moe",), ("layernorm", *mla, "moe")]
    else:
        ladder += [("core_attn",), ("mlp",), ("core_attn", "mlp")]
        if mla:
            ladder += [("layernorm", *mla), ("layernorm", *mla, "mlp")]
    selective = [Recompute("selective", modules=m) for m in ladder]
    return (Recompute(), *selective, Recompute("full", "uniform", 1))


def expand(columns: Columns, **more: NDArray[Any]) -> Columns:
    """Repeat every row for each combination of the given equal-length column sets."""
    rows = len(next(iter(columns.values())))
    times = len(next(iter(more.values())))
    out = {name: np.repeat(c, times) for name, c in columns.items()}
    out.update({name: np.tile(c, rows) for name, c in more.items()})
    return out


def take(columns: Columns, index: NDArray[Any] | slice) -> Columns:
    """The rows that an index, mask or slice selects."""
    return {name: c[index] for name, c in columns.items()}
