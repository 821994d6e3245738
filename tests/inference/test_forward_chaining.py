"""What is derived, what fires, what can't be judged, and the proof of each: the same from both engines."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import sys
from typing import Any

import numpy as np
import pytest
from mbridge_advisor.errors import ExpressionError, KnowledgeError
from mbridge_advisor.inference import InferenceError, Program, forward, infer
from mbridge_advisor.knowledge.model import Then
from samples import V05, derivation, program, quantity, rule, term, terms, text

HAVE_DURABLE = importlib.util.find_spec("durable_rules_engine") is not None
ENGINES = ["reference", pytest.param("durable", marks=pytest.mark.skipif(not HAVE_DURABLE, reason="no durable_rules"))]
FACTS: dict[str, Any] = {
    "tp": 2,
    "pp": 2,
    "cp": 1,
    "ep": 8,
    "etp": None,
    "vpp": None,
    "world_size": 256,
    "sequence_parallel": True,
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def grid() -> Program:
    return program()


# ---- conclusions


def test_quantities_chain(grid: Program, engine: Any) -> None:
    inference = infer(grid, FACTS, engine)
    assert inference.facts["etp_effective"] == 1
    assert inference.facts["min_gpus"] == 16
    assert inference.facts["dp"] == 64
    assert inference.facts["advice"] == "wide"
    assert [f.rule for f in inference.firings] == ["MB-T-003", "MB-T-004"]
    assert inference.facts.items() >= FACTS.items()


def test_the_revision_decides(engine: Any) -> None:
    assert infer(program(revision=V05), FACTS, engine).facts["min_gpus"] == 32
    old = program(quantities=[quantity("dp", "world_size // tp", ">=0.6")], rules=[rule(1, "tp > 1", bridge=">=0.6")])
    assert set(old.steps) == {"dp", "MB-T-001"}
    old = program(
        quantities=[quantity("dp", "world_size // tp", ">=0.6")],
        rules=[rule(1, "tp > 1", bridge=">=0.6"), rule(2, "tp > 1", withdrawn=text("wrong"))],
        revision=V05,
    )
    assert not old.steps
    assert infer(old, FACTS, engine).facts == FACTS


def test_unset_is_not_unknown(grid: Program, engine: Any) -> None:
    inference = infer(grid, {"method": "full", "scope": None, "pp": 1, "vpp": None}, engine)
    assert not inference.firings
    assert dict(inference.not_judged) == {
        "MB-T-001": {"sequence_parallel", "tp"},
        "MB-T-002": {"world_size", "min_gpus"},
        "MB-T-003": {"world_size", "min_gpus"},
        "MB-T-004": {"fits", "dp"},
    }
    inference = infer(grid, {"method": "full", "scope": ("moe",), "pp": 1, "vpp": 2}, engine)
    assert [f.rule for f in inference.firings] == ["MB-T-005", "MB-T-006"]


def test_one_false_condition_is_enough_to_be_quiet(grid: Program, engine: Any) -> None:
    inference = infer(grid, {"tp": 2, "method": None, "pp": 4}, engine)
    assert {"MB-T-001", "MB-T-005", "MB-T-006"}.isdisjoint(dict(inference.not_judged))
    assert not inference.firings


def test_a_firing_keeps_what_it_used_and_shows(grid: Program, engine: Any) -> None:
    inference = infer(grid, {**FACTS, "tp": 1, "etp": 3}, engine)
    first = inference.fired["MB-T-001"]
    assert dict(first.facts) == {"sequence_parallel": True, "tp": 1, "world_size": 256}
    assert inference.fired["MB-T-002"].facts == {"world_size": 256, "min_gpus": 48}
    assert inference.fired["MB-T-002"].round > first.round
    assert infer(grid, {"tp": 1, "sequence_parallel": True}, engine).fired["MB-T-001"].facts.keys() == {
        "sequence_parallel",
        "tp",
    }


def test_a_given_name_is_never_derived(grid: Program, engine: Any) -> None:
    inference = infer(grid, {**FACTS, "min_gpus": 7}, engine)
    assert inference.facts["min_gpus"] == 7
    assert "min_gpus" not in inference.derivations
    assert inference.chain("min_gpus").kind == "given"
    assert "MB-T-002" in inference.fired


def test_conflict_smaller_id_wins_even_if_it_fires_later(engine: Any) -> None:
    vocabulary = terms(term("a", section="grid"), term("late"), term("x"), term("y"))
    built = program(
        vocabulary,
        [quantity("late", "a + 1"), quantity("y", "x * 10")],
        [
            derivation(1, "late > 0", x="1"),
            derivation(2, "a > 0", x="2"),
            derivation(3, "a > 0", x="1"),
            derivation(4, x="3 + 0 * a"),
        ],
    )
    inference = infer(built, {"a": 5}, engine)
    assert inference.facts["x"] == 1
    assert inference.facts["y"] == 10
    assert [(c.name, c.kept, c.dropped) for c in inference.conflicts] == [
        ("x", ("MB-T-001", 1), ("MB-T-002", 2)),
        ("x", ("MB-T-001", 1), ("MB-T-004", 3)),
    ]
    assert infer(built, {"a": -3}, engine).facts["x"] == 3


def test_a_conclusion_that_reads_an_unknown_name(engine: Any) -> None:
    vocabulary = terms(term("a", section="grid"), term("b", section="grid"), term("x"), term("limit", "float"))
    built = program(vocabulary, [], [derivation(1, "a > 0", x="b", limit="a")])
    inference = infer(built, {"a": 1}, engine)
    assert inference.fired.keys() == {"MB-T-001"}
    assert inference.not_judged == (("MB-T-001", frozenset({"b"})),)
    assert "x" not in inference.facts
    assert type(inference.facts["limit"]) is float


def test_rules_without_conditions_always_fire(engine: Any) -> None:
    built = program(rules=[rule(1), rule(2, "True"), rule(3, "1 > 2")], quantities=[quantity("dp", "7")])
    inference = infer(built, {}, engine)
    assert list(inference.fired) == ["MB-T-001", "MB-T-002"]
    assert inference.facts == {"dp": 7}


# ---- proof


def test_chain(grid: Program, engine: Any) -> None:
    inference = infer(grid, FACTS, engine)
    proof = inference.chain("MB-T-004")
    assert proof.depth == 5  # etp_effective, min_gpus, fits, advice, the rule whose text shows it
    assert inference.chain("min_gpus").depth == 2
    assert inference.chain("min_gpus").to_dict() == {
        "name": "min_gpus",
        "value": 16,
        "source": "min_gpus",
        "kind": "quantity",
        "because": [
            {"name": "cp", "value": 1, "source": "given", "kind": "given"},
            {"name": "ep", "value": 8, "source": "given", "kind": "given"},
            {
                "name": "etp_effective",
                "value": 1,
                "source": "etp_effective",
                "kind": "quantity",
                "because": [{"name": "etp", "value": None, "source": "given", "kind": "given"}],
            },
            {"name": "pp", "value": 2, "source": "given", "kind": "given"},
            {"name": "tp", "value": 2, "source": "given", "kind": "given"},
        ],
    }
    fits = inference.chain("fits")
    assert (fits.source, fits.kind, fits.value) == ("MB-T-003", "rule", True)
    assert {p.name for p in fits.premises} == {"world_size", "min_gpus"}
    assert inference.derivations["fits"].round == 3
    with pytest.raises(KeyError):
        inference.chain("MB-T-001")


# ---- mistakes in knowledge


@pytest.mark.parametrize(
    ("quantities", "rules", "reason"),
    [
        ([quantity("dp", "min_gpus"), quantity("min_gpus", "dp + 1")], [], "circle: dp <- min_gpus <- dp"),
        ([quantity("dp", "dp + 1")], [], "circle: dp <- dp"),
        ([quantity("dp", "min_gpus")], [derivation(1, "dp > 1", min_gpus="2")], "circle: dp <- MB-T-001 <- dp"),
        ([], [derivation(1, "not fits", fits="True")], "circle"),
        ([quantity("tp", "pp")], [], "gives tp, a given name of section grid"),
        ([], [derivation(1, "pp > 1", tp="2")], "gives tp, a given name"),
        ([quantity("nope", "1")], [], "isn't in the vocabulary"),
        ([quantity("dp", "tp / 2")], [], "gives float, but dp is int"),
        ([quantity("dp", "tp.real")], [], "attribute access"),
        ([quantity("dp", "1"), quantity("dp", "2")], [], "second quantity"),
        ([], [rule(1, "tp > 1"), rule(1, "tp > 2")], "second rule"),
        ([quantity("dp", "1")], [derivation(1, "tp > 1", dp="2")], "dp is a quantity"),
        ([], [rule(1, "tp")], "true or false"),
        ([], [rule(1, "given(tp)")], "never unset"),
        ([], [rule(1, "nope > 1")], "unknown name 'nope'"),
        ([], [rule(1, "tp > 1", then=Then(advice=text("{nope}")))], "unknown names: nope"),
        ([], [rule(1, "tp > 1", then=Then(prefer=(("tp", 0.1),)))], "true or false"),
    ],
)
def test_mistakes_are_refused(quantities: Any, rules: Any, reason: str) -> None:
    with pytest.raises(KnowledgeError) as caught:
        program(quantities=quantities, rules=rules)
    assert reason in str(caught.value)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(KnowledgeError) as caught:
        program(quantities=[quantity("dp", "nope")], rules=[rule(1, "tp +"), rule(2, "tp > 'a'")])
    assert len(caught.value.problems) == 3


# ---- engines


def test_engines_agree(grid: Program) -> None:
    if HAVE_DURABLE:
        assert infer(grid, FACTS).engine == "durable_rules"
        assert infer(grid, FACTS, "durable") == infer(grid, FACTS, "reference")
    changed = dataclasses.replace(infer(grid, FACTS, "reference"), conflicts=(1,))  # type: ignore[arg-type]
    assert changed != infer(grid, FACTS, "reference")


def test_without_durable_rules(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "durable", None)
    forward._notice.cache_clear()
    grid = program()
    with caplog.at_level(logging.WARNING):
        inferences = [infer(grid, FACTS), infer(grid, FACTS)]
    assert [i.engine for i in inferences] == ["reference", "reference"]
    assert len(caplog.records) == 1
    with pytest.raises(InferenceError, match="isn't installed"):
        infer(grid, FACTS, "durable")


# ---- all candidates at once


def test_columns_and_masks_agree_with_inference() -> None:
    grid = program()
    axes = np.meshgrid([1, 2, 3], [1, 2], [1, 4], [1, 8], [0, 1, 2], indexing="ij")
    tp, pp, cp, ep, etp = (axis.ravel() for axis in axes)
    columns: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": ep,
        "etp": etp,
        "vpp": None,
        "world_size": 64,
        "sequence_parallel": True,
    }
    extended = grid.columns(columns)
    assert set(extended) - set(columns) == {"etp_effective", "dense_ranks", "min_gpus", "dp"}
    masks = dict(grid.constraint_masks(extended))
    assert set(masks) == {"MB-T-001", "MB-T-002", "MB-T-006"}
    assert masks["MB-T-006"] is False
    for i in range(len(tp)):
        facts = {n: v[i].item() if isinstance(v, np.ndarray) else v for n, v in columns.items()}
        facts["etp"] = facts["etp"] or None
        inference = infer(grid, facts, "reference")
        for name in ("etp_effective", "dense_ranks", "min_gpus", "dp"):
            assert inference.facts[name] == extended[name][i]  # type: ignore[index]
        fired = {r for r, mask in masks.items() if np.broadcast_to(mask, len(tp))[i]}
        assert fired == inference.fired.keys() & grid.constraints.keys()


def test_what_can_be_judged_early() -> None:
    grid = program()
    assert grid.inputs["min_gpus"] == {"tp", "pp", "cp", "ep", "etp"}
    assert grid.inputs["MB-T-002"] == {"tp", "pp", "cp", "ep", "etp", "world_size"}
    assert grid.inputs["MB-T-004"] == {"fits", "world_size", "tp", "pp", "cp"}
    assert grid.inputs["MB-T-003"] == grid.inputs["MB-T-002"]
    assert grid.constraints.keys() == {"MB-T-001", "MB-T-002", "MB-T-006"}
    assert grid.unjudged({"tp", "pp", "vpp"}) == (
        ("MB-T-001", {"sequence_parallel"}),
        ("MB-T-002", {"world_size", "min_gpus"}),
    )
    assert dict(grid.constraint_masks({"tp": np.array([1]), "pp": 1, "vpp": 2})) == {"MB-T-006": True}
    assert grid.rules["MB-T-004"].prefer[0][0].source == "tp <= 8"


def test_a_column_beyond_exact_whole_numbers_is_refused() -> None:
    vocabulary = terms(term("a", section="grid"), term("b", section="grid"), term("x"))
    built = program(vocabulary, [quantity("x", "a * b")], [])
    assert list(built.columns({"a": np.array([2**20]), "b": 2**30})["x"]) == [2**50]  # type: ignore[arg-type]
    for b in (2**40, np.array([2**40])):
        with pytest.raises(ExpressionError, match="too large"):
            built.columns({"a": np.array([2**20]), "b": b})


def test_float_columns_are_floats() -> None:
    built = program(quantities=[quantity("limit", "tp"), quantity("dp", "3")], rules=[])
    columns = built.columns({"tp": np.array([1, 2])})
    assert columns["limit"].dtype == np.float64  # type: ignore[union-attr]
    assert columns["dp"] == 3
