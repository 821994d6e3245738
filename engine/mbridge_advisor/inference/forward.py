"""Forward chaining: facts in, conclusions with their proof out."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Collection, Mapping
from functools import cache
from threading import Lock
from typing import Literal, Protocol

from ..knowledge.model import Value
from .durable import DurableMatcher
from .program import InferenceError, Program, Step
from .proof import Conflict, Derivation, Firing, Inference
from .reference import ReferenceMatcher

Engine = Literal["auto", "durable", "reference"]


class Matcher(Protocol):
    """The narrow interface between forward chaining and a rule engine."""

    name: str

    def match(self, stratum: int, known: Mapping[str, Value]) -> Collection[str]:
        """Ids of the steps of a stratum that fire on these facts."""


def infer(program: Program, facts: Mapping[str, Value], engine: Engine = "auto") -> Inference:
    """Derive all that follows from the facts.

    Each round decides the steps of one level: it matches them against everything known so far, then adds what they
    derive. A name that is given is never derived.

    Args:
        program: the knowledge at one revision.
        facts: values by short name; None is unset, absent is unknown.
        engine: ``durable``, ``reference``, or ``auto``: durable_rules where it is installed.

    Raises:
        InferenceError: ``durable`` was asked for and isn't installed.
        ExpressionError: a number leaves the range of floats.
    """
    return _Run(program, facts, _matcher(program, engine)).run()


class _Run:
    def __init__(self, program: Program, facts: Mapping[str, Value], matcher: Matcher) -> None:
        self.program, self.given, self.matcher = program, facts, matcher
        self.known: dict[str, Value] = dict(facts)
        self.derivations: dict[str, Derivation] = {}
        self.fired: list[tuple[Step, int]] = []
        self.missing: dict[str, frozenset[str]] = {}
        self.conflicts: list[Conflict] = []
        self.proposed: dict[str, list[Derivation]] = {}

    def run(self) -> Inference:
        for stratum, steps in enumerate(self.program.strata):
            matched = self.matcher.match(stratum, self.known)
            for step in steps:
                if step.id in matched:
                    self.fire(step, stratum + 1)
                elif step.rule is not None and not step.needs <= self.known.keys():
                    verdict = step.when.judge(self.known)
                    if isinstance(verdict, frozenset):
                        self.missing[step.id] = verdict
            for name in sorted(self.proposed):
                if self.program.levels[name] == stratum + 1:
                    self.settle(name, self.proposed.pop(name))
        firings = (Firing(step.id, self.pick(step.when.names | step.mentions), n) for step, n in self.fired)
        return Inference(
            revision=self.program.revision.tag,
            facts=self.known,
            derivations=self.derivations,
            firings=tuple(sorted(firings, key=lambda firing: firing.rule)),
            not_judged=tuple(sorted(self.missing.items())),
            conflicts=tuple(self.conflicts),
            engine=self.matcher.name,
        )

    def fire(self, step: Step, number: int) -> None:
        if step.rule is not None:
            self.fired.append((step, number))
        absent: frozenset[str] = frozenset()
        for name, expression in step.derives:
            if name in self.given:
                continue
            if not expression.names <= self.known.keys():
                absent |= expression.names - self.known.keys()
                continue
            value = expression.scalar(self.known)
            if self.program.terms[name].type == "float":
                value = float(value)  # type: ignore[arg-type]
            inputs = self.pick(step.when.names | expression.names)
            self.proposed.setdefault(name, []).append(Derivation(value, step.id, inputs, number))
        if absent:
            self.missing[step.id] = absent

    def settle(self, name: str, proposals: list[Derivation]) -> None:
        """Nothing can propose this name any more: the smallest rule id wins."""
        kept, *others = sorted(proposals, key=lambda derivation: derivation.source)
        self.known[name] = kept.value
        self.derivations[name] = kept
        for other in others:
            if other.value != kept.value:
                self.conflicts.append(Conflict(name, (kept.source, kept.value), (other.source, other.value)))

    def pick(self, names: frozenset[str]) -> dict[str, Value]:
        return {name: self.known[name] for name in sorted(names) if name in self.known}


_compiled: weakref.WeakKeyDictionary[Program, DurableMatcher] = weakref.WeakKeyDictionary()
_compiling = Lock()


def _matcher(program: Program, engine: Engine) -> Matcher:
    if engine == "reference":
        return ReferenceMatcher(program)
    try:
        with _compiling:
            if program not in _compiled:
                _compiled[program] = DurableMatcher(program)
            return _compiled[program]
    except ImportError:
        if engine == "durable":
            raise InferenceError(
                "durable_rules isn't installed (it needs Python 3.12 or older); the engines auto and reference work"
            ) from None
        _notice()
        return ReferenceMatcher(program)


@cache
def _notice() -> None:
    """Say once in a process that the reference evaluator serves."""
    logging.getLogger("mbridge_advisor").warning(
        "durable_rules isn't installed: the built-in reference evaluator gives the same answers."
    )
