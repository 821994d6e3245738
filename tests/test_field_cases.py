"""Public field reports: the advisor comes to the verdict that hindsight gave each of them.

tests/README.md says when a case passes. tests/data/field_cases.yaml holds the reports, field_case_rules.yaml the rules
that answer them, field_case_requests.yaml what a request needs beyond the report, field_cases_open.yaml the cases that
don't come out right yet.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from math import lcm
from typing import Any

import pytest
from field_cases import BASE, CASES, COVERED, FILLED, OPEN, README, RULES, Case, readme
from mbridge_advisor import advise, check, estimate, explain
from mbridge_advisor.advice.results import Estimate, Report, Statement

Answer = Report | Estimate


def judge(case: Case, *changes: Mapping[str, Any], bridge: str | None = None) -> Answer:
    request = case.request(*changes, bridge=bridge)
    return estimate(request) if case.by == "estimate" else check(request)


def refused(answer: Answer) -> bool:
    """Breaks a rule, or doesn't fit."""
    return bool(answer.exit_code)


def errors(answer: Answer) -> set[str]:
    return {f.rule for f in answer.findings if f.severity == "error"}


def said(answer: Answer) -> set[str]:
    return {f.rule for f in answer.findings}


def enforced(answer: Answer) -> list[Statement]:
    return [f for f in answer.findings if f.kind == "constraint" and f.severity == "error"]


def unjudged(case: Case) -> dict[str, tuple[str, ...]]:
    return {n.rule: n.missing for n in check(case.request()).not_judged if n.rule in case.ours}


def only_warns(rules: Iterable[str]) -> bool:
    return {BASE.rules[r].kind for r in rules} == {"pitfall"}


def listens(case: Case, answer: Answer) -> None:
    """Each rule that the report asks for was judged; one that only ever warns has spoken."""
    missing = unjudged(case)
    for rules in case.rules.values():
        assert not set(rules) <= missing.keys(), missing
        assert said(answer) & set(rules) or not only_warns(rules), f"none of {rules} has spoken"


def invalid(case: Case) -> None:
    answer = judge(case)
    assert refused(answer)
    assert said(answer) & case.ours
    if case.by == "check":
        assert errors(answer) & case.ours
    fix = case.data["expected"].get("fix_config")
    if fix:
        mended = judge(case, fix)
        assert not errors(mended) & case.ours
        assert errors(mended) == set(case.filled.get("leaves", ()))
        assert refused(mended) == bool(case.filled.get("leaves"))


def valid(case: Case) -> None:
    answer = judge(case)
    assert not refused(answer), errors(answer)
    listens(case, answer)


def valid_but_risky(case: Case) -> None:
    answer = judge(case)
    assert not enforced(answer)
    assert said(answer) & case.ours
    fix = case.data["expected"].get("fix_config")
    if fix:
        mended = judge(case, fix)
        assert not refused(mended)
        assert said(answer) & case.ours - said(mended), "the fix silences what was said"


def depends_on_version(case: Case) -> None:
    verdicts = {tag: bool(errors(judge(case, bridge=tag)) & case.ours) for tag in BASE.revisions}
    # Where the change is older than every release, the explanation tells of it.
    assert set(verdicts.values()) == {True, False} or case.filled.get("explains"), verdicts


def explained(case: Case) -> None:
    assert case.filled.get("explains")


def insufficient_information(case: Case) -> None:
    answer = judge(case)
    assert not refused(answer)
    missing = unjudged(case)
    assert missing.keys() & case.ours
    assert all(missing.values())


def by_advice(case: Case) -> None:
    """The report asks for a layout: there is one, and the one that hindsight names is legal."""
    advice = advise(case.request(), top=1)
    assert advice.grids
    assert case.verdict == "valid"
    spoken = {s.rule for s in advice.statements} | {s.rule for g in advice.grids for s in (*g.reasons, *g.cautions)}
    assert (spoken | {d.source for d in advice.derived}) & case.ours
    fix = case.data["expected"].get("fix_config")
    if fix:
        assert not refused(check(case.request(fix)))
        full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        assert not refused(estimate(case.request(fix, full)))


VERDICTS: Mapping[str, Callable[[Case], None]] = {
    "invalid": invalid,
    "valid": valid,
    "valid_but_risky": valid_but_risky,
    "depends_on_version": depends_on_version,
    "explain": explained,
    "insufficient_information": insufficient_information,
}


def right(case: Case) -> None:
    """The whole of a case: its verdict, its counterexamples, what must be explained."""
    (by_advice if case.by == "advise" else VERDICTS[case.verdict])(case)
    if "broken" in case.filled:
        answer = judge(case, case.filled["broken"])
        assert errors(answer), "the counterexample passes"
        assert errors(answer) & case.ours or only_warns(case.ours)
    if "mended" in case.filled:
        answer = judge(case, case.filled["mended"])
        assert not refused(answer), errors(answer)
    for rule, words in case.filled.get("explains", {}).items():
        assert rule in case.ours
        explanation = explain(rule)
        assert words in str(explanation.to_dict()), explanation.parts
        assert explanation.lines("zh")


@pytest.mark.parametrize("case", [c for c in COVERED if c.id not in OPEN], ids=lambda c: c.id)
def test_the_verdict_is_that_of_hindsight(case: Case) -> None:
    right(case)


@pytest.mark.parametrize("case", [c for c in COVERED if c.id in OPEN], ids=lambda c: c.id)
def test_an_open_case_is_still_open(case: Case) -> None:
    """When one comes out right, take it off the list."""
    with pytest.raises(AssertionError):
        right(case)


def test_gradients_in_bf16_take_two_bytes_less_a_parameter() -> None:
    """FC-109: the coefficients depend on the type of the gradients."""
    base = {"model": "llama3-8b", "cluster": {"gpus": 8, "gpu": "H100"}, "grid": {"tp": 1}}
    wide, narrow = (
        estimate({**base, "training": {"grad_reduce_in_fp32": flag}}).grid.memory.components["gradients"]
        for flag in (True, False)
    )
    assert narrow / wide == pytest.approx(0.5, rel=0.01)


def test_every_case_is_accounted_for() -> None:
    assert len(CASES) == 63
    named = {rule for case in CASES for rule in case.data["expected"]["rules"]}
    assert named == RULES.keys()
    ids = {case.id for case in COVERED}
    assert ids >= OPEN.keys()
    assert ids >= FILLED.keys()
    for rules in RULES.values():
        assert isinstance(rules, dict) or set(rules) <= BASE.rules.keys()


def test_the_lists_of_the_readme_are_fresh() -> None:
    assert README.read_text(encoding="utf-8") == readme(), "run python tests/field_cases.py"


# The arithmetic that a case shows.
NUMBER = r"\d[\d.e]*"
TERM = rf"(?:lcm\([^()]*\)|{NUMBER}|\((?:[^()]|\([^()]*\))*\))"
EXPRESSION = rf"{TERM}(?:\s*[-+*/%]\s*{TERM})+|lcm\([^()]*\)"
CLAIM = re.compile(rf"({EXPRESSION})(?: B)?\s*(==|!=|=|about)\s*({NUMBER})\s*(GiB|GB|TB)?")
UNITS = {"GiB": 2**30, "GB": 1e9, "TB": 1e12}
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


def value(node: ast.AST) -> Any:
    match node:
        case ast.Expression(body):
            return value(body)
        case ast.Constant(int() | float() as number):
            return number
        case ast.BinOp(left, op, right_):
            return OPERATORS[type(op)](value(left), value(right_))
        case ast.Call(ast.Name("lcm"), args):
            return lcm(*map(value, args))
    raise ValueError(ast.dump(node))


def claims(text: str) -> list[tuple[str, str, float, str]]:
    """``(left side, sign, right side, unit)`` of every equation of a text."""
    return [(left, sign, float(number.rstrip(".")), unit) for left, sign, number, unit in CLAIM.findall(text)]


CHECKS = {case.id: text for case in CASES if (text := case.data["expected"].get("check"))}


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_the_arithmetic_of_a_case_holds(name: str) -> None:
    for left, sign, number, unit in claims(CHECKS[name]):
        got = value(ast.parse(left, mode="eval"))
        # Bytes are printed in GB; billions of parameters times bytes are GB already.
        scale = UNITS[unit] if unit and got > 1e6 else 1.0
        same = got / scale == pytest.approx(number, rel=0.03 if sign == "about" else 0.01)
        assert same == (sign != "!="), f"{left} {sign} {number}: is {got}"


def test_the_arithmetic_is_found() -> None:
    """Cases whose figures stand in words only."""
    wordy = {name for name, text in CHECKS.items() if not claims(text)}
    assert wordy == {"FC-005", "FC-017", "FC-033", "FC-035"}
    assert sum(len(claims(text)) for text in CHECKS.values()) >= 45
