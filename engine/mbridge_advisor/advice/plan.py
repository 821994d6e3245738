"""From a request to a search: what is assumed, concluded, suggested and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..inference import Inference, Program, infer
from ..intake.facts import build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Term, Text, Value
from ..search.run import Found, search
from ..search.space import GRID, OPEN
from .figures import assumptions, pinned_names, settings_of
from .programs import program_for
from .results import Statement
from .statements import statements


@dataclass(frozen=True)
class Plan:
    """A request ready for the search.

    Attributes:
        request: with the settings that sizing rules suggest filled in.
        suggested: short names of those settings.
        advised: what the rules say that suggested them.
        tentative: rules that suggest something tentatively.
        declined: those whose suggestions are left aside here: all or none.
        assumed: values that nobody gave.
        pinned: open names that the request fixes.
        facts, inference: what is known of the request itself.
        notes: for the reader.
    """

    request: Request
    base: Knowledge
    program: Program
    suggested: tuple[str, ...]
    advised: tuple[Statement, ...]
    tentative: frozenset[str]
    declined: frozenset[str]
    assumed: Mapping[str, tuple[Value, str]]
    pinned: Mapping[str, Value]
    facts: Mapping[str, Value]
    inference: Inference
    notes: tuple[Text, ...]


def make_plans(request: Request, base: Knowledge) -> tuple[Plan, ...]:
    """Assume what is missing, conclude what follows, and take the settings that the conclusions suggest.

    Where some are suggested tentatively (they may not pay), a second plan leaves those aside.
    """
    program = program_for(base, request.revision)
    assumed, notes = assumptions(request)
    pinned = pinned_names(request)
    open_names = [name for name in OPEN if name not in pinned]
    given = build_facts(request, base, open_names=open_names, assumed=assumed)
    concluded = infer(program, given.values)
    suggestions = [
        (term, concluded.derivations[term.name].source)
        for term in base.terms.values()
        if term.suggests and term.suggests not in request.values and term.name in concluded.facts
    ]
    unsure = frozenset(source for term, source in suggestions if term.tentative)
    told = statements(concluded, program, base)

    def plan(declined: frozenset[str]) -> Plan:
        taken = [(term, source) for term, source in suggestions if not (term.tentative and declined)]
        sources = {source for _, source in taken}
        suggested = {
            term.suggests: _as(base.terms[term.suggests], concluded.facts[term.name])
            for term, _ in taken
            if term.suggests
        }
        filled, facts, inference = request, given, concluded
        if suggested:
            filled = request.with_values(**suggested)
            facts = build_facts(filled, base, open_names=open_names, assumed=assumed)
            inference = infer(program, facts.values)
        return Plan(
            filled,
            base,
            program,
            tuple(suggested),
            tuple(s for s in told if s.rule in sources),
            unsure,
            declined,
            assumed,
            pinned,
            facts.values,
            inference,
            tuple(notes),
        )

    return (plan(frozenset()), plan(unsure)) if unsure else (plan(frozenset()),)


def run_plan(
    plan: Plan,
    top: int,
    progress: Callable[[str, float], None] = lambda stage, share: None,
    constants: Mapping[str, float] | None = None,
    floor: float = 0.0,
) -> Found:
    """Search; ``constants`` replaces the knowledge base's calibration, ``floor`` is the score to exceed."""
    request, base = plan.request, plan.base
    arch, gpu = request.architecture, request.gpu
    assert arch is not None
    assert gpu is not None
    return search(
        arch,
        settings_of(request, plan.facts, base),
        gpu,
        plan.program,
        plan.inference.facts,
        plan.pinned,
        bounds_of(plan.inference, base, plan.pinned),
        constants or base.calibration_values,
        top,
        progress,
        floor,
    )


@dataclass(frozen=True)
class Finalist:
    """One grid that was found: row ``row`` of ``found``, which a search of ``plan`` gave."""

    plan: Plan
    found: Found
    row: int

    @property
    def choice(self) -> Mapping[str, Value]:
        """Short name -> value of everything that was open, and whether FSDP shards the model."""
        fsdp = bool(self.plan.facts.get("use_megatron_fsdp"))
        return {**self.found.choices[self.row], "use_megatron_fsdp": fsdp}

    @property
    def score(self) -> float:
        """Tokens/s/GPU after the rules' preferences."""
        return float(self.found.score[self.row])

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of a step by component."""
        assert self.found.time is not None
        return {name: float(values[self.row]) for name, values in self.found.time.components.items()}

    @property
    def preference(self) -> float:
        """The factor that the rules' preferences put on its speed."""
        assert self.found.time is not None
        return self.score / float(self.found.time.tokens_per_second_per_gpu[self.row])


@dataclass(frozen=True)
class Outcome:
    """The best of all plans for a request.

    Attributes:
        plan, found: of the search to speak of where nothing was found: the one without tentative suggestions.
        finalists: best first; another process grid each, or the same with and without FSDP.
        fits: whether they fit with the margin that measured errors call for.
        candidates, rejected: over all searches.
    """

    plan: Plan
    found: Found
    finalists: tuple[Finalist, ...]
    fits: bool
    candidates: int
    rejected: Mapping[str, int]


def find(
    request: Request,
    base: Knowledge,
    top: int,
    progress: Callable[[str, float], None] = lambda stage, share: None,
    constants: Mapping[str, float] | None = None,
) -> Outcome:
    """Search with every suggested setting, and without the tentative ones where there are some."""
    plans = make_plans(request, base)
    results = []
    floor = 0.0
    for n, plan in enumerate(plans):

        def part(stage: str, share: float, n: int = n) -> None:
            progress(stage, (n + share) / len(plans))

        found = run_plan(plan, top, part, constants, floor)
        results.append((plan, found))
        if found.fits and len(found.choices) == top:
            floor = float(found.score[-1])  # what is slower can't be among the best of both
    fits = any(found.fits for _, found in results)
    pool = [
        Finalist(plan, found, row)
        for plan, found in results
        if found.time is not None and found.fits == fits
        for row in range(len(found.choices))
    ]
    best: dict[tuple[Value, ...], Finalist] = {}
    for finalist in sorted(pool, key=lambda f: -f.score):
        key = tuple(finalist.choice[name] for name in (*GRID, "use_megatron_fsdp"))
        best.setdefault(key, finalist)
    rejected: Counter[str] = Counter()
    for _, found in results:
        rejected.update(found.rejected)
    return Outcome(
        plan=plans[-1],
        found=results[-1][1],
        finalists=tuple(best.values())[:top],
        fits=fits,
        candidates=sum(found.candidates for _, found in results),
        rejected=dict(rejected),
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


def _as(term: Term, value: Value) -> Value:
    """A conclusion as a value of another term: expressions have no lists, so a list is concluded as words."""
    return tuple(value.split()) if term.type == "list" and isinstance(value, str) else value
