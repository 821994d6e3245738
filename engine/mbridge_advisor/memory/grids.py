"""Candidate grids as NumPy columns, and the two kinds of table that a column points into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RequestError
from ..layout import parse_layout

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SLICE = 16384
"""Candidates evaluated at once, so that intermediate arrays stay in cache."""


@dataclass(frozen=True)
class Recompute:
    """What is computed again in the backward pass instead of being kept.

    Attributes:
        granularity: None (nothing), ``selective`` or ``full``.
        method: ``uniform`` or ``block`` (full only).
        num_layers: layers of a group (uniform) or recomputed layers of a virtual stage (block).
        modules: of ``selective``: core_attn, mlp, moe, moe_act, shared_experts, layernorm, mla_up_proj.
    """

    granularity: str | None = None
    method: str | None = None
    num_layers: int | None = None
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.granularity not in (None, "selective", "full"):
            raise RequestError(
                "training.recompute_granularity",
                self.granularity,
                "is not a known granularity",
                "Use selective or full, or leave it unset.",
            )
        if self.granularity == "selective" and not self.modules:
            object.__setattr__(self, "modules", ("core_attn",))  # Megatron Core's default
        if self.granularity == "full" and self.method is None:
            object.__setattr__(self, "method", "uniform")
        if self.granularity == "full" and self.num_layers is None:
            object.__setattr__(self, "num_layers", 1)

    def has(self, module: str) -> bool:
        """Whether a module is recomputed by itself."""
        return self.granularity == "selective" and module in self.modules

    def __str__(self) -> str:
        if self.granularity is None:
            return "none"
        if self.granularity == "full":
            return f"full/{self.method}/{self.num_layers}"
        return "selective " + "+".join(self.modules)


@dataclass(frozen=True)
class StageLayout:
    """An explicit pipeline layout: what each virtual stage holds, in order (PP varies fastest).

    Attributes:
        layers: decoder layers of each of the PP * VPP entries.
        mtp: multi-token-prediction layers of each entry.
        loss: index of the entry with output layer and loss (the embedding is always in entry 0).
    """

    layers: tuple[int, ...]
    mtp: tuple[int, ...]
    loss: int

    @classmethod
    def parse(cls, text: str) -> StageLayout:
        """Read Core's string form, e.g. ``Et*3|(tt|)*6L``.

        Raises:
            RequestError: not a layout.
        """
        layout = parse_layout(text)
        loss = next((i for i, entry in enumerate(layout) if "L" in entry), len(layout) - 1)
        return cls(tuple(e.count("t") for e in layout), tuple(e.count("m") for e in layout), loss)


@dataclass(frozen=True)
class Grids:
    """N candidates; every column has shape (N,).

    Attributes:
        world_size, tp, pp, cp, ep: sizes.
        vpp: virtual stages a rank; 1 = not interleaved.
        etp: expert tensor parallel size in effect (never unset).
        sp: sequence parallelism in effect.
        mbs: micro-batch size.
        dp, edp: data-parallel sizes of dense and expert parameters.
        num_microbatches: of one data-parallel rank in a step.
        recompute: index into ``recomputes``.
        layout: index into ``layouts``, or -1 for an even split.
        first_layers, last_layers: decoder layers of the first and last pipeline stage, -1 = not given.
        account_for_embedding, account_for_loss: embedding or loss count as a layer in the even split.
        microbatch_group_size: of a virtual stage (interleaved schedule); the default is PP.
        recomputes, layouts: the tables.
    """

    world_size: Ints
    tp: Ints
    pp: Ints
    vpp: Ints
    cp: Ints
    ep: Ints
    etp: Ints
    sp: Bools
    mbs: Ints
    dp: Ints
    edp: Ints
    num_microbatches: Ints
    recompute: Ints
    layout: Ints
    first_layers: Ints
    last_layers: Ints
    account_for_embedding: Bools
    account_for_loss: Bools
    microbatch_group_size: Ints
    recomputes: tuple[Recompute, ...] = (Recompute(),)
    layouts: tuple[StageLayout, ...] = ()

    def __len__(self) -> int:
        return int(self.tp.shape[0])

    def slices(self) -> Iterator[Grids]:
        """The candidates, :data:`SLICE` at a time; one empty slice where there are none."""
        return (self.take(slice(start, start + SLICE)) for start in range(0, max(len(self), 1), SLICE))

    def take(self, index: Any) -> Grids:
        """The candidates that a NumPy index selects (slice, mask or integer array)."""
        return Grids(
            **{f.name: getattr(self, f.name)[index] for f in fields(self) if f.name not in _TABLES},
            recomputes=self.recomputes,
            layouts=self.layouts,
        )

    @classmethod
    def of(
        cls,
        *,
        world_size: Any,
        global_batch_size: int | None = None,
        tp: Any = 1,
        pp: Any = 1,
        vpp: Any = 1,
        cp: Any = 1,
        ep: Any = 1,
        etp: Any = 1,
        sp: Any = None,
        mbs: Any = 1,
        dp: Any = None,
        edp: Any = None,
        num_microbatches: Any = None,
        recompute: Recompute | Sequence[Recompute] = (Recompute(),),
        recompute_index: Any = 0,
        layout: StageLayout | Sequence[StageLayout] | None = None,
        layout_index: Any = None,
        first_layers: Any = -1,
        last_layers: Any = -1,
        account_for_embedding: Any = False,
        account_for_loss: Any = False,
        microbatch_group_size: Any = None,
    ) -> Grids:
        """Grids from scalars or arrays that broadcast to one length.

        What isn't given follows: SP where TP > 1, DP and EDP from the world size, micro-batches from
        ``global_batch_size``, the group size from PP.

        Raises:
            RequestError: a size below 1, or neither ``num_microbatches`` nor ``global_batch_size``.
        """
        recomputes = (recompute,) if isinstance(recompute, Recompute) else tuple(recompute)
        layouts = () if layout is None else (layout,) if isinstance(layout, StageLayout) else tuple(layout)
        if layout_index is None:
            layout_index = 0 if layouts else -1
        sizes = {
            "world_size": world_size,
            "tp": tp,
            "pp": pp,
            "vpp": vpp,
            "cp": cp,
            "ep": ep,
            "etp": etp,
            "mbs": mbs,
        }
        shape = np.broadcast_shapes(
            (1,),
            *(
                np.shape(v)
                for v in (*sizes.values(), sp, dp, edp, num_microbatches, recompute_index, layout_index)
                if v is not None
            ),
        )

        def column(value: Any, dtype: Any = np.int64) -> Any:
            return np.ascontiguousarray(np.broadcast_to(np.asarray(value, dtype=dtype), shape))

        c = {name: column(value) for name, value in sizes.items()}
        for name, values in c.items():
            if values.size and values.min() < 1:
                raise RequestError(f"grid.{name}", int(values.min()), "is below 1", "Use 1 or more.")
        c["dp"] = column(dp if dp is not None else np.maximum(c["world_size"] // (c["tp"] * c["pp"] * c["cp"]), 1))
        c["edp"] = column(edp if edp is not None else np.maximum(c["world_size"] // (c["pp"] * c["ep"] * c["etp"]), 1))
        if num_microbatches is None:
            if global_batch_size is None:
                raise RequestError("training.global_batch_size", None, "is not given", "Give it, or num_microbatches.")
            num_microbatches = np.maximum(global_batch_size // (c["mbs"] * c["dp"]), 1)
        return cls(
            **c,
            sp=column(sp if sp is not None else c["tp"] > 1, np.bool_),
            num_microbatches=column(num_microbatches),
            recompute=column(recompute_index),
            layout=column(layout_index),
            first_layers=column(first_layers),
            last_layers=column(last_layers),
            account_for_embedding=column(account_for_embedding, np.bool_),
            account_for_loss=column(account_for_loss, np.bool_),
            microbatch_group_size=column(microbatch_group_size if microbatch_group_size is not None else c["pp"]),
            recomputes=recomputes,
            layouts=layouts,
        )


_TABLES = frozenset({"recomputes", "layouts"})
