"""``advise``: the best grids for a request, with every reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..inference import Inference, Program, infer
from ..intake.facts import build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Text, Value
from ..search.run import Found, search
from ..search.space import OPEN
from .common import as_request, package_version
from .figures import assumptions, memory_of, need, overrides, pinned_names, settings_of, throughput_of
from .estimate import grid_fields, sizes
from .programs import program_for
from .recipes import nearest_recipes
from .render.words import size
from .results import Advice, Grid, NearestMiss
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
    assumed, notes = assumptions(checked)
    program = program_for(base, checked.revision)
    pinned = pinned_names(checked)
    open_names = [name for name in OPEN if name not in pinned]
    open_fields = {base.terms[name].field for name in open_names}
    facts = build_facts(checked, base, open_names=open_names, assumed=assumed)
    inference = infer(program, facts.values)
    found = _search(checked, base, program, inference, facts.values, pinned, top, progress)
    grids = tuple(_grid(checked, base, program, assumed, found, row) for row in range(len(found.choices)) if found.time)
    spoken = {s.rule for g in grids for s in (*g.reasons, *g.cautions)}
    about = tuple(
        s
        for s in statements(inference, program, base)
        if s.kind != "constraint" and (s.rule not in spoken or not grids)
    )
    miss = None if grids else _miss(checked, base, program, found, inference, assumed, top)
    if grids and not found.fits:
        notes.append(
            Text(
                "Every grid is tight: it fits on average, but not with the margin that measured errors call for.",
                "所有网格都很紧张：按平均误差放得下，但没有留足实测误差所需的余量。",
            )
        )
    return Advice(
        request=checked.with_values(**{k: v for k, (v, _) in assumed.items() if k in ("seq_length", "gbs")}).to_dict(
            base
        ),
        bridge=checked.revision.tag,
        knowledge=base.version,
        package=package_version(),
        notes=(*(Text(n, n) for n in checked.notes), *notes),
        grids=grids,
        statements=about,
        rejected=found.rejected,
        candidates=found.candidates,
        nearest_recipes=nearest_recipes(checked, base),
        not_judged=tuple(
            n for n in not_judged(inference, program, base, kinds=("sizing",)) if not set(n.missing) & open_fields
        ),
        derived=derived(inference, base),
        miss=miss,
    )


def _search(
    request: Request,
    base: Knowledge,
    program: Program,
    inference: Inference,
    facts: Mapping[str, Value],
    pinned: Mapping[str, Value],
    top: int,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> Found:
    arch, gpu = request.architecture, request.gpu
    assert arch is not None
    assert gpu is not None
    # What was concluded once holds for every candidate, so only what depends on the open names is left to compute.
    settled = {k: v for k, v in inference.facts.items() if k in facts or k in inference.derivations}
    return search(
        arch,
        settings_of(request, facts, base),
        gpu,
        program,
        settled,
        pinned,
        bounds_of(inference, base, pinned),
        base.calibration_values,
        top,
        progress,
    )


def bounds_of(
    inference: Inference, knowledge: Knowledge, pinned: Mapping[str, Value]
) -> dict[str, tuple[float, float]]:
    """The range of each search variable that sizing rules concluded; a pinned value is never bounded."""
    out: dict[str, tuple[float, float]] = {}
    for term in knowledge.terms.values():
        value = inference.facts.get(term.name)
        if term.bounds is None or not isinstance(value, int | float) or term.bounds[0] in pinned:
            continue
        name, side = term.bounds
        low, high = out.get(name, (1.0, float("inf")))
        out[name] = (max(low, value), high) if side == "min" else (low, min(high, value))
    return out


def _grid(
    request: Request, base: Knowledge, program: Program, assumed: Mapping[str, Any], found: Found, row: int
) -> Grid:
    """One finalist, explained by the inference like any given configuration."""
    assert found.memory is not None
    assert found.time is not None
    assert request.gpu is not None
    chosen = request.with_values(**found.choices[row])
    facts = build_facts(chosen, base, assumed=assumed)
    inference = infer(program, facts.values)
    said = statements(inference, program, base)
    assert not any(s.severity == "error" for s in said), "a finalist breaks a rule: the evaluators disagree"
    fields = grid_fields(facts, base)
    return Grid(
        fields=fields,
        sizes=sizes(inference, base),
        memory=memory_of(found.memory, row, request.gpu.memory_bytes),
        throughput=throughput_of(found.time, row),
        reasons=tuple(s for s in said if s.kind == "sizing"),
        cautions=tuple(s for s in said if s.kind in ("pitfall", "constraint")),
        overrides=(
            *overrides(fields, base),
            *overrides({"seq_length": facts.values["seq_length"]}, base),
        ),
    )


def _miss(
    request: Request,
    base: Knowledge,
    program: Program,
    found: Found,
    inference: Inference,
    assumed: Mapping[str, Any],
    top: int,
) -> NearestMiss:
    """Why nothing fits, and what would."""
    gpu, world = request.gpu, request.values["world_size"]
    assert gpu is not None
    assert isinstance(world, int)
    remedies: list[Text] = []
    fields: dict[str, Value] = {}
    memory = None
    if found.choices and found.memory is not None:
        closest = request.with_values(**found.choices[0])
        fields = grid_fields(build_facts(closest, base, assumed=assumed), base)
        memory = memory_of(found.memory, 0, gpu.memory_bytes)
        reason = Text(
            f"The leanest legal grid on {world:,} GPUs needs {size(memory.total)} a GPU; a {gpu.name} has "
            f"{size(gpu.memory_bytes)}.",
            f"{world:,} 张 GPU 上最省显存的合法网格每卡需要 {size(memory.total)}，而 {gpu.name} 只有 "
            f"{size(gpu.memory_bytes)}。",
        )
    else:
        rules = sorted(found.rejected, key=lambda r: -found.rejected[r])
        titles_en = "; ".join(f"{r}: {base.rules[r].title.en}" for r in rules[:3] if r in base.rules)
        titles_zh = "；".join(f"{r}：{base.rules[r].title.zh}" for r in rules[:3] if r in base.rules)
        reason = Text(
            f"No grid on {world:,} GPUs satisfies every rule. Most were removed by {titles_en or 'the pinned values'}.",
            f"{world:,} 张 GPU 上没有满足全部规则的网格，多数被以下规则排除：{titles_zh or '固定的取值'}。",
        )
    more = _more_gpus(request, base, program, top)
    if more:
        remedies.append(Text(f"{more:,} GPUs of this kind hold it.", f"使用 {more:,} 张同型号 GPU 即可放下。"))
    bigger = _bigger_gpus(request, base, program, top)
    if bigger:
        names = ", ".join(bigger)
        remedies.append(Text(f"{world:,} of these hold it: {names}.", f"{world:,} 张以下型号即可放下：{names}。"))
    pinned = pinned_names(request)
    if pinned:
        free = request.without(*pinned)
        if _fits(free, base, program):
            names = ", ".join(base.terms[n].field for n in pinned)
            remedies.append(Text(f"Leave these open: {names}.", f"放开这些取值：{names}。"))
    if request.values.get("gbs") is not None and _fits(request.without("gbs"), base, program):
        remedies.append(Text("Another global batch size would do.", "更换全局批大小即可。"))
    if not remedies:
        remedies.append(
            Text(
                "A smaller model, a shorter sequence, LoRA instead of full training, or far more GPUs.",
                "改用更小的模型、更短的序列、以 LoRA 代替全量训练，或大幅增加 GPU。",
            )
        )
    return NearestMiss(fields, memory, reason, tuple(remedies))


def _fits(request: Request, base: Knowledge, program: Program) -> bool:
    assumed, _ = assumptions(request)
    pinned = pinned_names(request)
    facts = build_facts(request, base, open_names=[n for n in OPEN if n not in pinned], assumed=assumed)
    inference = infer(program, facts.values)
    found = _search(request, base, program, inference, facts.values, pinned, 1)
    return found.fits


def _more_gpus(request: Request, base: Knowledge, program: Program, top: int) -> int | None:
    """The first doubling (from whole nodes) that fits."""
    gpu, world = request.gpu, request.values["world_size"]
    assert gpu is not None
    assert isinstance(world, int)
    start = 1 << max(0, (world - 1).bit_length())
    limit = int(base.terms["world_size"].max or 2**20)
    for step in range(GROWTH + 1):
        more = start << step
        if world < more <= limit and _fits(request.with_values(world_size=more), base, program):
            return more
    return None


def _bigger_gpus(request: Request, base: Knowledge, program: Program, top: int) -> list[str]:
    """Systems with more memory on which the same GPU count fits, smallest first."""
    gpu = request.gpu
    assert gpu is not None
    larger = sorted((g for g in base.gpus.values() if g.memory_bytes > gpu.memory_bytes), key=lambda g: g.memory_bytes)
    out = []
    for other in larger:
        if _fits(replace(request, gpu=other), base, program):
            out.append(other.name)
            if len(out) == 2:
                break
    return out
