"""From a request to a search: what is assumed, concluded, suggested and bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..inference import Inference, Program, infer
from ..intake.facts import build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Term, Text, Value
from ..search.run import Found, search
from ..search.space import OPEN
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
    assumed: Mapping[str, tuple[Value, str]]
    pinned: Mapping[str, Value]
    facts: Mapping[str, Value]
    inference: Inference
    notes: tuple[Text, ...]


def make_plan(request: Request, base: Knowledge) -> Plan:
    """Assume what is missing, conclude what follows, and take the settings that the conclusions suggest."""
    program = program_for(base, request.revision)
    assumed, notes = assumptions(request)
    pinned = pinned_names(request)
    open_names = [name for name in OPEN if name not in pinned]
    facts = build_facts(request, base, open_names=open_names, assumed=assumed)
    inference = infer(program, facts.values)
    takes = [t for t in base.terms.values() if t.suggests and t.name in inference.facts]
    suggested = {
        t.suggests: _as(base.terms[t.suggests], inference.facts[t.name])
        for t in takes
        if t.suggests and t.suggests not in request.values
    }
    sources = {inference.derivations[t.name].source for t in takes if t.suggests in suggested}
    advised = tuple(s for s in statements(inference, program, base) if s.rule in sources)
    if suggested:
        request = request.with_values(**suggested)
        facts = build_facts(request, base, open_names=open_names, assumed=assumed)
        inference = infer(program, facts.values)
    return Plan(
        request, base, program, tuple(suggested), advised, assumed, pinned, facts.values, inference, tuple(notes)
    )


def run_plan(
    plan: Plan,
    top: int,
    progress: Callable[[str, float], None] = lambda stage, share: None,
    constants: Mapping[str, float] | None = None,
) -> Found:
    """Search; ``constants`` replaces the knowledge base's calibration."""
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
