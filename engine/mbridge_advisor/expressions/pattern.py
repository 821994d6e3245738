"""The part of a condition that a rule engine can compare natively."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .parser import Node

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
_MIRRORED: Mapping[str, Operator] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: Mapping[str, Operator] = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Comparison:
    """``name op value``, or ``name op other`` between two names of one type; an unset name reads as its zero.

    With ``given`` the test is of the companion: is the name set (``== True``) or not.
    """

    name: str
    op: Operator
    value: int | bool | str = 0
    other: str | None = None
    given: bool = False


def tests(conjuncts: Iterable[Node]) -> tuple[Comparison, ...]:
    """Tests that hold whenever all conjuncts hold; what can't be said as a test is left to whoever judges in full.

    Only ints, bools and texts are compared; floats are left out.
    """
    return tuple(test for node in conjuncts for test in _tests(node, positive=True))


def _tests(node: Node, positive: bool) -> Iterator[Comparison]:
    if node.op == "not":
        yield from _tests(node.args[0], not positive)
    elif node.op == ("and" if positive else "or"):
        for arg in node.args:
            yield from _tests(arg, positive)
    elif node.op == "name":
        yield Comparison(str(node.value), "==", positive)
    elif node.op == "given":
        yield Comparison(str(node.value), "==", positive, given=True)
    elif node.op in _MIRRORED:
        left, right = node.args
        op = _MIRRORED[_MIRRORED[node.op]]
        if left.op == "literal":
            left, right, op = right, left, _MIRRORED[op]
        op = op if positive else _NEGATED[op]
        if left.op == "name" and left.type in ("int", "bool", "str"):
            if right.op == "literal" and isinstance(right.value, int | str):
                yield Comparison(str(left.value), op, right.value)
            elif right.op == "name":
                yield Comparison(str(left.value), op, other=str(right.value))
