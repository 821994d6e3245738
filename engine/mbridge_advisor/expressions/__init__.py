"""Conditions and formulas: a small language over the vocabulary. See docs/architecture.md, section 3.

e = Expression("pp * lcm(tp * cp, ep)", terms)      # parsed and checked, else ExpressionError
e.type, e.unit, e.names                             # "int", "1", frozenset({"pp", "tp", "cp", "ep"})
e.scalar({"pp": 2, "tp": 6, "cp": 1, "ep": 4})      # 24
e.vector({"pp": 2, "tp": np.array([1, 6]), ...})    # array([..])

c = Conjunction(["sequence_parallel", "tp < 2"], terms)
c.judge({"tp": 2})                                  # False
c.judge({"tp": 1})                                  # frozenset({"sequence_parallel"}): can't be judged without
c.mask({"tp": np.array([1, 2]), "sequence_parallel": True})  # array([True, False])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ExpressionError
from ..knowledge.model import Term, Value
from .compile import Closure, compile_tree
from .parser import Node, Type, parse
from .pattern import Comparison, tests
from .scalar import SCALAR
from .types import EXACT, check, format_unit, parse_unit
from .vector import VECTOR, Column, Membership, checked, read_column, read_given

__all__ = [
    "EXACT",
    "Column",
    "Comparison",
    "Conjunction",
    "Expression",
    "ExpressionError",
    "Membership",
    "parse",
    "parse_unit",
]

Missing = frozenset[str]


@dataclass(frozen=True, init=False)
class Expression:
    """An expression over the vocabulary, checked when built. Immutable; equal where the sources are.

    Attributes:
        source: the text.
        tree: the checked tree.
        names: all names that it reads, those inside ``given()`` too.
        guarded: those read inside ``given()`` only.
    """

    source: str
    tree: Node = field(compare=False, repr=False)
    names: frozenset[str] = field(compare=False, repr=False)
    guarded: frozenset[str] = field(compare=False, repr=False)
    _read: Mapping[str, Type] = field(compare=False, repr=False)  # names read outside given(), with their types
    _asked: frozenset[str] = field(compare=False, repr=False)  # names inside given(), each with a question mark

    def __init__(self, source: str, terms: Mapping[str, Term]) -> None:
        """Parse and check.

        Raises:
            ExpressionError: outside the language, an unknown name, or types or units that don't fit.
        """
        tree = check(parse(source), source, terms)
        read = {str(node.value): node.type for node in tree.walk() if node.op == "name"}
        asked = frozenset(str(node.value) for node in tree.walk() if node.op == "given")
        for name, value in {
            "source": source,
            "tree": tree,
            "names": asked.union(read),
            "guarded": asked.difference(read),
            "_read": read,
            "_asked": frozenset(f"{name}?" for name in asked),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def type(self) -> Type:
        """Type of the result."""
        return self.tree.type

    @property
    def unit(self) -> str:
        """Unit of the result, ``1`` for none (or for a literal, which takes any)."""
        return format_unit(self.tree.unit)

    def require(self, term: Term) -> None:
        """Check that the result can be the value of a term.

        Raises:
            ExpressionError: type or unit differ.
        """
        if self.type != term.type and (self.type, term.type) != ("int", "float"):
            raise ExpressionError(self.source, f"gives {self.type}, but {term.name} is {term.type}", 0)
        if self.tree.unit is not None and self.tree.unit != parse_unit(term.unit):
            raise ExpressionError(self.source, f"gives unit {self.unit}, but {term.name} has {term.unit}", 0)

    def require_condition(self) -> None:
        """Check that the result is true or false.

        Raises:
            ExpressionError: it isn't.
        """
        if self.type != "bool":
            raise ExpressionError(self.source, f"a condition gives true or false, not {self.type}", 0)

    def scalar(self, facts: Mapping[str, Value]) -> Value:
        """The value for one fact set. A fact that is None is unset and reads as the zero of its type.

        Raises:
            ExpressionError: a name isn't in ``facts``, or a number leaves the range of floats.
        """
        try:
            return self._scalar(facts)  # type: ignore[no-any-return]
        except KeyError:
            raise ExpressionError(self.source, _needs(self.names - facts.keys())) from None
        except OverflowError as error:
            raise ExpressionError(self.source, f"too large a number ({error})") from None

    def vector(self, columns: Mapping[str, Column]) -> Any:
        """The values for all candidates: an array, or one value where that holds for all.

        An array of a nullable name holds 0 (or "" or False) where it is unset. Where 0 is a legal value too, give a
        bool column ``name?`` that says where the name is set; without one, ``given(name)`` is "not zero". A list-valued
        column maps an item to the bool array of the candidates whose list holds it. Whole numbers keep within 2**53.

        Raises:
            ExpressionError: a name has no column, or a whole number would leave 64 bits.
        """
        return self._run(self.environment(columns))

    def environment(self, columns: Mapping[str, Column], known: dict[str, Any] | None = None) -> dict[str, Any]:
        """The columns that this expression reads, ready for it; ``known`` is extended and returned where given."""
        env = {} if known is None else known
        if not self.names <= columns.keys():
            raise ExpressionError(self.source, _needs(self.names - columns.keys()))
        for name, kind in self._read.items():
            if name not in env:
                env[name] = read_column(columns[name], kind)
        for key in self._asked:
            if key not in env:
                env[key] = read_given(columns, key[:-1])
        return env

    def _run(self, env: Mapping[str, Any]) -> Any:
        try:
            with np.errstate(all="ignore"):
                return self._vector(env)
        except OverflowError as error:
            raise ExpressionError(self.source, f"too large a number ({error})") from None

    @cached_property
    def _scalar(self) -> Closure:
        return compile_tree(self.tree, SCALAR)

    @cached_property
    def _vector(self) -> Closure:
        return compile_tree(checked(self.tree), VECTOR)


@dataclass(frozen=True, init=False)
class Conjunction:
    """A list of conditions that must all hold (a rule's ``when``). Empty, it always holds.

    Attributes:
        conjuncts: the conditions.
        names: all names that they read.
    """

    conjuncts: tuple[Expression, ...]
    names: frozenset[str] = field(compare=False, repr=False)

    def __init__(self, sources: Iterable[str], terms: Mapping[str, Term]) -> None:
        """Parse and check each.

        Raises:
            ExpressionError: see :class:`Expression`; or one isn't a condition.
        """
        conjuncts = tuple(Expression(source, terms) for source in sources)
        for conjunct in conjuncts:
            conjunct.require_condition()
        object.__setattr__(self, "conjuncts", conjuncts)
        object.__setattr__(self, "names", frozenset().union(*(c.names for c in conjuncts)))

    def judge(self, facts: Mapping[str, Value]) -> Literal[True, False] | Missing:
        """Whether all hold: True, False (some conjunct is false), or the names without which it can't be said."""
        missing: set[str] = set()
        for conjunct in self.conjuncts:
            absent = conjunct.names - facts.keys()
            if absent:
                missing |= absent
            elif not conjunct.scalar(facts):
                return False
        return frozenset(missing) or True

    def mask(self, columns: Mapping[str, Column]) -> NDArray[np.bool_] | bool:
        """Where all hold: a bool array, or one bool where that holds for all candidates.

        Conjuncts of single values come first, and the rest is left out once no candidate is left. For columns see
        :meth:`Expression.vector`; blocks of 30,000 to 130,000 candidates are fastest.
        """
        env: dict[str, Any] = {}
        for conjunct in self.conjuncts:
            conjunct.environment(columns, env)
        result: Any = True
        arrays = {key for key, value in env.items() if isinstance(value, np.ndarray | Mapping)}
        for conjunct in sorted(self.conjuncts, key=lambda c: not arrays.isdisjoint({*c._read, *c._asked})):
            value = conjunct._run(env)
            result = value if result is True else result & value
            if result is False or (isinstance(result, np.ndarray) and not result.any()):
                break
        return result  # type: ignore[no-any-return]

    def pattern(self) -> tuple[Comparison, ...]:
        """Native tests that hold whenever the conjunction does."""
        return tests(conjunct.tree for conjunct in self.conjuncts)


def _needs(names: Iterable[str]) -> str:
    return f"needs {', '.join(sorted(names))}"
