"""Enumerate, prune by the rules, estimate, rank: one vectorised pass over all candidates of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from ..timing import TimeEstimate, tokens_per_second_per_gpu
from ..timing import estimate as estimate_time
from .space import GRID, RECOMPUTE, SCHEDULE, Columns, expand, grid_columns, recompute_choices, schedules, take
from .space import MICRO_BATCH_SIZES as MBS

LAYOUT = "pipeline_model_parallel_layout"
SAMPLE = 2048  # candidates on which the order of the rules is chosen
READ = (
    *GRID,
    *SCHEDULE,
    "sequence_parallel",
    "mbs",
    "row",
    "layout",
    "dp",
    "edp",
    "etp_effective",
    "sp_effective",
    "num_microbatches",
)  # columns that the estimates and the answer read
BLOCK = 512  # candidates that are resolved at once, most promising first
SIFTED = 4096  # candidates that are held to memory at once before that


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        candidates: grids and schedules looked at.
        rejected: rule id, or ``memory`` -> how many it removed (each candidate counts once). Recompute and memory
            are tried on the fastest candidates first, until no later one can be faster than what is found.
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
    floor: float = 0.0,
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
        floor: score (tokens/s/GPU after preferences) that a candidate must exceed to be of use.
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
    low, high = bounds.get("mbs", (1, MBS[-1]))
    sizes = np.array([pinned_mbs] if pinned_mbs is not None else [m for m in MBS if low <= m <= high], dtype=np.int64)
    pool.columns = expand(pool.columns, mbs=sizes)
    candidates += len(pool)
    pool.prune()
    pool.columns["row"] = np.arange(len(pool))
    progress("schedules", 0.4)

    recomputes = recompute_choices(arch, pinned)
    space = _Space(arch, settings, gpu, calibration, pool, recomputes, tuple(StageLayout.parse(t) for t in layouts))

    def found(part: _Part, order: NDArray[np.int64], fits: bool) -> Found:
        best = part.take(order)
        choices = _choices(best.columns, recomputes, layouts, pinned)
        return Found(candidates, rejected, choices, best.memory, best.time, best.score, fits)

    fitting: list[_Part] = []
    tight: list[_Part] = []
    best = np.zeros(0, dtype=np.int64)
    for rows in space.promising():
        if max(floor, fitting[0].score[best[-1]] if len(best) == top else 0.0) >= rows["bound"][0]:
            break  # no later candidate can be faster than what is there
        fit, close = space.resolve(rows)
        if fit is not None:
            fitting = [_joined([*fitting, fit])]
            best = _best_per_grid(fitting[0], top)
        elif close is not None and not fitting:
            tight.append(close)
    for parts in (fitting, tight):
        if parts:
            part = _joined(parts)
            return found(part, _best_per_grid(part, top), bool(fitting))
    if space.closest is not None:
        return found(space.closest, np.array([0]), False)
    return Found(candidates, rejected, (), None, None, np.zeros(0), False)


@dataclass(frozen=True)
class _Part:
    """Candidates with a recompute choice each (column ``recompute``), and their estimates."""

    columns: Columns
    memory: MemoryEstimate
    time: TimeEstimate | None
    score: NDArray[np.float64]

    def take(self, index: NDArray[np.int64]) -> _Part:
        time = None if self.time is None else _time_rows(self.time, index)
        return _Part(take(self.columns, index), _rows(self.memory, index), time, self.score[index])


def _joined(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    times = [part.time for part in parts if part.time is not None]
    return _Part(
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
        _concatenate([part.memory for part in parts]),
        _concatenate_times(times),
        np.concatenate([part.score for part in parts]),
    )


class _Space:
    """Legal grids and schedules, each with every recompute choice: what fits, and how fast it is.

    Attributes:
        closest: of the candidates that were held to memory, the one that needs least.
    """

    def __init__(
        self,
        arch: Architecture,
        settings: Settings,
        gpu: Gpu,
        calibration: Mapping[str, float],
        pool: _Pool,
        recomputes: tuple[Recompute, ...],
        layouts: tuple[StageLayout, ...],
    ) -> None:
        self.arch, self.settings, self.gpu, self.calibration = arch, settings, gpu, calibration
        self.pool, self.recomputes, self.tables = pool, recomputes, (recomputes, layouts)
        program = pool.program
        self.rules = [step for rule, step in program.constraints.items() if rule not in pool.judged]
        self.preferences = [step for step in program.rules.values() if step.prefer]
        self.capacity = float(gpu.memory_bytes)
        self.closest: _Part | None = None
        quantities = (step for step in program.steps.values() if step.rule is None)
        self.more = any(not step.inputs.isdisjoint(RECOMPUTE) for step in quantities)
        if not self.more:  # then nothing is worked out again, and most columns have served
            names = set(READ).union(*(step.when.names for step in (*self.rules, *self.preferences)))
            names = names.union(*(that.names for step in self.preferences for that, _ in step.prefer))
            names |= {f"{name}?" for name in names}
            pool.columns = {name: column for name, column in pool.columns.items() if name in names}

    def promising(self) -> Iterator[Columns]:
        """Rows that can fit, fastest bound (column ``bound``) first, a block at a time; worked out as they are asked
        for, since few searches need them all."""
        rows = self.pool.columns
        bound = self._bound(rows)
        order = np.argsort(-bound, kind="stable")
        for start in range(0, len(order), SIFTED):
            sifted = order[start : start + SIFTED]
            able = self._able({**take(rows, sifted), "bound": bound[sifted]})
            for at in range(0, len(able["tp"]), BLOCK):
                yield take(able, np.s_[at : at + BLOCK])

    def _able(self, rows: Columns) -> Columns:
        """The rows that fit with the most recompute that the rules leave them; notes the one that comes nearest."""
        keep = np.ones(len(rows["tp"]), dtype=bool)
        untried = np.arange(len(keep))
        for level in reversed(range(len(self.recomputes))):
            if not len(untried):
                break
            lean = {**take(rows, untried), "recompute": np.full(len(untried), level)}
            legal = self._legal(lean, 1, count=False)[:, 0]
            if legal.any():
                lean, tried = take(lean, legal), untried[legal]
                memory = self._memory(lean)
                keep[tried[memory.verdict(self.capacity) == 2]] = False
                near = _Part(lean, memory, None, -memory.total).take(np.array([np.argmin(memory.total)]))
                if self.closest is None or near.score[0] > self.closest.score[0]:
                    self.closest = near
            untried = untried[~legal]
        if not keep.all():
            self.pool.rejected["memory"] = self.pool.rejected.get("memory", 0) + int(np.count_nonzero(~keep))
        return take(rows, keep)

    def _bound(self, rows: Columns) -> NDArray[np.float64]:
        """Tokens/s/GPU that a row can't exceed: without recompute, and without preferences that read it."""
        if not len(rows["tp"]):
            return np.zeros(0)
        bare = {**rows, "recompute": np.zeros(len(rows["tp"]), dtype=np.int64)}
        preferences = [p for p in self.preferences if not _reads_recompute(p)]
        grids = as_grids(bare, self.pool.scalars, self.tables)
        rate = tokens_per_second_per_gpu(self.arch, self.settings, grids, self.gpu, self.calibration)
        return np.asarray(rate * self._preference(bare, preferences))

    def resolve(self, rows: Columns) -> tuple[_Part | None, _Part | None]:
        """Each row with its fastest recompute choice that fits; if no row has one, with the leanest that is tight."""
        levels = len(self.recomputes)
        full = expand(rows, recompute=np.arange(levels))
        legal = self._legal(full, levels, count=True)
        full = take(full, legal.ravel())
        if not len(full["tp"]):
            return None, None
        memory = self._memory(full)
        verdict = memory.verdict(self.capacity)
        fits = np.flatnonzero(verdict == 0)
        if len(fits):
            part = self._timed(take(full, fits), _rows(memory, fits))
            first = _first_of_each(part.columns["row"], -part.score)
            return part.take(first), None
        close = np.flatnonzero(verdict == 1)
        if not len(close):
            return None, None
        close = close[_first_of_each(full["row"][close], memory.device[close])]
        return None, self._timed(take(full, close), _rows(memory, close))

    def _timed(self, columns: Columns, memory: MemoryEstimate) -> _Part:
        time = self._time(columns)
        score = time.tokens_per_second_per_gpu * self._preference(columns, self.preferences)
        return _Part(columns, memory, time, score)

    def _memory(self, columns: Columns) -> MemoryEstimate:
        grids = as_grids(columns, self.pool.scalars, self.tables)
        return estimate_memory(self.arch, self.settings, grids, self.gpu, self.calibration)

    def _time(self, columns: Columns) -> TimeEstimate:
        grids = as_grids(columns, self.pool.scalars, self.tables)
        return estimate_time(self.arch, self.settings, grids, self.gpu, self.calibration)

    def _facts(self, columns: Columns) -> Columns:
        """All columns, with those of the recompute choice and what follows from them."""
        table = [recompute_facts(r) for r in self.recomputes]
        index = columns["recompute"]
        full: Columns = {**self.pool.scalars, **columns}
        for name in RECOMPUTE[:3]:
            full[name] = np.array([row[name] or (0 if name.endswith("layers") else "") for row in table])[index]
        modules = sorted({m for r in self.recomputes for m in r.modules}, key=str)
        full[RECOMPUTE[3]] = {m: np.array([r.has(m) for r in self.recomputes])[index] for m in modules}
        return self.pool.program.columns(full) if self.more else full

    def _legal(self, columns: Columns, levels: int, count: bool) -> NDArray[np.bool_]:
        """Which rows break no rule that reads the recompute choice, shape (rows, levels).

        ``count``: rows that lose all their choices are counted by the rule that took the last.
        """
        full = self._facts(columns)
        legal = np.ones((len(columns["tp"]) // levels, levels), dtype=bool)
        for step in self.rules:
            if step.when.names <= full.keys():
                alive = legal.any(axis=1)
                legal &= ~np.broadcast_to(step.when.mask(full), legal.size).reshape(legal.shape)
                lost = int(np.count_nonzero(alive & ~legal.any(axis=1)))
                if lost and count:
                    self.pool.rejected[step.id] = self.pool.rejected.get(step.id, 0) + lost
        return legal

    def _preference(self, columns: Columns, steps: list[Step]) -> NDArray[np.float64]:
        """The factor that the rules' preferences put on each candidate's speed: the product of 1 - cost."""
        full = self._facts(columns)
        factor: NDArray[np.float64] = np.ones(len(columns["tp"]))
        for step in steps:
            for that, cost in step.prefer:
                if step.when.names | that.names <= full.keys():
                    broken = np.asarray(step.when.mask(full)) & ~np.asarray(that.vector(full), dtype=bool)
                    factor = np.where(broken, factor * (1 - cost), factor)
        return factor


def _reads_recompute(step: Step) -> bool:
    names = step.when.names.union(*(that.names for that, _ in step.prefer))
    return not names.isdisjoint(RECOMPUTE)


def _first_of_each(group: NDArray[np.int64], value: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index of the smallest value of each group (the first of equal ones)."""
    order = np.lexsort((np.arange(len(group)), value, group))
    return np.asarray(order[np.diff(group[order], prepend=-1) != 0])


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


def _best_per_grid(part: _Part, top: int) -> NDArray[np.int64]:
    """Rows of the best candidate of each process grid, best first; ties go to less memory.

    Larger CP with as much larger micro-batches is the same work with more communication, so of such grids, too, only
    the best is kept.
    """
    columns = part.columns
    order = np.lexsort((part.memory.total, -part.score))
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
    recomputes: tuple[Recompute, ...],
    layouts: list[str],
    pinned: Mapping[str, Value],
) -> tuple[Mapping[str, Value], ...]:
    out: list[Mapping[str, Value]] = []
    for row in range(len(columns["tp"])):
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


def _concatenate_times(parts: list[TimeEstimate]) -> TimeEstimate:
    return TimeEstimate(
        np.concatenate([p.step_seconds for p in parts]),
        np.concatenate([p.tokens_per_second_per_gpu for p in parts]),
        np.concatenate([p.low for p in parts]),
        np.concatenate([p.high for p in parts]),
        {name: np.concatenate([p.components[name] for p in parts]) for name in parts[0].components},
        parts[0].model_flops_per_token,
        np.concatenate([p.model_tflops_per_gpu for p in parts]),
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
