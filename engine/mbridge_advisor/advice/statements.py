"""From what the inference concluded to lines for people: texts with numbers filled in, fixes as data, citations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ExpressionError
from ..evidence.tags import tag_of
from ..expressions import Expression
from ..inference import Inference, Program
from ..knowledge.model import Fix, Knowledge, Revision, Rule, Term, Text, Value
from .render.words import size
from .results import Derived, NotJudged, Statement

COUNTED = frozenset(
    {"total_params", "active_params", "expert_params", "dense_params", "num_moe_layers", "num_dense_layers"}
)  # counted from the architecture by code
SEVERITIES = ("error", "override", "warning", "advice")
_SHORT = 3  # letters of a name that people know as an abbreviation: TP, EP, ETP


def statements(
    inference: Inference, program: Program, knowledge: Knowledge, kinds: Iterable[str] | None = None
) -> tuple[Statement, ...]:
    """Every fired rule that has a message, gravest first.

    Args:
        inference: the conclusions.
        program: the program that made them.
        knowledge: for terms.
        kinds: rule kinds to keep; None keeps all.
    """
    out = []
    for firing in inference.firings:
        rule = program.rules[firing.rule].rule
        if rule is None or rule.then.message is None or (kinds is not None and rule.kind not in kinds):
            continue
        out.append(statement(rule, firing.facts, inference.facts, knowledge, program.revision))
    return tuple(sorted(out, key=lambda s: (SEVERITIES.index(s.severity), s.rule)))


def statement(
    rule: Rule, used: Mapping[str, Value], facts: Mapping[str, Value], knowledge: Knowledge, revision: Revision
) -> Statement:
    """One rule as a line, with the facts that it used, and the tag that it has earned at the revision."""
    message = rule.then.message
    assert message is not None
    return Statement(
        rule=rule.id,
        kind=rule.kind,
        severity=rule.severity,
        status=tag_of(knowledge, rule.id, revision.tag),
        message=fill(message, facts, knowledge.terms),
        because=fill(rule.because, facts, knowledge.terms),
        facts=dict(used),
        citations=rule.citations,
        fix=fill(rule.fix.text, facts, knowledge.terms) if rule.fix and rule.fix.text else None,
        set=fix_values(rule.fix, facts, knowledge) if rule.fix else {},
    )


class _Shown:
    """Values as people write them, made when asked for; unknown names as what they stand for, in brackets."""

    def __init__(self, facts: Mapping[str, Value], terms: Mapping[str, Term], lang: str) -> None:
        self._facts, self._terms, self._lang = facts, terms, lang

    def __getitem__(self, name: str) -> str:
        term = self._terms.get(name)
        if name in self._facts:
            return show(self._facts[name], term, self._lang)
        short = term is None or len(name) <= _SHORT
        return f"[{name.upper() if short or term is None else term.title[self._lang]}]"


def fill(text: Text, facts: Mapping[str, Value], terms: Mapping[str, Term]) -> Text:
    """Replace ``{name}`` by the value of the name, as people write it."""
    if "{" not in text.en and "{" not in text.zh:
        return text
    return Text(text.en.format_map(_Shown(facts, terms, "en")), text.zh.format_map(_Shown(facts, terms, "zh")))


def show(value: Value, term: Term | None, lang: str) -> str:
    """A value for people: bytes as GB, unset as a word, numbers without noise."""
    if value is None:
        return "未设置" if lang == "zh" else "unset"
    if isinstance(value, bool):
        return ("是" if value else "否") if lang == "zh" else ("on" if value else "off")
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    if term is not None and term.unit == "byte" and isinstance(value, int | float):
        return size(float(value))
    if term is not None and term.unit == "flop/second" and isinstance(value, int | float):
        return f"{value / 1e12:,.0f} TFLOP/s"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1e6 else f"{value / 1e9:,.3g}e9"
    if isinstance(value, int):
        if term is not None and term.unit == "parameter" and value >= 10**7:
            return f"{value / 1e9:,.3g}B"
        return f"{value:,}" if value >= 10_000 else str(value)
    return str(value)


def fix_values(fix: Fix, facts: Mapping[str, Value], knowledge: Knowledge) -> dict[str, Value]:
    """The change as data: field name -> value. What can't be computed from what is known is left out."""
    out: dict[str, Value] = {}
    for name, value in fix.set.items():
        if isinstance(value, str) and value.startswith("="):
            try:
                value = Expression(value[1:].strip(), knowledge.terms).scalar(facts)
            except ExpressionError:
                continue
        out[knowledge.terms[name].field] = value
    return out


def not_judged(
    inference: Inference, program: Program, knowledge: Knowledge, kinds: Iterable[str] | None = None
) -> tuple[NotJudged, ...]:
    """Rules that lacked a name, each with what to give so that it can be judged.

    A derived name is traced to what it needs; the dimensions of a model are one thing to give, ``model``, and what a
    system's facts tell is ``gpu``.
    """
    known = inference.facts

    def ask(name: str, seen: frozenset[str]) -> set[str]:
        term = knowledge.terms[name]
        if name in seen:
            return set()
        if term.section == "model" or name in COUNTED:
            return {"model"}
        if term.section == "cluster" and term.name != "world_size":
            return {"gpu"}
        steps = program.derivers(name)
        if not steps:
            return {term.field}
        return set().union(*(ask(n, seen | {name}) for step in steps for n in step.inputs if n not in known))

    out = []
    for rule_id, missing in inference.not_judged:
        rule = program.rules[rule_id].rule
        if rule is not None and (kinds is None or rule.kind in kinds):
            needs = set().union(*(ask(name, frozenset()) for name in missing))
            if needs:
                out.append(NotJudged(rule_id, tuple(sorted(needs))))
    return tuple(out)


def derived(inference: Inference, knowledge: Knowledge, names: Iterable[str] | None = None) -> tuple[Derived, ...]:
    """Concluded values, in the order in which they became known."""
    rows: list[tuple[int, str, Any]] = [(d.round, name, d) for name, d in inference.derivations.items()]
    keep = None if names is None else set(names)
    return tuple(
        Derived(name, knowledge.terms[name].field, d.value, d.source, d.inputs)
        for _, name, d in sorted(rows, key=lambda row: row[:2])
        if keep is None or name in keep
    )
