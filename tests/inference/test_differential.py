"""Random knowledge and random facts: durable_rules, the reference evaluator and a naive fixpoint say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mbridge_advisor.expressions import Expression
from mbridge_advisor.inference import Inference, Program, infer
from mbridge_advisor.knowledge.model import Quantity, Rule, Then
from samples import V06, derivation, quantity, rule, term, terms, text

pytest.importorskip("durable_rules_engine")

GIVEN = [
    *(term(f"i{n}", section="grid", nullable=n % 2 == 1) for n in range(4)),
    *(term(f"b{n}", "bool", section="grid", nullable=n == 1) for n in range(2)),
    *(term(f"s{n}", "str", section="grid", nullable=n == 1) for n in range(2)),
    term("f0", "float", section="grid"),
    term("l0", "list", section="grid", nullable=True),
]
DERIVED = [
    *(term(f"di{n}", section="derived") for n in range(6)),
    *(term(f"db{n}", "bool", section="derived") for n in range(3)),
    *(term(f"ds{n}", "str", section="derived") for n in range(2)),
]
TERMS = terms(*GIVEN, *DERIVED)
TEXTS = ["", "a", "ab", "名", 'q"', "back", "é", "x" * 300, "x" * 301, "x" * 1200, "x" * 1201]
INTS = [-3, -1, 0, 1, 2, 3, 8, 255, 10**15, -(10**15)]


@st.composite
def conditions(draw: st.DrawFn, names: list[str]) -> str:
    """One condition over the names, mostly of a kind that becomes a pattern."""
    name = draw(st.sampled_from(names))
    kind = TERMS[name].type
    others = [n for n in names if TERMS[n].type == kind and n != name]
    compare = draw(st.sampled_from(["==", "!="] if kind in ("str", "bool") else ["==", "!=", "<", "<=", ">", ">="]))
    if TERMS[name].nullable and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["given({})", "not given({})"])).format(name)
    if kind != "list" and others and draw(st.integers(0, 2)) == 0:
        return f"{name} {compare} {draw(st.sampled_from(others))}"
    if kind == "int":
        literal = draw(st.sampled_from(INTS))
        forms = ["{n} {c} {v}", "{v} {c} {n}", "{n} % 2 == 0", "{n} in [1, 2, {v}]", "not ({n} {c} {v} or {n} > 7)"]
        return draw(st.sampled_from(forms)).format(n=name, c=compare, v=literal)
    if kind == "bool":
        return draw(st.sampled_from(["{}", "not {}", "{} == True", "{} != True", "{} or not {}"])).format(name, name)
    if kind == "str":
        literal = repr(draw(st.sampled_from([t for t in TEXTS if len(t) < 400])))
        return f"{name} {compare} {literal}"
    if kind == "float":
        return f"{name} {compare} {draw(st.sampled_from(['1', '0.5', '-2.5']))}"
    return draw(st.sampled_from(["'a' in l0", "'ab' not in l0"]))


@st.composite
def formulas(draw: st.DrawFn, kind: str, names: list[str]) -> str:
    """An expression of a type over the names."""
    if kind == "bool":
        return draw(conditions(names))
    same = [n for n in names if TERMS[n].type == kind]
    if kind == "str":
        a, b = (draw(st.sampled_from([*same, "'a'", "'名'"])) for _ in range(2))
        return f"{a} if {draw(conditions(names))} else {b}"
    a, b = (draw(st.sampled_from([*same, "3", "-1"])) for _ in range(2))
    form = draw(st.sampled_from(["{} + {}", "{} - {}", "min({}, {})", "{} // {}", "({} % 7) * ({} % 5)", "{}"]))
    return form.format(a, b) if form.count("{}") == 2 else form.format(a)


@st.composite
def knowledge(draw: st.DrawFn) -> tuple[list[Quantity], list[Rule]]:
    """Quantities and rules; a derived name reads given names and derived names before it, so that chains are deep."""
    quantities: list[Quantity] = []
    rules: list[Rule] = []
    names = [t.name for t in GIVEN]
    order = draw(st.permutations([t.name for t in DERIVED]))
    for name in order:
        readable = draw(st.sampled_from([names, names[-6:]]))  # the last ones: deeper chains
        how = draw(st.sampled_from(["quantity", "quantity", "rules", "rules", "nothing"]))
        if how == "quantity":
            quantities.append(quantity(name, draw(formulas(TERMS[name].type, readable))))
        for _ in range(draw(st.integers(1, 3)) if how == "rules" else 0):
            when = draw(st.lists(conditions(readable), max_size=3))
            number = draw(st.integers(1, 800).filter(lambda n: all(r.id != f"MB-T-{n:03}" for r in rules)))
            rules.append(derivation(number, *when, **{name: draw(formulas(TERMS[name].type, readable))}))
        names.append(name)
    for number in range(801, 801 + draw(st.integers(0, 12))):
        when = draw(st.lists(conditions(names), min_size=1, max_size=4))
        shown = draw(st.sampled_from(names))
        rules.append(rule(number, *when, then=Then(violation=text(f"see {{{shown}}}"))))
    return quantities, rules


VALUES = {
    "int": st.sampled_from(INTS),
    "bool": st.booleans(),
    "str": st.sampled_from(TEXTS) | st.text(max_size=5),
    "float": st.sampled_from([0.0, 0.5, 1.0, -2.5, 1e300, 1e-20]),
    "list": st.lists(st.sampled_from(["a", "ab"]), max_size=2).map(tuple),
}


@st.composite
def facts(draw: st.DrawFn) -> dict[str, Any]:
    """Some names unknown, some unset, now and then a derived one given."""
    out: dict[str, Any] = {}
    for one in (*GIVEN, *DERIVED):
        state = draw(st.integers(0, 9))
        if state == 0 or (one.section == "derived" and state < 9):
            continue
        unset = one.nullable and state < 4
        out[one.name] = None if unset else draw(VALUES[one.type])
    return out


def naive(quantities: list[Quantity], rules: list[Rule], given: Mapping[str, Any]) -> dict[str, Any]:
    """Facts, firings and rules not judged, by asking for each name what derives it (recursion instead of rounds)."""
    cache: dict[str, Any] = {}
    formulas_ = {q.name: q.formula for q in quantities}

    def known(name: str) -> bool:
        value(name)
        return name in cache

    def value(name: str) -> Any:
        if name in given:
            cache[name] = given[name]
        elif name not in cache:
            if name in formulas_ and ready(formulas_[name]):
                cache[name] = compute(formulas_[name])
            for r in sorted(rules, key=lambda r: r.id):
                source = r.then.derive.get(name)
                if name not in cache and source and judge(r) is True and ready(source):
                    cache[name] = compute(source)
        return cache.get(name)

    def ready(source: str) -> bool:
        return all(known(n) for n in Expression(source, TERMS).names)

    def compute(source: str) -> Any:
        expression = Expression(source, TERMS)
        return expression.scalar({n: value(n) for n in expression.names})

    def judge(r: Rule) -> bool | None:
        verdicts = [compute(source) if ready(source) else None for source in r.when]
        return False if False in verdicts else None if None in verdicts else True

    all_facts = {n: value(n) for n in TERMS if known(n)}
    verdicts = {r.id: judge(r) for r in rules}
    lost = {
        r.id for r in rules if verdicts[r.id] and any(n not in given and not ready(s) for n, s in r.then.derive.items())
    }
    return {
        "facts": all_facts,
        "fired": sorted(r for r, v in verdicts.items() if v),
        "not_judged": sorted(lost | {r for r, v in verdicts.items() if v is None}),
    }


def summary(inference: Inference) -> dict[str, Any]:
    return {
        "facts": dict(inference.facts),
        "fired": [f.rule for f in inference.firings],
        "not_judged": [r for r, _ in inference.not_judged],
    }


@given(knowledge(), st.lists(facts(), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_durable_rules_equals_reference_equals_naive(
    known: tuple[list[Quantity], list[Rule]], requests: list[dict[str, Any]]
) -> None:
    built = Program.build(TERMS, *known, V06)
    for request in requests:
        reference = infer(built, request, "reference")
        assert infer(built, request, "durable") == reference
        assert summary(reference) == naive(*known, request)
        for name in reference.derivations:  # every conclusion has a proof that ends in given facts
            assert all(leaf in request for leaf in leaves(reference.chain(name).to_dict()))


def leaves(proof: dict[str, Any]) -> list[str]:
    if proof["kind"] == "given":
        return [proof["name"]]
    return [leaf for premise in proof.get("because", []) for leaf in leaves(premise)]
