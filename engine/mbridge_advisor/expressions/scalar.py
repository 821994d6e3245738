"""One value at a time: plain Python on a fact set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .compile import COMMON, Builder, Closure, Environment, binary, nary, unary
from .types import WIDE

Number = int | float


def divide(a: float, b: float) -> float:
    """``a / b``, 0 where b is 0."""
    return a / b if b else 0.0


def floor_divide(a: Number, b: Number) -> Number:
    """``a // b``, 0 where b is 0."""
    return a // b if b else type(a)(0)


def modulo(a: Number, b: Number) -> Number:
    """``a % b``, 0 where b is 0."""
    return a % b if b else type(a)(0)


def ceil(x: Number) -> int:
    """Smallest int that isn't below x; 0 where x is not finite or beyond 2**62."""
    return math.ceil(x) if -WIDE < x < WIDE else 0


def log2(x: float) -> float:
    """Binary logarithm, 0 for x <= 0. NumPy's, so that it equals the vector form to the last bit."""
    return float(np.log2(x)) if x > 0 else 0.0


def _name(name: str, zero: Any) -> Closure:
    if zero == 0.0 and isinstance(zero, float):
        return lambda e: 0.0 if e[name] is None else float(e[name])

    def read(e: Environment) -> Any:
        value = e[name]
        return zero if value is None else value

    return read


def _and(*operands: Closure) -> Closure:
    return lambda e: all(operand(e) for operand in operands)


def _or(*operands: Closure) -> Closure:
    return lambda e: any(operand(e) for operand in operands)


SCALAR: Mapping[str, Builder] = {
    **COMMON,
    "name": _name,
    "given": lambda name, zero: lambda e: e[name] is not None,
    "and": _and,
    "or": _or,
    "not": lambda a: lambda e: not a(e),
    "if": lambda c, a, b: lambda e: a(e) if c(e) else b(e),
    "in": lambda a, b: lambda e: a(e) in b(e),
    "float": unary(float),
    "/": binary(divide),
    "//": binary(floor_divide),
    "%": binary(modulo),
    "min": nary(min),
    "max": nary(max),
    "gcd": binary(math.gcd),
    "lcm": binary(math.lcm),
    "ceil": unary(ceil),
    "log2": unary(log2),
}
