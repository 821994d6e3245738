"""Matching with durable_rules.

Each stratum becomes rulesets of single-fact patterns. What the library compares reliably (measured: whole numbers,
bools and short texts, with a literal or with each other) is in the pattern, the rest is left out of it, and the action
judges the whole condition, so that a pattern may fire too often but never wrongly.

How the library is driven, and why:

- No ``Host``: it starts timer threads. A ``Ruleset`` works alone.
- One fact an evaluation, with an ``id`` of its own (facts with one id, or without one and with equal hashes, are taken
  for the same one) and a session (``sid``) of its own, deleted afterwards, so that nothing accumulates.
- A session's memory isn't initialised before its first action, yet deleting the session frees pointers in it. Sessions
  of a ruleset use the same slot one after the other, so one session with an action at the start makes it safe.
- At most 50 rules a ruleset: about 60 that match one fact overflow a fixed stack (error 303). At most 200 properties
  a fact (the limit is 255).
- Floats are never handed over: its JSON reader refuses exponents. Texts of 65,536 characters and more compare wrongly,
  so long ones go as a digest.
- It swallows exceptions in actions: they are kept and raised after the run.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

from ..expressions import Comparison
from ..knowledge.model import Term, Value
from .program import InferenceError, Program, Step

MAX_RULES = 50
MAX_PROPERTIES = 200
_LARGEST = 2**62
_LONGEST = 200

_OPERATORS = {"!=": "$neq", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}
_ALWAYS = "always"  # a property of every fact: the pattern of a rule without conditions
_FIRST = "first"  # a property of the very first fact only
_ids = itertools.count(1)


class DurableMatcher:
    """Compiled rulesets of one program. Safe to share between threads: each ruleset has its lock.

    Raises:
        ImportError: durable_rules isn't installed.
    """

    name = "durable_rules"

    def __init__(self, program: Program) -> None:
        self._strata = [[_Ruleset(chunk, program.terms) for chunk in _chunks(steps)] for steps in program.strata]

    def match(self, stratum: int, known: Mapping[str, Value]) -> Collection[str]:
        """Ids of the steps of a stratum that fire on these facts."""
        return {step_id for ruleset in self._strata[stratum] for step_id in ruleset.run(known)}


def _chunks(steps: Iterable[Step]) -> Iterator[list[Step]]:
    chunk: list[Step] = []
    properties: set[tuple[str, bool]] = set()
    for step in steps:
        wanted = {(name, given) for name in step.needs for given in (False, True)}
        if chunk and (len(chunk) == MAX_RULES or len(properties | wanted) > MAX_PROPERTIES):
            yield chunk
            chunk, properties = [], set()
        chunk.append(step)
        properties |= wanted
    if chunk:
        yield chunk


class _Ruleset:
    """At most 50 steps as one compiled ruleset."""

    def __init__(self, steps: list[Step], terms: Mapping[str, Term]) -> None:
        from durable import engine  # only here: it isn't there on Python 3.13

        self._engine = engine
        self._lock = Lock()
        self._terms = terms
        self._known: Mapping[str, Value] = {}
        self._fired: list[str] = []
        self._errors: list[BaseException] = []
        tests = {step.id: step.when.pattern() for step in steps}
        everything = [test for of_step in tests.values() for test in of_step]
        self._compared = {n for t in everything if not t.given for n in (t.name, t.other) if n is not None}
        self._asked = {t.name for t in everything if t.given}
        self._present = frozenset().union(*(step.needs for step in steps))
        definition = {
            str(index): {"all": [{"m": {"$and": self._pattern(step, tests[step.id])}}], "run": self._action(step)}
            for index, step in enumerate(steps)
        }
        definition[_FIRST] = {"all": [{"m": {"$ex": {_FIRST: 1}}}], "run": lambda _: None}
        self._ruleset = engine.Ruleset("steps", None, definition)
        # The library doesn't free compiled rulesets by itself.
        finalizer = weakref.finalize(self, engine.durable_rules_engine.delete_ruleset, self._ruleset._handle)
        finalizer.atexit = False
        self._assert({_FIRST: 1})

    @staticmethod
    def _pattern(step: Step, tests: Iterable[Comparison]) -> list[dict[str, Any]]:
        compared = [_condition(test) for test in tests]
        present = [{"$ex": {f"n_{name}": 1}} for name in sorted(step.needs)]
        return [*compared, *present, {"$ex": {_ALWAYS: 1}}]

    def _action(self, step: Step) -> Any:
        def judge(_: object) -> None:  # called by the library while run() holds the lock
            try:
                if step.fires(self._known):
                    self._fired.append(step.id)
            except BaseException as error:
                self._errors.append(error)

        return judge

    def run(self, known: Mapping[str, Value]) -> list[str]:
        """Ids of the steps that fire."""
        fact = self._fact(known)
        with self._lock:
            self._known, self._fired, self._errors = known, [], []
            try:
                for _attempt in range(3):
                    if self._assert(fact):
                        break
                else:
                    raise InferenceError("durable_rules keeps taking a new fact for one that it has seen")
                if self._errors:
                    raise self._errors[0]
                return self._fired
            finally:
                self._known, self._fired, self._errors = {}, [], []

    def _assert(self, fact: dict[str, Any]) -> bool:
        """Assert the fact and run the actions; False where the library takes it for another one."""
        key = str(next(_ids))
        try:
            state = self._ruleset.assert_fact({**fact, "id": key, "sid": key})
            self._ruleset.do_actions(state, self._complete)
        except self._engine.MessageNotHandledException:
            pass  # nothing matches
        except self._engine.MessageObservedException:
            return False
        except self._engine.durable_rules_engine.error as error:
            raise InferenceError(f"durable_rules: {error}") from error
        finally:
            with suppress(self._engine.durable_rules_engine.error):  # a fact that was refused opened no session
                self._ruleset.delete_state(key)
        return True

    def _complete(self, error: BaseException | None, _: object) -> None:
        if error:
            self._errors.append(InferenceError(f"durable_rules: {error}"))

    def _fact(self, known: Mapping[str, Value]) -> dict[str, Any]:
        fact: dict[str, Any] = {_ALWAYS: 1}
        for name in self._present & known.keys():
            value = known[name]
            fact[f"n_{name}"] = _encode(value, self._terms[name].type) if name in self._compared else 1
            if name in self._asked:
                fact[f"g_{name}"] = value is not None
        return fact


def _condition(test: Comparison) -> dict[str, Any]:
    name = f"g_{test.name}" if test.given else f"n_{test.name}"
    value: Any = {"$m": f"n_{test.other}"} if test.other is not None else _literal(test.value)
    return {name: value} if test.op == "==" else {_OPERATORS[test.op]: {name: value}}


def _encode(value: Value, kind: str) -> int | bool | str:
    """A fact's value as the library compares it; unset is the zero of its type."""
    if kind == "str":
        return _text("" if value is None else str(value))
    if kind == "bool":
        return bool(value)
    return max(-_LARGEST, min(_LARGEST, int(value or 0)))  # type: ignore[arg-type]


def _literal(value: int | bool | str) -> int | bool | str:
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    """ASCII and short, different for different texts."""
    text = ascii(value)
    return text if len(text) <= _LONGEST else hashlib.sha256(text.encode()).hexdigest()
