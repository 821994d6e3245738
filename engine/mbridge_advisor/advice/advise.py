"""``advise``: the best grids for a request, with every reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from ..inference import infer
from ..intake.facts import build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Text, Value
from ..search.run import Found
from ..search.space import OPEN
from .common import as_request, package_version
from .estimate import grid_fields, sizes
from .figures import memory_of, need, overrides, throughput_of
from .plan import Finalist, Plan, find
from .recipes import nearest_recipes
from .render.words import size
from .results import Advice, Grid, NearestMiss, Statement
from .statements import derived, not_judged, statements

GROWTH = 6  # doublings of the GPU count that are tried where nothing fits


def advise(
    request: Mapping[str, Any] | Request,
    *,
    top: int = 5,
    knowledge: Knowledge | None = None,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> Advice:
    """Find the grids that satisfy every constraint of the asked release, fit in memory, and train fastest.

    Args:
        request: as schemas/request.schema.json describes; what ``grid`` and ``training`` give is pinned.
        top: how many grids to return, 1 to 50.
        knowledge: another knowledge base than the packaged one.
        progress: called with a stage and the share of the work done.

    Raises:
        RequestError: the request can't be understood, or names no model, GPU or GPU count.
    """
    checked, base = as_request(request, knowledge)
    need(checked, gpu=True, world=True)
    outcome = find(checked, base, top, progress)
    plan, program = outcome.plan, outcome.plan.program
    notes = list(plan.notes)
    open_fields = {base.terms[name].field for name in OPEN if name not in plan.pinned}
    grids = tuple(_grid(finalist) for finalist in outcome.finalists)
    spoken = plan.declined.union(s.rule for g in grids for s in (*g.reasons, *g.cautions))
    about = tuple(s for s in statements(plan.inference, program, base) if s.rule not in spoken)
    miss = None if grids else _miss(plan, outcome.found)
    if grids and not outcome.fits:
        notes.append(
            Text(
                "Every grid is tight: it fits on average, but not with the margin that measured errors call for.",
                "所有网格都很紧张：按平均误差放得下，但没有留足实测误差所需的余量。",
            )
        )
    return Advice(
        request=checked.with_values(seq_length=plan.facts["seq_length"], gbs=plan.facts["gbs"]).to_dict(base),
        bridge=checked.revision.tag,
        knowledge=base.version,
        package=package_version(),
        notes=(*(Text(n, n) for n in checked.notes), *notes),
        grids=grids,
        statements=about,
        rejected=outcome.rejected,
        candidates=outcome.candidates,
        nearest_recipes=nearest_recipes(checked, base),
        not_judged=tuple(
            n for n in not_judged(plan.inference, program, base, kinds=("sizing",)) if not set(n.missing) & open_fields
        ),
        derived=derived(plan.inference, base),
        miss=miss,
    )


def _once(said: Iterable[Statement]) -> tuple[Statement, ...]:
    """Each rule's first statement."""
    first: dict[str, Statement] = {}
    for s in said:
        first.setdefault(s.rule, s)
    return tuple(first.values())


def _grid(finalist: Finalist) -> Grid:
    """One finalist, explained by the inference like any given configuration."""
    plan, found, row = finalist.plan, finalist.found, finalist.row
    assert found.memory is not None
    assert found.time is not None
    assert plan.request.gpu is not None
    base = plan.base
    chosen = plan.request.with_values(**found.choices[row])
    facts = build_facts(chosen, base, assumed=plan.assumed)
    inference = infer(plan.program, facts.values)
    said = [s for s in statements(inference, plan.program, base) if s.rule not in plan.declined]
    broken = [s.rule for s in said if s.kind == "constraint" and s.severity == "error"]
    assert not broken, f"a finalist breaks {broken}: the evaluators disagree"
    fields = grid_fields(facts, base)
    fields |= {base.terms[name].field: facts.values[name] for name in (*plan.suggested, "seq_length")}
    return Grid(
        fields=fields,
        sizes=sizes(inference, base),
        memory=memory_of(found.memory, row, plan.request.gpu.memory_bytes),
        throughput=throughput_of(found.time, row),
        reasons=_once((*plan.advised, *(s for s in said if s.kind == "sizing"))),
        cautions=tuple(s for s in said if s.kind in ("pitfall", "constraint")),
        overrides=overrides(fields, base, plan.request.revision),
    )


def _miss(plan: Plan, found: Found) -> NearestMiss:
    """Why nothing fits, and what would."""
    request, base = plan.request, plan.base
    gpu, world = request.gpu, request.values["world_size"]
    assert gpu is not None
    assert isinstance(world, int)
    fields: dict[str, Value] = {}
    memory = None
    if found.choices and found.memory is not None:
        closest = request.with_values(**found.choices[0])
        fields = grid_fields(build_facts(closest, base, assumed=plan.assumed), base)
        memory = memory_of(found.memory, 0, gpu.memory_bytes)
        reason = Text(
            f"The leanest legal grid on {world:,} GPUs needs {size(memory.total)} a GPU; a {gpu.name} has "
            f"{size(gpu.memory_bytes)}.",
            f"{world:,} 张 GPU 上最省显存的合法网格每卡需要 {size(memory.total)}，而 {gpu.name} 只有 "
            f"{size(gpu.memory_bytes)}。",
        )
    else:
        rules = [r for r in sorted(found.rejected, key=lambda r: -found.rejected[r]) if r in base.rules][:3]
        en = "; ".join(f"{r}: {base.rules[r].title.en}" for r in rules)
        zh = "；".join(f"{r}：{base.rules[r].title.zh}" for r in rules)
        reason = Text(
            f"No grid on {world:,} GPUs satisfies every rule. Most were removed by {en or 'the pinned values'}.",
            f"{world:,} 张 GPU 上没有满足全部规则的网格，多数被以下规则排除：{zh or '固定的取值'}。",
        )
    return NearestMiss(fields, memory, reason, tuple(_remedies(plan)))


def _remedies(plan: Plan) -> Iterator[Text]:
    """Changes of the request that make something fit, each tried by a search of its own."""
    request, base = plan.request, plan.base
    world = request.values["world_size"]
    assert isinstance(world, int)

    def fits(changed: Request) -> bool:
        return find(changed, base, 1).fits

    limit = int(base.terms["world_size"].max or 2**20)
    start = 1 << max(0, (world - 1).bit_length())
    doublings = (start << step for step in range(GROWTH + 1))
    more = next((n for n in doublings if world < n <= limit and fits(request.with_values(world_size=n))), None)
    if more is not None:
        yield Text(f"{more:,} GPUs of this kind hold it.", f"使用 {more:,} 张同型号 GPU 即可放下。")
    assert request.gpu is not None
    capacity = request.gpu.memory_bytes
    larger = sorted((g for g in base.gpus.values() if g.memory_bytes > capacity), key=lambda g: g.memory_bytes)
    names = ", ".join(islice((g.name for g in larger if fits(replace(request, gpu=g))), 2))
    if names:
        yield Text(f"{world:,} of these hold it: {names}.", f"{world:,} 张以下型号即可放下：{names}。")
    if plan.pinned and fits(request.without(*plan.pinned)):
        open_ = ", ".join(base.terms[n].field for n in plan.pinned)
        yield Text(f"Leave these open: {open_}.", f"放开这些取值：{open_}。")
    if request.values.get("gbs") is not None and fits(request.without("gbs")):
        yield Text("Another global batch size would do.", "更换全局批大小即可。")
    if request.values.get("task", "pretrain") != "lora" and fits(request.with_values(task="lora")):
        yield Text("LoRA instead of training all weights fits.", "改用 LoRA（不训练全部权重）即可放下。")
