"""The expression language: what it accepts, what it refuses, and that all its forms agree."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st
from mbridge_advisor.errors import ExpressionError
from mbridge_advisor.expressions import Comparison, Conjunction, Expression, parse_unit
from mbridge_advisor.expressions.parser import parse
from mbridge_advisor.expressions.types import format_unit
from mbridge_advisor.knowledge.model import Term, Text


def term(name: str, kind: Any, unit: str = "1", **more: Any) -> Term:
    text = Text(name, name)
    return Term(name=name, field=name, section="training", type=kind, title=text, meaning=text, unit=unit, **more)


TERMS: Mapping[str, Term] = {
    t.name: t
    for t in [
        term("tp", "int", min=1, max=65536),
        term("pp", "int", min=1, max=65536),
        term("vpp", "int", nullable=True),
        term("offset", "int"),
        term("share", "float"),
        term("ratio", "float", nullable=True),
        term("is_moe", "bool"),
        term("laid_out", "bool", nullable=True),
        term("precision", "str", values=("bf16", "fp8_cs")),
        term("method", "str", nullable=True),
        term("scope", "list", nullable=True),
        term("freq", "list"),
        term("memory", "int", "byte"),
        term("used", "int", "byte"),
        term("bandwidth", "float", "byte/second"),
        term("seq", "int", "token"),
        term("weights", "int", "parameter"),
        term("width", "int", "byte/parameter"),
    ]
}


def value(source: str, **facts: Any) -> Any:
    return Expression(source, TERMS).scalar(facts)


# ---- what it computes


@pytest.mark.parametrize(
    ("source", "facts", "result"),
    [
        ("pp * lcm(tp, 4)", {"pp": 1, "tp": 6}, 12),
        ("tp / 0", {"tp": 3}, 0.0),
        ("tp // offset", {"tp": 3, "offset": 0}, 0),
        ("tp % offset", {"tp": 3, "offset": 0}, 0),
        ("-7 // 2", {}, -4),
        ("offset % 4", {"offset": -7}, 1),
        ("1 < tp <= 4", {"tp": 4}, True),
        ("1 < tp <= 4", {"tp": 1}, False),
        ("vpp + 1", {"vpp": None}, 1),
        ("vpp if given(vpp) else 1", {"vpp": None}, 1),
        ("vpp if given(vpp) else 1", {"vpp": 0}, 0),
        ("method == 'full'", {"method": None}, False),
        ("'moe' in scope", {"scope": None}, False),
        ("'moe' in scope", {"scope": ("attn", "moe")}, True),
        ("tp not in [1, 2, 4]", {"tp": 3}, True),
        ("ceil(share)", {"share": 2.1}, 3),
        ("ceil(share)", {"share": math.inf}, 0),
        ("log2(tp)", {"tp": 1024}, 10.0),
        ("log2(offset)", {"offset": -1}, 0.0),
        ("max(tp, pp, 3)", {"tp": 1, "pp": 2}, 3),
        ("gcd(tp, pp) + abs(offset)", {"tp": 12, "pp": 18, "offset": -1}, 7),
        ("min(tp, share)", {"tp": 2, "share": 2.5}, 2.0),
        ("precision in ['bf16', 'fp8_cs'] and not is_moe", {"precision": "bf16", "is_moe": False}, True),
    ],
)
def test_values(source: str, facts: dict[str, Any], result: Any) -> None:
    got = value(source, **facts)
    assert got == result
    assert type(got) is type(result)


def test_log2_is_exact_for_powers_of_two() -> None:
    for power in range(53):
        assert value("log2(offset)", offset=2**power) == power
    column = np.array([2**p for p in range(53)] * 3)
    assert (Expression("log2(offset)", TERMS).vector({"offset": column}) == list(range(53)) * 3).all()


def test_names_and_guarded_names() -> None:
    expression = Expression("given(vpp) and (given(method) or vpp > tp)", TERMS)
    assert expression.names == {"vpp", "method", "tp"}
    assert expression.guarded == {"method"}
    assert expression == Expression(expression.source, TERMS)
    assert len({expression, Expression(expression.source, TERMS), Expression("tp > 1", TERMS)}) == 2
    with pytest.raises(AttributeError):
        expression.source = "tp"  # type: ignore[misc]


def test_missing_name_and_huge_number_are_clear_errors() -> None:
    with pytest.raises(ExpressionError, match="needs pp"):
        value("tp + pp", tp=1)
    with pytest.raises(ExpressionError, match="needs pp"):
        Expression("tp + pp", TERMS).vector({"tp": 1})
    with pytest.raises(ExpressionError, match="too large"):
        value("offset" + " * offset" * 21 + " / 3", offset=10**15)


# ---- what it refuses

HOSTILE = [
    "",
    " ",
    "tp tp",
    "tp.real",
    "tp.__class__.__bases__",
    "().__class__",
    "tp[0]",
    "__import__('os')",
    "exec('1')",
    "open('x').read()",
    "(lambda: 1)()",
    "[x for x in scope]",
    "{1: 2}",
    "{1}",
    "(1, 2)",
    "f'{tp}'",
    "tp ** tp",
    "9 ** 9 ** 9",
    "tp << 60",
    "tp & 1",
    "~tp",
    "+tp",
    "tp := 1",
    "(tp := 1)",
    "yield",
    "await tp",
    "*tp",
    "tp is 1",
    "None",
    "tp == None",
    "...",
    "1j",
    "b'x' == b'x'",
    "'\\x41' == 'A'",
    "1e999",
    "1000000000000001",
    "9" * 500,
    "9" * 5000,
    "[1]",
    "tp in (1, 2)",
    "tp in [tp]",
    "tp in [True]",
    "tp in [[1]]",
    "min",
    "min + 1",
    "min(tp)",
    "min(*[1, 2])",
    "max(tp, pp, key=abs)",
    "given(tp.x)",
    "given(1)",
    "given('vpp')",
    "given(given)",
    "given(vpp, tp)",
    "abs(1, 2)",
    "-True",
    "-'a'",
    "tp\npp",
    "tp;pp",
    "import os",
    "tp \0",
    "\udc80",
    "(" * 300 + "tp" + ")" * 300,
    "-" * 500 + "tp",
    "not " * 140 + "is_moe",
    "tp" + " + tp" * 100,
    "tp + " * 1000,
    "1 if 1 else 1 if 1 else " * 20 + "1",
    "[" * 400,
]


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_input_is_refused(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        with pytest.raises(ExpressionError) as caught:
            Expression(source, TERMS)
    assert len(str(caught.value)) < 400


@given_(st.text(max_size=40) | st.text("tp()[]{}+-*/%<>=!.,:'\" 019andorifnotelse", max_size=60))
@settings(max_examples=300)
def test_any_text_parses_or_is_an_expression_error(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        with contextlib.suppress(ExpressionError):
            parse(source)


@pytest.mark.parametrize("source", [None, 5, True, ["tp"], b"tp"])
def test_not_a_text(source: Any) -> None:
    with pytest.raises(ExpressionError, match="a text"):
        Expression(source, TERMS)


def test_errors_say_where() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression("tp > 1 and pp ** 2 > 3", TERMS)
    assert caught.value.column == 11
    with pytest.raises(ExpressionError) as caught:
        Expression("  method == '中文' and nope", TERMS)
    assert caught.value.column == "  method == '中文' and nope".index("nope")


# ---- types and units


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nope + 1", "unknown name 'nope'"),
        ("given(nope)", "unknown name"),
        ("given(tp)", "never unset"),
        ("is_moe + 1", "needs int or float, not bool"),
        ("tp and pp", "needs bool, not int"),
        ("not tp", "needs bool"),
        ("tp == 'a'", "can't be compared"),
        ("method < 'a'", "compares numbers"),
        ("is_moe < True", "compares numbers"),
        ("scope == freq", "can't be compared"),
        ("tp in scope and 'a' in precision", "right side"),
        ("tp in ['a']", "must hold"),
        ("method in [1]", "must hold"),
        ("is_moe in scope", "needs str or int"),
        ("1 if tp else 2", "condition"),
        ("1 if is_moe else 'a'", "if/else can't give"),
        ("scope if is_moe else freq", "if/else can't give"),
        ("gcd(share, 2)", "needs int"),
        ("precision == 'fp9'", "never 'fp9'"),
        ("precision in ['bf16', 'fp9']", "never 'fp9'"),
        ("memory + seq", "needs equal units, not byte and token"),
        ("memory > seq", "equal units"),
        ("max(memory, seq, 1)", "equal units"),
        ("memory if is_moe else seq", "equal units"),
        ("memory % seq", "equal units"),
        ("memory / bandwidth > memory", "not byte and second"),
        ("16 * weights > memory", "not byte and parameter"),
        ("memory / tp + tp", "not 1 and byte"),
    ],
)
def test_types_and_units_that_do_not_fit(source: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(source, TERMS)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("source", "kind", "unit"),
    [
        ("memory / bandwidth", "float", "second"),
        ("1 / bandwidth", "float", "second/byte"),
        ("memory * memory / used", "float", "byte"),
        ("memory // tp", "int", "byte"),
        ("memory + 5", "int", "byte"),
        ("used / memory", "float", "1"),
        ("width * weights + memory", "int", "byte"),
        ("memory % tp", "int", "byte"),
        ("memory % used", "int", "byte"),
        ("min(memory, used, 7)", "int", "byte"),
        ("memory if is_moe else 0", "int", "byte"),
        ("log2(memory)", "float", "1"),
        ("ceil(memory / tp)", "int", "byte"),
        ("memory / seq", "float", "byte/token"),
        ("memory > 0", "bool", "1"),
        ("tp * share", "float", "1"),
        ("scope", "list", "1"),
        ("2 if is_moe else 1", "int", "1"),
    ],
)
def test_types_and_units_that_fit(source: str, kind: str, unit: str) -> None:
    expression = Expression(source, TERMS)
    assert (expression.type, expression.unit) == (kind, unit)


def test_require() -> None:
    Expression("tp * 2", TERMS).require(TERMS["share"])  # int is fine where float is asked
    Expression("18", TERMS).require(TERMS["width"])  # a literal takes any unit
    with pytest.raises(ExpressionError, match="gives float, but tp is int"):
        Expression("tp / 2", TERMS).require(TERMS["tp"])
    with pytest.raises(ExpressionError, match="gives unit byte"):
        Expression("memory", TERMS).require(TERMS["seq"])
    with pytest.raises(ExpressionError, match="true or false"):
        Conjunction(["tp"], TERMS)


def test_units_parse_and_print() -> None:
    for text in ["1", "byte", "byte/second", "flop/second", "byte*token/second", "byte^2", "1/second", "byte/second^2"]:
        assert parse_unit(format_unit(parse_unit(text))) == parse_unit(text)
    assert format_unit(parse_unit("token*byte/byte")) == "token"
    for bad in ["bytes", "", "byte/", "byte^x", "byte second"]:
        with pytest.raises(ValueError, match=r"unit|power"):
            parse_unit(bad)


# ---- three-valued conjunctions


def test_judge() -> None:
    when = Conjunction(["is_moe", "tp < 2", "given(vpp)"], TERMS)
    assert when.judge({"is_moe": True, "tp": 1, "vpp": 2}) is True
    assert when.judge({"is_moe": True, "tp": 1, "vpp": None}) is False
    assert when.judge({"tp": 4}) is False
    assert when.judge({"is_moe": True}) == {"tp", "vpp"}
    assert Conjunction([], TERMS).judge({}) is True


def test_mask() -> None:
    when = Conjunction(["tp > 2", "is_moe", "given(vpp)"], TERMS)
    tp, vpp = np.array([1, 4, 8, 8]), np.array([2, 2, 0, 4])
    assert list(when.mask({"tp": tp, "is_moe": True, "vpp": vpp})) == [False, True, False, True]
    assert when.mask({"tp": tp, "is_moe": False, "vpp": vpp}) is False
    assert when.mask({"tp": 8, "is_moe": True, "vpp": 1}) is True
    assert Conjunction([], TERMS).mask({}) is True
    grid = Conjunction(["tp > vpp"], TERMS).mask({"tp": tp[:, None], "vpp": vpp[None, :]})
    assert np.array_equal(grid, tp[:, None] > vpp[None, :])


def test_given_in_vectors() -> None:
    asks = Expression("given(vpp)", TERMS)
    assert list(asks.vector({"vpp": np.array([0, 2])})) == [False, True]
    assert list(asks.vector({"vpp": np.array([0, 0]), "vpp?": np.array([False, True])})) == [False, True]
    assert asks.vector({"vpp": None}) is False
    assert asks.vector({"vpp": 0}) is True
    assert list(Expression("given(method)", TERMS).vector({"method": np.array(["", "full"])})) == [False, True]
    scope = {"moe": np.array([True, False]), "attn": np.array([False, False])}
    assert list(Expression("given(scope)", TERMS).vector({"scope": scope})) == [True, False]
    assert list(Expression("'moe' in scope", TERMS).vector({"scope": scope})) == [True, False]
    assert list(Expression("method in scope", TERMS).vector({"scope": scope, "method": np.array(["attn", "moe"])})) == [
        False,
        False,
    ]


def test_vector_never_wraps_around() -> None:
    big = np.array([2**40, 2**41])
    with pytest.raises(ExpressionError, match="too large"):
        Expression("offset * offset", TERMS).vector({"offset": big})
    with pytest.raises(ExpressionError, match="too large"):
        Expression("lcm(offset, offset + 1) + 1", TERMS).vector({"offset": big})
    assert list(Expression("offset * offset", TERMS).vector({"offset": big // 2**20})) == [2**40, 2**42]
    small = np.array([65536], np.int32)  # narrow columns are widened
    assert list(Expression("tp * tp * tp", TERMS).vector({"tp": small})) == [2**48]


def test_vector_leaves_its_columns_alone() -> None:
    tp = np.arange(1, 100_001)
    vpp = np.zeros(100_000, np.int64)
    Expression("(tp * pp + tp) % vpp / tp", TERMS).vector({"tp": tp, "pp": 3, "vpp": vpp})
    assert np.array_equal(tp, np.arange(1, 100_001))
    assert not vpp.any()


# ---- patterns

IS_GIVEN = Comparison("vpp", "==", True, given=True)


@pytest.mark.parametrize(
    ("conjuncts", "expected"),
    [
        (["is_moe", "tp < 2"], [Comparison("is_moe", "==", True), Comparison("tp", "<", 2)]),
        (["not is_moe", "4 >= tp"], [Comparison("is_moe", "==", False), Comparison("tp", "<=", 4)]),
        (["given(vpp)", "not given(method)"], [IS_GIVEN, Comparison("method", "==", False, given=True)]),
        (["not (tp < 2 or precision == 'bf16')"], [Comparison("tp", ">=", 2), Comparison("precision", "!=", "bf16")]),
        (["1 < tp <= pp"], [Comparison("tp", ">", 1), Comparison("tp", "<=", other="pp")]),
        (["tp < 2 or pp < 2", "tp % 2 == 0", "share > 1", "tp in [1, 2]", "tp > share", "not (1 < tp < 3)"], []),
    ],
)  # fmt: skip
def test_pattern(conjuncts: list[str], expected: list[Comparison]) -> None:
    assert list(Conjunction(conjuncts, TERMS).pattern()) == expected


# ---- all forms agree (property)

INTS = st.integers(-20, 20) | st.sampled_from([2**20, 2**31, 10**6 + 3])
FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3)) | st.sampled_from([0.0, 0.5, 1e300])
TEXTS = st.sampled_from(["", "bf16", "fp8_cs", "full", "名"])
VALUES: Mapping[str, Any] = {
    "tp": st.integers(1, 64),
    "pp": st.integers(1, 64),
    "vpp": st.none() | INTS,
    "offset": INTS,
    "share": FLOATS,
    "ratio": st.none() | FLOATS,
    "is_moe": st.booleans(),
    "laid_out": st.none() | st.booleans(),
    "precision": st.sampled_from(["bf16", "fp8_cs"]),
    "method": st.none() | TEXTS.filter(bool),
    "scope": st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    "freq": st.lists(st.integers(0, 3), max_size=4).map(tuple),
}
FACTS = st.fixed_dictionaries(dict(VALUES))


def calls(*args: st.SearchStrategy[str], form: str) -> st.SearchStrategy[str]:
    return st.tuples(*args).map(lambda parts: form.format(*parts))


def expressions(kind: str, depth: int = 3) -> st.SearchStrategy[str]:
    """Random well-typed sources."""
    if kind == "int":
        leaves = st.sampled_from(["tp", "pp", "vpp", "offset"]) | st.integers(-9, 99).map(str)
    elif kind == "float":
        leaves = st.sampled_from(["share", "ratio", "0.5", "-2.5", "0.0"])
    elif kind == "str":
        return st.sampled_from(["method", "'full'", "'bf16'", "'名'"])
    else:
        leaves = st.sampled_from(
            ["is_moe", "laid_out", "given(vpp)", "given(method)", "given(scope)", "given(laid_out)"]
        )
    if depth == 0:
        return leaves
    number = st.deferred(lambda: expressions("int", depth - 1) | expressions("float", depth - 1))
    whole = st.deferred(lambda: expressions("int", depth - 1))
    same = st.deferred(lambda: expressions(kind, depth - 1))
    truth = st.deferred(lambda: expressions("bool", depth - 1))
    text = expressions("str")
    if kind == "int":
        forms = [
            calls(whole, st.sampled_from(["+", "-", "*", "//", "%"]), whole, form="({} {} {})"),
            calls(st.sampled_from(["gcd", "lcm", "min", "max"]), whole, whole, form="{}({}, {})"),
            calls(number, form="ceil({})"),
            calls(whole, form="(-{})"),
            calls(whole, form="abs({})"),
            calls(whole, truth, whole, form="({} if {} else {})"),
        ]
    elif kind == "float":
        forms = [
            calls(same, st.sampled_from(["+", "-", "*", "//", "%"]), number, form="({} {} {})"),
            calls(number, number, form="({} / {})"),
            calls(st.sampled_from(["min", "max"]), number, same, whole, form="{}({}, {}, {})"),
            calls(number, form="log2({})"),
            calls(number, truth, same, form="({} if {} else {})"),
        ]
    else:
        forms = [
            calls(number, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), number, form="({} {} {})"),
            calls(number, number, number, form="({} <= {} < {})"),
            calls(text, st.sampled_from(["==", "!="]), text, form="({} {} {})"),
            calls(st.sampled_from(["precision", "method"]), form="({} in ['bf16', 'fp8_cs'])"),
            calls(whole, st.sampled_from(["in", "not in"]), form="({} {} [1, 2, 4])"),
            calls(text, form="({} in scope)"),
            calls(whole, form="({} not in freq)"),
            calls(same, st.sampled_from(["and", "or"]), same, form="({} {} {})"),
            calls(same, form="(not {})"),
        ]
    return leaves | st.one_of(forms)


class Reference:
    """The meaning of the language, said once more: Python's own eval on trusted text, with total arithmetic."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.scope = {name: self.wrap(name, value) for name, value in facts.items()}
        self.scope |= {
            "min": min,
            "max": max,
            "gcd": lambda a, b: Total(math.gcd(int(a), int(b))),
            "lcm": lambda a, b: Total(math.lcm(int(a), int(b))),
            "ceil": lambda x: Total(math.ceil(x) if math.isfinite(x) and abs(x) < 2**62 else 0),
            "log2": lambda x: TotalFloat(np.log2(float(x))) if x > 0 else TotalFloat(0.0),
            "given": lambda name: name is not None,
        }
        self.facts = facts

    def wrap(self, name: str, value: Any) -> Any:
        zero = {"int": 0, "float": 0.0, "bool": False, "str": "", "list": ()}[TERMS[name].type]
        value = zero if value is None else value
        if isinstance(value, bool | str | tuple):
            return value
        return TotalFloat(value) if TERMS[name].type == "float" else Total(value)

    def evaluate(self, source: str) -> Any:
        source = re.sub(r"given\((\w+)\)", lambda m: repr(self.facts[m[1]] is not None), source)
        source = re.sub(r"(?<![\w.'])(\d+\.\d+)", r"TotalFloat(\1)", source)
        source = re.sub(r"(?<![\w.'\[(, ])(\d+)(?![\w.'])|(?<=[( ])(\d+)(?![\w.'])", r"Total(\1\2)", source)
        return eval(source, {"Total": Total, "TotalFloat": TotalFloat, **self.scope})


def _lift(value: Any) -> Any:
    return TotalFloat(value) if isinstance(value, float) else Total(value)


class _Total:
    def __add__(self, other: Any) -> Any:
        return _lift(self.plain + _plain(other))

    def __sub__(self, other: Any) -> Any:
        return _lift(self.plain - _plain(other))

    def __mul__(self, other: Any) -> Any:
        return _lift(self.plain * _plain(other))

    def __truediv__(self, other: Any) -> Any:
        return _lift(float(self.plain) / float(_plain(other)) if other else 0.0)

    def __floordiv__(self, other: Any) -> Any:
        return _lift(self.plain // _plain(other) if other else 0)

    def __mod__(self, other: Any) -> Any:
        return _lift(self.plain % _plain(other) if other else 0)

    def __neg__(self) -> Any:
        return _lift(-self.plain)

    def __abs__(self) -> Any:
        return _lift(abs(self.plain))

    @property
    def plain(self) -> Any:
        return _plain(self)


class Total(_Total, int):
    pass


class TotalFloat(_Total, float):
    pass


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)


def same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


KINDS = st.sampled_from(["int", "float", "bool", "bool"])


@given_(KINDS.flatmap(expressions), st.lists(FACTS, min_size=1, max_size=4), st.data())
@settings(max_examples=400, deadline=None)
def test_scalar_equals_vector_equals_reference(source: str, rows: list[dict[str, Any]], data: st.DataObject) -> None:
    try:
        expression = Expression(source, TERMS)
    except ExpressionError as error:
        if "longer than" in str(error) or "nested deeper" in str(error):
            return
        raise
    constant = data.draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=6))
    for row in rows:
        row.update({name: rows[0][name] for name in constant})
    try:
        scalars = [expression.scalar(row) for row in rows]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # total arithmetic warns of nothing
            vector = expression.vector(columns(rows, constant))
    except ExpressionError as error:
        if "too large" in str(error):
            return
        raise
    vector = np.broadcast_to(vector, len(rows))
    for row, scalar, element in zip(rows, scalars, vector, strict=True):
        assert same(scalar, element.item()), (source, row)
        if expression.type != "str":
            assert same(scalar, Reference(row).evaluate(source)), (source, row)


def columns(rows: list[dict[str, Any]], constant: set[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in VALUES:
        values = [row[name] for row in rows]
        if name in constant:
            out[name] = values[0]
            continue
        if TERMS[name].nullable:
            out[f"{name}?"] = np.array([value is not None for value in values])
        if TERMS[name].type == "list":
            items = {item for value in values for item in value or ()}
            out[name] = {item: np.array([item in (value or ()) for value in values]) for item in items}
        else:
            zero = {"int": 0, "float": 0.0, "bool": False, "str": ""}[TERMS[name].type]
            out[name] = np.array([zero if value is None else value for value in values])
    return out


@given_(st.lists(expressions("bool", 2), max_size=4), st.lists(FACTS, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_judge_equals_mask_and_implies_pattern(sources: list[str], rows: list[dict[str, Any]]) -> None:
    when = Conjunction(sources, TERMS)
    try:
        judged = [when.judge(row) for row in rows]
        mask = np.broadcast_to(when.mask(columns(rows, set())), len(rows))
    except ExpressionError as error:
        if "too large" in str(error):
            return
        raise
    assert judged == list(mask)
    compare = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
    for row, fires in zip(rows, judged, strict=True):
        for test in when.pattern() if fires else ():
            left, right = (Expression(n, TERMS).scalar(row) if n else test.value for n in (test.name, test.other))
            if test.given:
                left = row[test.name] is not None
            assert getattr(left, compare[test.op])(right) is True, (test, row)
