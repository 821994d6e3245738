"""Types, units and the size of integers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from ..errors import ExpressionError
from ..knowledge.model import Term
from .parser import Node, Type, Unit

BASE_UNITS = frozenset({"byte", "second", "flop", "token", "sequence", "layer", "parameter"})

WIDE = 2**62  # int arithmetic on arrays keeps to this magnitude
EXACT = 2**53  # the largest magnitude of a fact: floats are exact up to here

_NUMERIC = ("int", "float")


@lru_cache(maxsize=256)
def parse_unit(text: str) -> Unit:
    """``"byte/second"`` -> ``(("byte", 1), ("second", -1))``; ``"1"`` -> ``()``.

    Products and quotients of base units, each with an optional ``^n``.

    Raises:
        ValueError: not such a product, or an unknown base unit.
    """
    exponents: dict[str, int] = {}
    for sign, part in re.findall(r"(^|[*/])([^*/]*)", text.strip()):
        base, _, power = part.strip().partition("^")
        if base == "1":
            continue
        if base not in BASE_UNITS:
            raise ValueError(f"unknown unit {base!r} in {text!r}; known: {', '.join(sorted(BASE_UNITS))}")
        if power and not re.fullmatch(r"[1-9]", power):
            raise ValueError(f"the power in {text!r} must be a digit from 1 to 9")
        exponents[base] = exponents.get(base, 0) + (-1 if sign == "/" else 1) * int(power or 1)
    return _normal(exponents)


def format_unit(unit: Unit | None) -> str:
    """The unit as text, ``1`` where there is none."""
    if not unit:
        return "1"
    above = [name if n == 1 else f"{name}^{n}" for name, n in unit if n > 0]
    below = [name if n == -1 else f"{name}^{-n}" for name, n in unit if n < 0]
    return "/".join(["*".join(above) or "1", *below])


def _normal(exponents: Mapping[str, int]) -> Unit:
    return tuple(sorted((name, n) for name, n in exponents.items() if n))


def _multiply(left: Unit | None, right: Unit | None, sign: int = 1) -> Unit | None:
    if left is None and right is None:
        return None
    exponents = dict(left or ())
    for name, n in right or ():
        exponents[name] = exponents.get(name, 0) + sign * n
    return _normal(exponents)


def check(node: Node, source: str, terms: Mapping[str, Term]) -> Node:
    """The tree with types, units and bounds filled in, and conversions from int to float made explicit.

    Raises:
        ExpressionError: an unknown name, types or units that don't fit.
    """
    return _Checker(source, terms).check(node)


class _Checker:
    def __init__(self, source: str, terms: Mapping[str, Term]) -> None:
        self.source, self.terms = source, terms

    def error(self, node: Node, reason: str) -> ExpressionError:
        return ExpressionError(self.source, reason, node.column)

    def term(self, node: Node) -> Term:
        try:
            return self.terms[str(node.value)]
        except KeyError:
            raise self.error(node, f"unknown name {node.value!r}") from None

    def check(self, node: Node) -> Node:
        node = replace(node, args=tuple(self.check(arg) for arg in node.args))
        match node.op:
            case "literal":
                kind: Type = type(node.value).__name__  # type: ignore[assignment]
                bound = abs(node.value) if isinstance(node.value, int) else 0
                return replace(node, type=kind, unit=None, bound=bound)
            case "list":
                return replace(node, type="list", unit=None)
            case "name":
                return self.name(node)
            case "given":
                if not self.term(node).nullable:
                    raise self.error(node, f"{node.value} is never unset, so given({node.value}) says nothing")
                return replace(node, type="bool")
            case "and" | "or" | "not":
                for arg in node.args:
                    self.want(arg, ("bool",), "a condition")
                return replace(node, type="bool")
            case "==" | "!=" | "<" | "<=" | ">" | ">=":
                return self.comparison(node)
            case "in":
                return self.membership(node)
            case "if":
                return self.choice(node)
            case _:
                return self.arithmetic(node)

    def name(self, node: Node) -> Node:
        term = self.term(node)
        try:
            unit = parse_unit(term.unit)
        except ValueError as error:
            raise self.error(node, f"the vocabulary's unit of {term.name}: {error}") from None
        limits = [EXACT if limit is None else abs(limit) for limit in (term.min, term.max)]
        return replace(node, type=term.type, unit=unit, bound=int(min(max(limits), EXACT)))

    def want(self, node: Node, types: tuple[str, ...], what: str) -> None:
        if node.type not in types:
            raise self.error(node, f"{what} needs {' or '.join(types)}, not {node.type}")

    def same_unit(self, node: Node, args: tuple[Node, ...], what: str) -> Unit | None:
        units = {arg.unit for arg in args if arg.unit is not None}
        if len(units) > 1:
            shown = " and ".join(sorted(map(format_unit, units)))
            raise self.error(node, f"{what} needs equal units, not {shown}")
        return units.pop() if units else None

    def comparison(self, node: Node) -> Node:
        left, right = node.args
        numbers = left.type in _NUMERIC and right.type in _NUMERIC
        if node.op in ("==", "!="):
            if not numbers and (left.type != right.type or left.type == "list"):
                raise self.error(node, f"{left.type} and {right.type} can't be compared")
            self.spelling(left, right)
            self.spelling(right, left)
        elif not numbers:
            raise self.error(node, f"{node.op} compares numbers, not {left.type} and {right.type}")
        self.same_unit(node, node.args, "a comparison")
        return replace(node, args=_alike(node.args), type="bool")

    def spelling(self, name: Node, literal: Node) -> None:
        """Refuse a text that the vocabulary doesn't allow for the name: the condition could never hold."""
        if name.op == "name" and literal.op in ("literal", "list"):
            allowed = self.term(name).values
            given = literal.value if isinstance(literal.value, tuple) else (literal.value,)
            for value in given:
                if allowed and value not in allowed:
                    raise self.error(literal, f"{name.value} is one of {', '.join(allowed)}, never {value!r}")

    def membership(self, node: Node) -> Node:
        item, items = node.args
        self.want(items, ("list",), "the right side of `in`")
        if items.op == "list":
            kind = ("str",) if item.type == "str" else _NUMERIC
            self.want(item, kind, "`in`")
            values = items.value if isinstance(items.value, tuple) else ()
            if any(isinstance(value, str) != (item.type == "str") for value in values):
                raise self.error(items, f"the list must hold values like the {item.type} before `in`")
            self.spelling(item, items)
        else:
            self.want(item, ("str", "int"), "`in`")
        return replace(node, type="bool")

    def choice(self, node: Node) -> Node:
        condition, *branches = node.args
        self.want(condition, ("bool",), "the condition of if/else")
        then, other = _alike(tuple(branches))
        if then.type != other.type or then.type == "list":
            raise self.error(node, f"if/else can't give {then.type} or {other.type}")
        unit = self.same_unit(node, (then, other), "if/else")
        return replace(
            node, args=(condition, then, other), type=then.type, unit=unit, bound=_bound("if", (then, other))
        )

    def arithmetic(self, node: Node) -> Node:
        op = node.op
        what = f"{op}()" if op.isalnum() and op != "neg" else "-" if op == "neg" else op
        for arg in node.args:
            self.want(arg, ("int",) if op in ("gcd", "lcm") else _NUMERIC, what)
        args = tuple(map(_to_float, node.args)) if op in ("/", "log2") else _alike(node.args)
        kind: Type = "int" if op == "ceil" else args[0].type
        unit: Unit | None
        match op:
            case "*":
                unit = _multiply(args[0].unit, args[1].unit)
            case "/" | "//":
                unit = _multiply(args[0].unit, args[1].unit, -1)
            case "%":
                unit = args[0].unit
                if args[1].unit:
                    self.same_unit(node, args, "%")
            case "log2":
                unit = ()
            case _:
                unit = self.same_unit(node, args, what)
        return replace(node, args=args, type=kind, unit=unit, bound=_bound(op, args) if kind == "int" else 0)


def _to_float(node: Node) -> Node:
    if node.type != "int":
        return node
    return Node("float", (node,), column=node.column, type="float", unit=node.unit)


def _alike(args: tuple[Node, ...]) -> tuple[Node, ...]:
    """The operands, ints converted where one of them is a float."""
    return tuple(map(_to_float, args)) if any(arg.type == "float" for arg in args) else args


def _bound(op: str, args: tuple[Node, ...]) -> int:
    """Largest magnitude of an int result; above WIDE the vector form checks when it runs, and so keeps to WIDE."""
    bounds = [min(arg.bound, WIDE) for arg in args]
    if op in ("+", "-"):
        return sum(bounds)
    if op in ("*", "lcm"):
        return bounds[0] * bounds[1]
    if op == "ceil" and args[0].type == "float":
        return WIDE
    if op == "%":
        return bounds[1]
    if op == "//":
        return bounds[0]
    return max(bounds)
