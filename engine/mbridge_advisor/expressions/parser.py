"""From source text to a tree of :class:`Node`, through a whitelist.

Python's own parser reads the text; nothing that it returns is ever executed. Only the constructs listed in
docs/architecture.md, section 3, become nodes, everything else is an :class:`ExpressionError` with its column.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..errors import ExpressionError

MAX_LENGTH = 600  # characters
MAX_DEPTH = 24  # nested nodes
MAX_INT = 10**15

Type = Literal["int", "float", "bool", "str", "list"]
Unit = tuple[tuple[str, int], ...]  # base dimension and exponent, sorted; () = none

# name -> smallest and largest number of arguments
FUNCTIONS = {
    "given": (1, 1),
    "min": (2, 16),
    "max": (2, 16),
    "gcd": (2, 2),
    "lcm": (2, 2),
    "ceil": (1, 1),
    "log2": (1, 1),
    "abs": (1, 1),
}

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "in",  # wrapped in a "not" node
}


@dataclass(frozen=True)
class Node:
    """One operation.

    Attributes:
        op: ``literal``, ``name``, ``list``, ``given``, ``and``, ``or``, ``not``, a comparison or arithmetic operator,
            ``neg``, ``if`` (condition, then, else), a function name; the type checker adds ``float`` (int to float).
        args: operands.
        value: the literal, the name read, or the items of a literal list.
        column: 0-based position in the source, for errors.
        type, unit, bound: filled in by the type checker. ``unit`` is None where any will do (literals), ``bound`` the
            largest magnitude that an int can have.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: int | float | bool | str | tuple[int | float | str, ...] = 0
    column: int = 0
    type: Type = "int"
    unit: Unit | None = ()
    bound: int = 0

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for arg in self.args:
            yield from arg.walk()


def parse(source: str) -> Node:
    """Parse an expression.

    Raises:
        ExpressionError: it isn't a string, is too long, too deep or not Python syntax, or uses something outside the
            whitelist.
    """
    if not isinstance(source, str):
        raise ExpressionError(repr(source)[:120], "an expression is a text")
    if len(source) > MAX_LENGTH:
        raise ExpressionError(source, f"longer than {MAX_LENGTH} characters")
    if "\\" in source:
        raise ExpressionError(source, "a backslash isn't allowed", source.index("\\"))
    text = source.strip()
    indent = len(source) - len(source.lstrip())
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        column = None if error.offset is None or error.lineno != 1 else indent + max(error.offset - 1, 0)
        raise ExpressionError(source, f"not an expression: {error.msg}", column) from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(source, f"can't be parsed: {str(error) or type(error).__name__}") from None
    return _Reader(source, text.encode(), indent).read(tree, MAX_DEPTH)


class _Reader:
    def __init__(self, source: str, encoded: bytes, indent: int) -> None:
        self.source, self.encoded, self.indent = source, encoded, indent

    def column(self, at: ast.expr) -> int:
        """Column in characters; ast counts UTF-8 bytes."""
        return self.indent + len(self.encoded[: at.col_offset].decode(errors="replace"))

    def error(self, at: ast.expr, reason: str) -> ExpressionError:
        return ExpressionError(self.source, reason, self.column(at))

    def read(self, at: ast.expr, depth: int) -> Node:
        """Translate one ast node; ``depth`` levels are left."""
        if depth <= 0:
            raise self.error(at, f"nested deeper than {MAX_DEPTH}")

        def node(op: str, *args: ast.expr) -> Node:
            return Node(op, tuple(self.read(a, depth - 1) for a in args), column=self.column(at))

        match at:
            case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                return Node("literal", value=self.literal(at), column=self.column(at))
            case ast.Name(id=name):
                if name in FUNCTIONS:
                    raise self.error(at, f"{name} is a function; call it as {name}(..)")
                return Node("name", value=name, column=self.column(at))
            case ast.BoolOp(op=op, values=values):
                return node("and" if isinstance(op, ast.And) else "or", *values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return node("not", operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return node("neg", operand)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
                return node(_BINARY[type(operator)], left, right)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return node("if", test, body, orelse)
            case ast.Compare():
                return self.comparison(at, depth)
            case ast.Call():
                return self.call(at, depth)
            case ast.List():
                raise self.error(at, "a list may only stand after `in`")
            case _:
                raise self.error(at, f"{_describe(at)} isn't part of the expression language")

    def literal(self, at: ast.expr) -> int | float | bool | str:
        sign = 1
        if isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.USub):
            sign, at = -1, at.operand
        value = at.value if isinstance(at, ast.Constant) else None
        if value is None:
            raise self.error(at, "a literal is an int, a float, a bool or a text; unset is asked for with given(name)")
        if isinstance(value, bool | str) and sign == 1:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            if value > MAX_INT:
                raise self.error(at, f"integers go up to {MAX_INT}")
            return sign * value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise self.error(at, "the number is too large")
            return sign * value
        raise self.error(at, f"a {type(value).__name__} literal isn't part of the expression language")

    def comparison(self, at: ast.Compare, depth: int) -> Node:
        pairs = []
        column = self.column(at)
        for left, op, right in zip([at.left, *at.comparators], at.ops, at.comparators, strict=False):
            if type(op) not in _COMPARE:
                raise self.error(at, "`is` isn't part of the expression language; use == or given(name)")
            args = (self.read(left, depth - 1), self.items(right, depth - 1, after_in=_COMPARE[type(op)] == "in"))
            pair = Node(_COMPARE[type(op)], args, column=column)
            pairs.append(Node("not", (pair,), column=column) if isinstance(op, ast.NotIn) else pair)
        return pairs[0] if len(pairs) == 1 else Node("and", tuple(pairs), column=column)

    def items(self, at: ast.expr, depth: int, after_in: bool) -> Node:
        if not (after_in and isinstance(at, ast.List)):
            return self.read(at, depth)
        values = []
        for element in at.elts:
            value = self.literal(element)
            if isinstance(value, bool):
                raise self.error(element, "a list holds numbers or texts")
            values.append(value)
        return Node("list", value=tuple(values), column=self.column(at))

    def call(self, at: ast.Call, depth: int) -> Node:
        name = at.func.id if isinstance(at.func, ast.Name) else None
        if name not in FUNCTIONS:
            raise self.error(at, f"only these can be called: {', '.join(FUNCTIONS)}")
        least, most = FUNCTIONS[name]
        if at.keywords or not least <= len(at.args) <= most:
            count = str(least) if least == most else f"{least} to {most}"
            raise self.error(at, f"{name} takes {count} plain argument{'s' if most > 1 else ''}")
        if name == "given":
            if not isinstance(at.args[0], ast.Name) or at.args[0].id in FUNCTIONS:
                raise self.error(at, "given takes one name")
            return Node("given", value=at.args[0].id, column=self.column(at))
        return Node(name, tuple(self.read(a, depth - 1) for a in at.args), column=self.column(at))


def _describe(at: ast.expr) -> str:
    operator = at.op if isinstance(at, ast.BinOp | ast.UnaryOp) else at
    words = {"Pow": "`**`", "Attribute": "attribute access", "Subscript": "indexing", "Lambda": "a lambda"}
    kind = type(operator).__name__
    return words.get(kind, kind)
