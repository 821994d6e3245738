"""All candidates at once: NumPy on columns, with the same results as the scalar form.

A column is an array (one value a candidate) or a single value that holds for all. Nothing is short-circuited over
arrays; a condition whose first operands are single values is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import scalar
from .compile import COMMON, ZERO, Builder, Closure, Environment, binary, nary, unary
from .parser import Node
from .types import WIDE

Membership = Mapping[int | str, NDArray[np.bool_]]  # a list-valued column: item -> which candidates' lists hold it
Column = NDArray[Any] | Membership | int | float | bool | str | tuple[Any, ...] | None

_DTYPE = {"int": np.int64, "float": np.float64, "bool": np.bool_}


def read_column(column: Column, kind: str) -> Any:
    """The column as the closures want it: arrays int64, float64 or bool, single values as Python's own.

    Unset (None) becomes the zero of its type.
    """
    if isinstance(column, np.ndarray | np.generic):
        if column.ndim == 0:
            column = column.item()
        elif kind in _DTYPE and column.dtype != _DTYPE[kind]:
            return column.astype(_DTYPE[kind])
        else:
            return column
    if column is None:
        return ZERO[kind]
    return float(column) if kind == "float" else column  # type: ignore[arg-type]


def read_given(columns: Mapping[str, Column], name: str) -> Any:
    """Where a nullable name is set: its companion ``name?`` where there is one, else where it isn't zero or empty.

    A single value is set unless it is None.
    """
    companion = columns.get(f"{name}?")
    if companion is not None:
        return read_column(companion, "bool")
    column = columns[name]
    if isinstance(column, np.ndarray) and column.ndim:
        return column != "" if column.dtype.kind in "UTO" else column != 0
    if isinstance(column, Mapping):
        return np.logical_or.reduce(list(column.values())) if column else False
    return column is not None


def checked(node: Node) -> Node:
    """The tree with ``*!`` for ``*`` and so on, where an int could leave the 64 bits of an array."""
    op = node.op + "!" if node.type == "int" and node.bound > WIDE and node.op in ("+", "-", "*", "lcm") else node.op
    return replace(node, op=op, args=tuple(map(checked, node.args)))


def _largest(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return max(int(value.max()), -int(value.min())) if value.size else 0
    return abs(int(value))


def _guarded(function: Callable[[Any, Any], Any], combine: Callable[[int, int], int]) -> Builder:
    """``function``, refusing arrays whose largest operands would take the result beyond 2**62."""

    def run(a: Any, b: Any) -> Any:
        if (isinstance(a, np.ndarray) or isinstance(b, np.ndarray)) and combine(_largest(a), _largest(b)) > WIDE:
            raise OverflowError("a whole number beyond 2**62")
        return function(a, b)

    return binary(run)


def _either(for_arrays: Callable[..., Any], for_values: Callable[..., Any]) -> Callable[..., Any]:
    """One function for arrays and another where no operand is one."""

    def run(*operands: Any) -> Any:
        if any(isinstance(operand, np.ndarray) for operand in operands):
            return for_arrays(*operands)
        return for_values(*operands)

    return run


def _total(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Division with 0 for a zero divisor. Whole-number division of arrays gives 0 there by itself."""

    def run(a: Any, b: Any) -> Any:
        if not isinstance(b, np.ndarray):
            return function(a, b) if b else np.zeros(a.shape, np.result_type(a, b))
        result = function(a, b)
        if result.dtype.kind == "f":
            np.copyto(result, 0.0, where=b == 0)
        return result

    return run


def _ceil(x: NDArray[Any]) -> NDArray[np.int64]:
    if x.dtype.kind == "i":
        return x
    return np.where(np.abs(x) < WIDE, np.ceil(x), 0.0).astype(np.int64)


def _log2(x: NDArray[Any]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = np.log2(x)
    result[~(x > 0)] = 0.0
    return result


def _contains(item: Any, items: Any) -> Any:
    if isinstance(items, Mapping):
        if not isinstance(item, np.ndarray):
            return items.get(item, False)
        found: Any = np.zeros(item.shape, np.bool_)
        for value, where in items.items():
            found |= (item == value) & where
        return found
    if not isinstance(item, np.ndarray):
        return item in items
    found = False
    for value in items:
        found = _disjunction(found, item == value)
    return found


def _conjunction(a: Any, b: Any) -> Any:
    if a is True or b is False:
        return b
    if b is True or a is False:
        return a
    return a & b


def _disjunction(a: Any, b: Any) -> Any:
    if a is False or b is True:
        return b
    if b is False or a is True:
        return a
    return a | b


def _fold(combine: Callable[[Any, Any], Any], absorbing: bool) -> Builder:
    def build(*operands: Closure) -> Closure:
        def run(e: Environment) -> Any:
            value: Any = not absorbing
            for operand in operands:
                if value is absorbing:
                    break
                value = combine(value, operand(e))
            return value

        return run

    return build


def _if(condition: Closure, then: Closure, other: Closure) -> Closure:
    def run(e: Environment) -> Any:
        where = condition(e)
        if isinstance(where, np.ndarray):
            return np.where(where, then(e), other(e))
        return then(e) if where else other(e)

    return run


VECTOR: Mapping[str, Builder] = {
    **COMMON,
    "name": lambda name, zero: lambda e: e[name],
    "given": lambda name, zero: lambda e: e[f"{name}?"],
    "and": _fold(_conjunction, absorbing=False),
    "or": _fold(_disjunction, absorbing=True),
    "not": unary(_either(np.logical_not, lambda a: not a)),
    "if": _if,
    "in": binary(_contains),
    "float": unary(_either(lambda a: a, float)),
    "/": binary(_either(_total(np.true_divide), scalar.divide)),
    "//": binary(_either(_total(np.floor_divide), scalar.floor_divide)),
    "%": binary(_either(_total(np.remainder), scalar.modulo)),
    "min": nary(_either(np.minimum, min)),
    "max": nary(_either(np.maximum, max)),
    "gcd": binary(_either(np.gcd, math.gcd)),
    "lcm": binary(_either(np.lcm, math.lcm)),
    "ceil": unary(_either(_ceil, scalar.ceil)),
    "log2": unary(_either(_log2, scalar.log2)),
    "+!": _guarded(lambda a, b: a + b, lambda a, b: a + b),
    "-!": _guarded(lambda a, b: a - b, lambda a, b: a + b),
    "*!": _guarded(lambda a, b: a * b, lambda a, b: a * b),
    "lcm!": _guarded(_either(np.lcm, math.lcm), lambda a, b: a * b),
}
