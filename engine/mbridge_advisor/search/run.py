"""Enumerate, prune by the rules, estimate, rank: one vectorised pass over all candidates of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..architecture import Architecture
from ..expressions import Column
from ..inference import Program, Step
from ..knowledge.model import Gpu, Value
from ..layout import FACTS, layout_facts
from ..memory import Grids, MemoryEstimate, Recompute, Settings, StageLayout
from ..memory import estimate as estimate_memory
from ..timing import TimeEstimate
from ..timing import estimate as estimate_time
from .space import GRID, RECOMPUTE, SCHEDULE, Columns, expand, grid_columns, recompute_choices, schedules, take
from .space import MICRO_BATCH_SIZES as MBS

LAYOUT = "pipeline_model_parallel_layout"
SAMPLE = 2048  # candidates on which the order of the rules is chosen


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        candidates: grids and schedules looked at.
        rejected: rule id, or ``memory`` -> how many it removed (each candidate counts once).
        choices: the best candidates, best first, as short name -> value of everything that was open.
        memory, time: their estimates, row by row.
        score: tokens/s/GPU after the rules' preferences.
        closest: where nothing fits, the candidate with the least memory; its estimate is in ``memory``.
    """

    candidates: int
    rejected: Mapping[str, int]
    choices: tuple[Mapping[str, Value], ...]
    memory: MemoryEstimate | None
    time: TimeEstimate | None
    score: NDArray[np.float64]
    fits: bool
    feasible: int


@dataclass
class _Pool:
    """Candidates that are still alive, with the facts that hold for all of them."""

    program: Program
    scalars: Mapping[str, Value]
    columns: Columns
    rejected: dict[str, int]
    judged: set[str]

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def prune(self) -> None:
        """Remove what a constraint forbids, as far as its names are known; count by the rule that did it."""
        full = self.program.columns({**self.scalars, **self.columns})
        self.columns = {name: c for name, c in full.items() if isinstance(c, np.ndarray)}
        self.scalars = {name: _single(c) for name, c in full.items() if name not in self.columns}
        known = self.scalars.keys() | self.columns.keys()
        open_steps = [
            step
            for rule, step in self.program.constraints.items()
            if rule not in self.judged and step.when.names <= known
        ]
        self.judged |= {step.id for step in open_steps}
        alive = np.ones(len(self), dtype=bool)
        for step in self._ordered(open_steps):
            bad = step.when.mask({**self.scalars, **self.columns})
            hit = alive & bad
            count = int(np.count_nonzero(hit))
            if count:
                self.rejected[step.id] = self.rejected.get(step.id, 0) + count
                alive &= ~hit
                if np.count_nonzero(alive) * 2 < len(alive):
                    self.columns, alive = take(self.columns, alive), np.ones(int(np.count_nonzero(alive)), dtype=bool)
        if not alive.all():
            self.columns = take(self.columns, alive)

    def _ordered(self, steps: list[Step]) -> list[Step]:
        """The rules that remove most come first; judged on a sample."""
        if len(self) <= SAMPLE:
            return steps
        rows = np.linspace(0, len(self) - 1, SAMPLE).astype(np.int64)
        sample = {**self.scalars, **take(self.columns, rows)}
        return sorted(steps, key=lambda step: -float(np.mean(step.when.mask(sample))))


@dataclass(frozen=True)
class _Judged:
    """Candidates with their memory; ``verdict`` as :meth:`MemoryEstimate.verdict` gives it."""

    columns: Columns
    memory: MemoryEstimate
    verdict: NDArray[np.int64]

    def take(self, index: NDArray[Any]) -> _Judged:
        return _Judged(take(self.columns, index), _rows(self.memory, index), self.verdict[index])


def _without(rows: Columns, numbers: NDArray[np.int64]) -> Columns:
    """The rows whose number isn't among those."""
    return take(rows, ~np.isin(rows["row"], numbers)) if len(numbers) else rows


def _single(column: Column) -> Value:
    """A column that holds one value for all candidates."""
    assert not isinstance(column, np.ndarray | Mapping)
    return column


def search(
    arch: Architecture,
    settings: Settings,
    gpu: Gpu,
    program: Program,
    facts: Mapping[str, Value],
    pinned: Mapping[str, Value],
    bounds: Mapping[str, tuple[float, float]],
    calibration: Mapping[str, float],
    top: int = 5,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> Found:
    """Find the best grids.

    Args:
        arch, settings, gpu: what is trained, how, on what.
        program: quantities and rules of the asked revision.
        facts: all known facts but the open names (``world_size`` must be known).
        pinned: short name -> value that may not be changed.
        bounds: short name -> (smallest, largest) concluded by sizing rules.
        calibration: constants of the models.
        top: how many to return.
        progress: called with a stage and the share done.
    """
    world = facts["world_size"]
    assert isinstance(world, int)
    rejected: dict[str, int] = {}
    columns = grid_columns(world, arch, pinned, bounds)
    candidates = len(columns["tp"])
    sp = pinned.get("sequence_parallel")
    columns["sequence_parallel"] = columns["tp"] > 1 if sp is None else np.full(candidates, bool(sp))
    scalars = {k: _single(v) for k, v in program.columns(facts).items() if k not in columns}
    pool = _Pool(program, scalars, columns, rejected, set())
    pool.prune()
    progress("grids", 0.2)

    layouts: list[str] = []
    pool.columns = _with_schedules(arch, pool.columns, pinned, layouts)
    pinned_mbs = pinned.get("mbs")
    sizes = np.array([pinned_mbs] if pinned_mbs is not None else list(MBS), dtype=np.int64)
    pool.columns = expand(pool.columns, mbs=sizes)
    candidates += len(pool)
    pool.prune()
    progress("schedules", 0.4)

    recomputes = recompute_choices(arch, pinned)
    tables = (recomputes, tuple(StageLayout.parse(text) for text in layouts))
    pool.columns["row"] = np.arange(len(pool))
    kept: list[_Judged] = []
    tight: list[_Judged] = []
    closest: _Judged | None = None

    def judge(rows: Columns, index: int, counted: dict[str, int]) -> _Judged | None:
        """What is legal with one recompute choice, with its memory; None where nothing is."""
        here = _Pool(program, {**pool.scalars, **recompute_facts(recomputes[index])}, rows, counted, set(pool.judged))
        here.columns = {**rows, "recompute": np.full(len(rows["row"]), index, dtype=np.int64)}
        here.prune()
        if not len(here):
            return None
        memory = estimate_memory(arch, settings, as_grids(here.columns, pool.scalars, tables), gpu, calibration)
        return _Judged(here.columns, memory, memory.verdict(float(gpu.memory_bytes)))

    # What doesn't fit with the most recompute doesn't fit with less.
    rest = pool.columns
    if len(pool):
        leanest = judge(rest, len(recomputes) - 1, {})
        if leanest is not None:
            closest = leanest.take(np.array([np.argmin(leanest.memory.total)]))
            rest = _without(rest, leanest.columns["row"][leanest.verdict == 2])
            rejected["memory"] = len(pool) - len(rest["row"])
    for index in range(len(recomputes)):
        if not len(rest["row"]):
            break
        judged = judge(rest, index, rejected)
        if judged is None:
            continue
        if (judged.verdict == 0).any():
            kept.append(judged.take(judged.verdict == 0))
        if (judged.verdict == 1).any():
            tight.append(judged.take(judged.verdict == 1))
        # What fits needs no more recompute: that only costs time.
        rest = _without(rest, judged.columns["row"][judged.verdict == 0])
        progress("memory", 0.4 + 0.4 * (index + 1) / len(recomputes))
    rejected["memory"] = rejected.get("memory", 0) + len(rest.get("row", ()))
    if not rejected["memory"]:
        del rejected["memory"]
    fits = bool(kept)
    parts = kept or tight
    if not parts:
        if closest is None:
            return Found(candidates, rejected, (), None, None, np.zeros(0), False, 0)
        choices = _choices(closest.columns, np.array([0]), recomputes, layouts, pinned)
        return Found(candidates, rejected, choices, closest.memory, None, np.zeros(1), False, 0)
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    memory = _concatenate([part.memory for part in parts])
    time = estimate_time(arch, settings, as_grids(columns, pool.scalars, tables), gpu, calibration)
    progress("time", 0.9)
    score: NDArray[np.float64] = time.tokens_per_second_per_gpu * preference(program, pool.scalars, columns, recomputes)
    order = _best_per_grid(columns, score, memory.total, top)
    return Found(
        candidates,
        rejected,
        _choices(columns, order, recomputes, layouts, pinned),
        _rows(memory, order),
        _time_rows(time, order),
        score[order],
        fits,
        len(score),
    )


def recompute_facts(recompute: Recompute) -> dict[str, Value]:
    """The facts of a recompute choice; what it doesn't set is unset."""
    return {
        "recompute_granularity": recompute.granularity,
        "recompute_method": recompute.method if recompute.granularity == "full" else None,
        "recompute_num_layers": recompute.num_layers if recompute.granularity == "full" else None,
        "recompute_modules": recompute.modules if recompute.granularity == "selective" else None,
    }


def _with_schedules(arch: Architecture, columns: Columns, pinned: Mapping[str, Value], layouts: list[str]) -> Columns:
    """Every grid with each of its schedules; fills ``layouts`` with the table that column ``layout`` points into."""
    index: dict[str, int] = {}
    parts: list[Columns] = []
    for pp in np.unique(columns["pp"]):
        mine = take(columns, columns["pp"] == pp)
        choices = schedules(arch, int(pp), pinned)
        for _, text in choices:
            if text and text not in index:
                index[text] = len(layouts)
                layouts.append(text)
        parts.append(
            expand(
                mine,
                vpp=np.array([vpp for vpp, _ in choices], dtype=np.int64),
                layout=np.array([index[text] if text else -1 for _, text in choices], dtype=np.int64),
            )
        )
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return {**columns, "vpp": empty, "layout": empty}
    out = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    table = [layout_facts(text) for text in layouts]
    has = out["layout"] >= 0
    out[f"{LAYOUT}?"] = has
    out[LAYOUT] = np.where(has, "layout", "")
    for name in FACTS:
        values = [row[name] for row in table]
        column = np.array([v or 0 for v in values] + [0], dtype=np.int64)[out["layout"]]
        out[name] = column.astype(bool) if "with" in name else column
        out[f"{name}?"] = np.array([v is not None for v in values] + [False])[out["layout"]]
    for name in SCHEDULE[2:]:
        value = pinned.get(name)
        if name.startswith("account"):
            out[name] = np.full(len(has), bool(value))
        else:
            out[name] = np.full(len(has), int(value) if isinstance(value, int) else 0, dtype=np.int64)
    return out


def as_grids(
    columns: Columns, scalars: Mapping[str, Value], tables: tuple[tuple[Recompute, ...], tuple[StageLayout, ...]]
) -> Grids:
    """The candidates as the memory and time models read them."""
    first, last = SCHEDULE[2], SCHEDULE[3]

    def size(name: str) -> Any:
        return columns[name] if name in columns else scalars[name]  # one value for all where the request pins it

    def count(name: str) -> NDArray[np.int64]:
        column = columns.get(name)
        return np.full(len(columns["tp"]), -1) if column is None else np.where(column > 0, column, -1)

    return Grids.of(
        world_size=scalars["world_size"],
        tp=columns["tp"],
        pp=columns["pp"],
        vpp=np.maximum(columns["vpp"], 1),
        cp=columns["cp"],
        ep=columns["ep"],
        etp=size("etp_effective"),
        sp=size("sp_effective"),
        mbs=columns["mbs"],
        dp=size("dp"),
        edp=np.maximum(size("edp"), 1),
        num_microbatches=np.maximum(size("num_microbatches"), 1),
        recompute=tables[0],
        recompute_index=columns["recompute"],
        layout=tables[1],
        layout_index=columns["layout"],
        first_layers=count(first),
        last_layers=count(last),
        account_for_embedding=columns.get(SCHEDULE[4], False),
        account_for_loss=columns.get(SCHEDULE[5], False),
    )


def preference(
    program: Program, scalars: Mapping[str, Value], columns: Columns, recomputes: tuple[Recompute, ...]
) -> NDArray[np.float64]:
    """The factor that the rules' preferences put on each candidate's speed: the product of 1 - cost."""
    table = [recompute_facts(r) for r in recomputes]
    full: Columns = {**scalars, **columns}
    for name in RECOMPUTE[:3]:
        zero = 0 if name.endswith("layers") else ""
        full[name] = np.array([row[name] or zero for row in table])[columns["recompute"]]
    modules = {m for r in recomputes for m in r.modules}
    full[RECOMPUTE[3]] = {m: np.array([r.has(m) for r in recomputes])[columns["recompute"]] for m in sorted(modules)}
    factor: NDArray[np.float64] = np.ones(len(columns["tp"]))
    for step in program.rules.values():
        for that, cost in step.prefer:
            if not (step.when.names | that.names) <= full.keys():
                continue
            broken = np.asarray(step.when.mask(full)) & ~np.asarray(that.vector(full), dtype=bool)
            factor = np.where(broken, factor * (1 - cost), factor)
    return factor


def _best_per_grid(
    columns: Columns, score: NDArray[np.float64], memory: NDArray[np.float64], top: int
) -> NDArray[np.int64]:
    """Rows of the best candidate of each process grid, best first; ties go to less memory.

    Larger CP with as much larger micro-batches is the same work with more communication, so of such grids, too, only
    the best is kept.
    """
    order = np.lexsort((memory, -score))
    chosen: list[int] = []
    seen: set[tuple[float, ...]] = set()
    for row in order:
        tp, pp, cp, ep, etp = (int(columns[name][row]) for name in GRID)
        grid, work = (tp, pp, cp, ep, etp), (tp, pp, ep, etp, int(columns["mbs"][row]) / cp)
        if grid not in seen and work not in seen:
            seen |= {grid, work}
            chosen.append(int(row))
            if len(chosen) == top:
                break
    return np.array(chosen, dtype=np.int64)


def _choices(
    columns: Columns,
    rows: NDArray[np.int64],
    recomputes: tuple[Recompute, ...],
    layouts: list[str],
    pinned: Mapping[str, Value],
) -> tuple[Mapping[str, Value], ...]:
    out: list[Mapping[str, Value]] = []
    for row in rows:
        one: dict[str, Value] = {name: int(columns[name][row]) for name in ("tp", "pp", "cp", "ep")}
        one["etp"] = int(columns["etp"][row]) or None
        one["sequence_parallel"] = bool(columns["sequence_parallel"][row])
        one["vpp"] = int(columns["vpp"][row]) or None
        index = int(columns["layout"][row])
        one[LAYOUT] = layouts[index] if index >= 0 else None
        one["mbs"] = int(columns["mbs"][row])
        one.update(recompute_facts(recomputes[int(columns["recompute"][row])]))
        one.update({k: v for k, v in pinned.items() if k in SCHEDULE[2:]})
        out.append(one)
    return tuple(out)


def _rows(memory: MemoryEstimate, index: NDArray[Any]) -> MemoryEstimate:
    return MemoryEstimate(
        {name: c[index] for name, c in memory.components.items()},
        memory.total[index],
        memory.stage[index],
        memory.moment[index],
        memory.end_of_step[index],
        memory.reserved[index],
        memory.outside_allocator[index],
    )


def _concatenate(parts: list[MemoryEstimate]) -> MemoryEstimate:
    if len(parts) == 1:
        return parts[0]
    names = ("total", "stage", "moment", "end_of_step", "reserved", "outside_allocator")
    return MemoryEstimate(
        {name: np.concatenate([p.components[name] for p in parts]) for name in parts[0].components},
        *(np.concatenate([getattr(p, name) for p in parts]) for name in names),
    )


def _time_rows(time: TimeEstimate, index: NDArray[Any]) -> TimeEstimate:
    return TimeEstimate(
        time.step_seconds[index],
        time.tokens_per_second_per_gpu[index],
        time.low[index],
        time.high[index],
        {name: c[index] for name, c in time.components.items()},
        time.model_flops_per_token,
        time.model_tflops_per_gpu[index],
    )
