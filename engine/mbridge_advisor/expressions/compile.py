"""A checked tree becomes nested closures; what each operation does comes from a table."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from .parser import Node

Environment = Mapping[str, Any]
Closure = Callable[[Any], Any]
Builder = Callable[..., Closure]


def compile_tree(node: Node, table: Mapping[str, Builder]) -> Closure:
    """A function of an environment. ``name`` and ``given`` builders take the name and the zero of its type, ``literal``
    and ``list`` take the value, all others the closures of the operands.
    """
    build = table[node.op]
    if node.op in ("literal", "list"):
        return build(node.value)
    if node.op in ("name", "given"):
        return build(node.value, ZERO[node.type])
    return build(*(compile_tree(arg, table) for arg in node.args))


ZERO: Mapping[str, Any] = {"int": 0, "float": 0.0, "bool": False, "str": "", "list": ()}


def binary(function: Callable[[Any, Any], Any]) -> Builder:
    """The builder of a function of two values."""
    return lambda a, b: lambda e: function(a(e), b(e))


def unary(function: Callable[[Any], Any]) -> Builder:
    """The builder of a function of one value."""
    return lambda a: lambda e: function(a(e))


def nary(function: Callable[[Any, Any], Any]) -> Builder:
    """The builder that folds a function of two values over all operands."""

    def build(first: Closure, *rest: Closure) -> Closure:
        def run(e: Environment) -> Any:
            value = first(e)
            for operand in rest:
                value = function(value, operand(e))
            return value

        return run

    return build


# The same for one value and for arrays. Written as operators, so that NumPy can reuse a temporary left operand.
COMMON: Mapping[str, Builder] = {
    "literal": lambda value: lambda e: value,
    "list": lambda value: lambda e: value,
    "+": lambda a, b: lambda e: a(e) + b(e),
    "-": lambda a, b: lambda e: a(e) - b(e),
    "*": lambda a, b: lambda e: a(e) * b(e),
    "==": lambda a, b: lambda e: a(e) == b(e),
    "!=": lambda a, b: lambda e: a(e) != b(e),
    "<": lambda a, b: lambda e: a(e) < b(e),
    "<=": lambda a, b: lambda e: a(e) <= b(e),
    ">": lambda a, b: lambda e: a(e) > b(e),
    ">=": lambda a, b: lambda e: a(e) >= b(e),
    "neg": unary(operator.neg),
    "abs": unary(abs),
}
