"""Quantities and rules of one revision, compiled and put in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AdvisorError, ExpressionError, KnowledgeError, Problem
from ..expressions import EXACT, Column, Conjunction, Expression
from ..expressions.vector import read_column
from ..knowledge.model import Quantity, Revision, Rule, Term, Text, Value


class InferenceError(AdvisorError):
    """The inference itself can't run, for example because durable_rules was asked for and isn't there."""


@dataclass(frozen=True, eq=False)
class Step:
    """One thing that can fire: a rule at this revision, or a quantity (a rule without conditions).

    Attributes:
        id: rule id, or the quantity's name.
        rule: the rule at this revision, None for a quantity.
        when: its conditions; empty for a quantity.
        derives: names concluded, each with its expression.
        prefer: a sizing rule's preferences: (condition, cost where it is false).
        needs: names that must be known before it can fire.
        mentions: names that its message and fix texts show.
    """

    id: str
    rule: Rule | None
    when: Conjunction
    derives: tuple[tuple[str, Expression], ...]
    prefer: tuple[tuple[Expression, float], ...] = ()
    needs: frozenset[str] = frozenset()
    mentions: frozenset[str] = frozenset()

    @cached_property
    def inputs(self) -> frozenset[str]:
        """All names that its conditions and conclusions read."""
        return self.when.names.union(*(expression.names for _, expression in self.derives))

    @property
    def enforced(self) -> bool:
        """Whether the code refuses to run where this holds: a constraint of severity error."""
        return self.rule is not None and (self.rule.kind, self.rule.severity) == ("constraint", "error")

    def fires(self, known: Mapping[str, Value]) -> bool:
        """Whether all that it needs is known and all conditions hold."""
        return self.needs <= known.keys() and self.when.judge(known) is True


@dataclass(frozen=True, eq=False)
class Program:
    """Immutable; build one for a revision and share it, also between threads.

    Attributes:
        revision: what it was built for.
        terms: the vocabulary.
        steps: all steps by id, quantities first, then rules, each in order of id.
        strata: the same steps by level. A step of level n reads names of levels below n only, so that one pass decides
            every step once, with all that can ever be known about its inputs.
        levels: level of each derivable name: the highest of the steps that derive it. Given names have none.
    """

    revision: Revision
    terms: Mapping[str, Term]
    steps: Mapping[str, Step]
    strata: tuple[tuple[Step, ...], ...]
    levels: Mapping[str, int]

    @staticmethod
    def build(
        terms: Mapping[str, Term], quantities: Iterable[Quantity], rules: Iterable[Rule], revision: Revision
    ) -> Program:
        """Compile what holds at a revision.

        Raises:
            KnowledgeError: expressions that don't fit, derivations that go in a circle, two quantities of one name, or
                a derivation of a name that isn't ``derived``. All mistakes at once.
        """
        return _Builder(terms, revision).build(quantities, rules)

    @property
    def quantities(self) -> Mapping[str, Step]:
        """The steps that are quantities, by name."""
        return {step.id: step for step in self.steps.values() if step.rule is None}

    @cached_property
    def rules(self) -> Mapping[str, Step]:
        """The steps that are rules, by id."""
        return {step.id: step for step in self.steps.values() if step.rule is not None}

    @cached_property
    def constraints(self) -> Mapping[str, Step]:
        """The constraints of severity error, by id."""
        return {step.id: step for step in self.rules.values() if step.enforced}

    def derivers(self, name: str) -> tuple[Step, ...]:
        """The steps that can derive a name; none for a given one."""
        return self._derivers.get(name, ())

    @cached_property
    def _derivers(self) -> Mapping[str, tuple[Step, ...]]:
        return _derivers(self.steps.values())

    @cached_property
    def inputs(self) -> Mapping[str, frozenset[str]]:
        """For each rule's conditions and each quantity: the names at the bottom, seen through quantities.

        Those are given names and names that rules derive: with columns for them, :meth:`columns` and
        :meth:`constraint_masks` can do it.
        """
        bottoms: dict[str, frozenset[str]] = {}
        for stratum in self.strata:
            for step in stratum:
                reads = step.inputs if step.rule is None else step.when.names
                bottoms[step.id] = frozenset().union(*(bottoms.get(name, {name}) for name in reads))
        return bottoms

    def columns(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """The columns with one more for each quantity that can be computed from them and isn't there yet.

        For what a column may be see :meth:`~mbridge_advisor.expressions.Expression.vector`.

        Raises:
            ExpressionError: a whole number gets beyond 2**53.
        """
        known = dict(columns)
        for stratum in self.strata:
            for step in stratum:
                if step.rule is None and step.id not in known:
                    ((name, formula),) = step.derives
                    if formula.names <= known.keys():
                        known[name] = _exact(read_column(formula.vector(known), self.terms[name].type), formula)
        return known

    def constraint_masks(self, columns: Mapping[str, Column]) -> Iterator[tuple[str, NDArray[np.bool_] | bool]]:
        """Rule id and which candidates violate it, one by one, for the constraints of severity error.

        Those that read a name without a column are left out: :meth:`unjudged` lists them. A plain bool holds for all
        candidates.
        """
        for rule_id, step in self.constraints.items():
            if step.when.names <= columns.keys():
                yield rule_id, step.when.mask(columns)

    def unjudged(self, names: Iterable[str]) -> tuple[tuple[str, frozenset[str]], ...]:
        """The constraints of severity error that can't be judged with columns for these names, with what they miss."""
        known = frozenset(names)
        missing = ((rule_id, step.when.names - known) for rule_id, step in self.constraints.items())
        return tuple((rule_id, names) for rule_id, names in missing if names)


def _exact(column: Any, formula: Expression) -> Any:
    """Whole numbers in columns keep within 2**53; look only where the formula could leave that."""
    if formula.type == "int" and formula.tree.bound > EXACT:
        largest = np.abs(column).max() if np.size(column) else 0
        if largest > EXACT:
            raise ExpressionError(formula.source, f"too large a number ({largest}, beyond 2**53)")
    return column


def _derivers(steps: Iterable[Step]) -> dict[str, tuple[Step, ...]]:
    out: dict[str, tuple[Step, ...]] = {}
    for step in steps:
        for name, _ in step.derives:
            out[name] = (*out.get(name, ()), step)
    return out


class _Builder:
    def __init__(self, terms: Mapping[str, Term], revision: Revision) -> None:
        self.terms, self.revision = terms, revision
        self.problems: list[Problem] = []

    def build(self, quantities: Iterable[Quantity], rules: Iterable[Rule]) -> Program:
        steps: dict[str, Step] = {}
        for quantity in sorted(quantities, key=lambda q: q.name):
            formula = quantity.at(self.revision)
            if formula is not None:
                if quantity.name in steps:
                    self.problem(None, quantity.name, "a second quantity of this name")
                self.keep(steps, self.quantity(quantity.name, formula))
        for rule in sorted(rules, key=lambda r: r.id):
            here = rule.at(self.revision) if rule.kind != "diagnosis" else None  # read by the diagnosis alone
            if here is not None:
                if here.id in steps:
                    self.problem(here, here.id, "a second rule of this id")
                self.keep(steps, self.rule(here))
        for step in steps.values():
            for name, _ in step.derives if step.rule else ():
                if name in steps:
                    self.problem(step.rule, f"then.derive.{name}", f"{name} is a quantity, which always holds")
        levels = self.order(steps) if not self.problems else {}
        if self.problems:
            raise KnowledgeError(self.problems)
        depth = max(levels.values(), default=0)
        strata = tuple(tuple(s for s in steps.values() if levels[s.id] == n) for n in range(1, depth + 1))
        names = {name: max(levels[s.id] for s in by) for name, by in _derivers(steps.values()).items()}
        return Program(self.revision, self.terms, steps, strata, names)

    def problem(self, rule: Rule | None, path: str, reason: str) -> None:
        self.problems.append(Problem(rule.file if rule else "quantities", rule.line if rule else None, path, reason))

    @staticmethod
    def keep(steps: dict[str, Step], step: Step | None) -> None:
        if step is not None:
            steps[step.id] = step

    def derivation(self, name: str, source: str) -> tuple[str, Expression]:
        term = self.terms.get(name)
        if term is None:
            raise ExpressionError(source, f"gives {name!r}, which isn't in the vocabulary")
        if term.section != "derived":
            raise ExpressionError(source, f"gives {name}, a given name of section {term.section}; facts never change")
        expression = Expression(source, self.terms)
        expression.require(term)
        return name, expression

    def quantity(self, name: str, formula: str) -> Step | None:
        try:
            derives = (self.derivation(name, formula),)
        except ExpressionError as error:
            self.problem(None, f"{name}.formula", str(error))
            return None
        return Step(name, None, Conjunction((), self.terms), derives, needs=derives[0][1].names)

    def rule(self, rule: Rule) -> Step | None:
        try:
            path = f"{rule.id}.when"
            when = Conjunction(rule.when, self.terms)
            path = f"{rule.id}.then.derive"
            derives = tuple(self.derivation(name, source) for name, source in rule.then.derive.items())
            path = f"{rule.id}.then.prefer"
            prefer = tuple((Expression(source, self.terms), cost) for source, cost in rule.then.prefer)
            for condition, _ in prefer:
                condition.require_condition()
        except ExpressionError as error:
            self.problem(rule, path, str(error))
            return None
        texts = (rule.then.message, rule.fix.text if rule.fix else None)
        mentions = frozenset(name for text in texts if text for name in placeholders(text))
        if unknown := mentions - self.terms.keys():
            self.problem(rule, f"{rule.id}.then", f"a text shows unknown names: {', '.join(sorted(unknown))}")
        return Step(rule.id, rule, when, derives, prefer, when.names, mentions)

    def order(self, steps: Mapping[str, Step]) -> dict[str, int]:
        """Level of each step, by id; a circle is a problem."""
        derivers = _derivers(steps.values())
        levels: dict[str, int] = {}
        trail: list[str] = []  # steps whose level is being found, outermost first

        def visit(step: Step) -> int:
            if step.id in trail:
                circle = [*trail[trail.index(step.id) :], step.id]
                raise KnowledgeError(
                    [*self.problems, Problem("knowledge", None, step.id, f"derived in a circle: {' <- '.join(circle)}")]
                )
            if step.id not in levels:
                trail.append(step.id)
                below = (visit(by) for name in sorted(step.inputs) for by in derivers.get(name, ()))
                levels[step.id] = 1 + max(below, default=0)
                trail.pop()
            return levels[step.id]

        for step in steps.values():
            visit(step)
        return levels


def placeholders(text: Text) -> Iterator[str]:
    """Names in braces; a text whose braces don't match has none (the loader reports it)."""
    for words in (text.en, text.zh):
        try:
            fields = [name for _, name, _, _ in Formatter().parse(words) if name]
        except ValueError:
            fields = []
        yield from fields
