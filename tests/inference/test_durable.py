"""What durable_rules is known to do wrong, and that none of it comes through."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from mbridge_advisor.inference import InferenceError, Program, durable, infer
from mbridge_advisor.inference.program import Step
from samples import GRID, QUANTITIES, RULES, V06, derivation, program, quantity, rule, term, terms

engine = pytest.importorskip("durable.engine")

SOAK = int(os.environ.get("MBRIDGE_SOAK", "2000"))  # evaluations


def resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize("pair", [(1, True), (0, False), ("", None), ("a" * 70000, "a" * 70001), ("\ud800", "?")])
def test_facts_that_are_nearly_equal(pair: tuple[Any, Any]) -> None:
    kind: Any = "int" if isinstance(pair[0], int) else "str"
    built = program(
        terms(
            term("a", kind, "grid", nullable=True), term("b", kind, "grid", nullable=True), term("c", "bool", "grid")
        ),
        [],
        [rule(1, "a == b"), rule(2, "a != b"), rule(3, "c"), rule(4, "not c"), rule(5, "given(b)")],
    )
    for facts in (
        {"a": pair[0], "b": pair[0]},
        {"a": pair[0], "b": pair[1] if kind == "str" else 7, "c": bool(pair[1])},
    ):
        assert infer(built, facts, "durable") == infer(built, facts, "reference")


def test_long_texts() -> None:
    long = "名" * 580
    built = program(rules=[rule(1, f"method == '{long}'"), rule(2, f"method != '{long}'")], quantities=[])
    for method in (long, long[:-1], long + "x", long[:-1] + "x", "", "x" * 65536, "x" * 70000):
        assert infer(built, {"method": method}, "durable") == infer(built, {"method": method}, "reference")


def test_more_rules_than_one_ruleset_takes() -> None:
    built = program(rules=[rule(n, "tp < 3") for n in range(1, 300)], quantities=[])
    assert len(infer(built, {"tp": 2}, "durable").firings) == 299
    assert not infer(built, {"tp": 3}, "durable").firings


def test_more_names_than_one_fact_takes() -> None:
    names = [f"n{i}" for i in range(600)]
    vocabulary = terms(*(term(n, section="grid", nullable=True) for n in names))
    rules = [rule(i + 1, *(f"{n} == {i}" for n in names[20 * i : 20 * i + 20])) for i in range(30)]
    facts = {n: i // 20 for i, n in enumerate(names)}
    assert len(infer(program(vocabulary, [], rules), facts, "durable").firings) == 30


def test_reserved_property_names() -> None:
    vocabulary = terms(*(term(n, section="grid") for n in ("id", "sid", "s", "m", "always", "first")))
    built = program(vocabulary, [], [rule(1, "id == 7", "sid == 7", "s == m"), rule(2, "always == first")])
    facts = {"id": 7, "sid": 7, "s": 1, "m": 1, "always": 2, "first": 2}
    for _ in range(3):
        assert len(infer(built, facts, "durable").firings) == 2


def test_numbers_at_and_beyond_its_range() -> None:
    built = program(
        terms(term("a", section="grid"), term("f", "float", "grid")),
        [],
        [rule(1, f"a > {10**15}"), rule(2, f"a < -{10**15}"), rule(3, "f > 1e20"), rule(4, "f < 1e-20", "f > 0")],
    )
    for a, f, expected in [(10**15, 1e20, []), (10**30, 1e21, [1, 3]), (-(10**30), 1e-21, [2, 4]), (2**63, 0.0, [1])]:
        assert [x.rule for x in infer(built, {"a": a, "f": f}, "durable").firings] == [f"MB-T-{n:03}" for n in expected]


def test_an_exception_in_an_action_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    built = program()
    facts = {"tp": 1, "sequence_parallel": True}

    def fail(self: Step, known: Any) -> bool:
        raise RuntimeError("in an action")

    with monkeypatch.context() as patch:
        patch.setattr(Step, "fires", fail)
        with pytest.raises(RuntimeError, match="in an action"):
            infer(built, facts, "durable")
    assert infer(built, facts, "durable") == infer(built, facts, "reference")


def test_a_fact_taken_for_another_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built = program()
    facts = {"tp": 1, "sequence_parallel": True}
    expected = infer(built, facts, "durable")
    real = engine.Ruleset.assert_fact
    refused: list[str] = []

    def refuse(self: Any, fact: dict[str, Any]) -> Any:
        state = real(self, fact)
        if len(refused) < limit:
            refused.append(fact["id"])
            raise engine.MessageObservedException(fact)
        return state

    monkeypatch.setattr(engine.Ruleset, "assert_fact", refuse)
    limit = 2
    assert infer(built, facts, "durable") == expected
    assert len(set(refused)) == 2
    limit = 99
    with pytest.raises(InferenceError, match="keeps taking"):
        infer(built, facts, "durable")


def test_a_library_error_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "MAX_PROPERTIES", 1000)
    names = [f"n{i}" for i in range(300)]
    built = program(terms(*(term(n, section="grid") for n in names)), [], [rule(1, *(f"{n} > 0" for n in names))])
    with pytest.raises(InferenceError, match="error code: 302"):
        infer(built, dict.fromkeys(names, 1), "durable")


def test_no_threads_are_started() -> None:
    before = threading.active_count()
    infer(program(), {"tp": 1, "sequence_parallel": True}, "durable")
    assert threading.active_count() == before


def test_threads_share_a_program() -> None:
    built = program()
    requests = list(random_facts(random.Random(1), 200))
    expected = [infer(built, facts, "reference") for facts in requests]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in random.Random(seed).choices(range(len(requests)), k=250):
            try:
                if infer(built, requests[i], "durable") != expected[i]:
                    wrong.append(requests[i])
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_first_fact_that_matches_nothing() -> None:
    """Deleting a session that never ran an action frees uninitialised memory: it shows once the heap is reused."""
    for n in range(60):
        assert not infer(program(rules=[rule(n, "tp > 5")], quantities=[]), {"tp": 1}, "durable").firings


def test_programs_free_their_rulesets() -> None:
    def use() -> None:
        rules = [rule(n, f"tp == {n}", "given(vpp)") for n in range(1, 101)]
        assert len(infer(program(rules=rules), {"tp": 5, "vpp": 1}, "durable").firings) == 1

    for _ in range(10):
        use()
    gc.collect()
    before = resident_mib()
    for _ in range(40):
        use()
    gc.collect()
    assert resident_mib() - before < 16  # 40 programs of two rulesets, some 0.5 MiB each if they stayed


def random_facts(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Facts for the sample knowledge: sizes, unset and unknown ones."""
    for _ in range(count):
        facts: dict[str, Any] = {
            "tp": rng.choice([1, 2, 4, 6, 8]),
            "pp": rng.choice([1, 2, 4]),
            "cp": rng.choice([1, 2]),
            "ep": rng.choice([1, 4, 8]),
            "etp": rng.choice([None, 1, 2]),
            "vpp": rng.choice([None, 2]),
            "world_size": rng.randrange(1, 2000),
            "sequence_parallel": rng.random() < 0.5,
            "method": rng.choice([None, "full", "uniform"]),
            "scope": rng.choice([None, (), ("moe",), ("attn", "moe")]),
        }
        for name in rng.sample(sorted(facts), rng.choice([0, 0, 0, 1, 3])):
            del facts[name]
        yield facts


def soak_program() -> Program:
    """About 250 steps over four levels, so that most rulesets are full."""
    rng = random.Random(7)
    names = ["tp", "pp", "cp", "ep", "world_size", "dp", "min_gpus", "dense_ranks"]

    def condition() -> str:
        form = rng.choice(["{} > {}", "{} % {} == 0", "{} <= {}", "{} != {}"])
        return form.format(rng.choice(names), rng.randrange(1, 16))

    extra = [term(f"x{n}") for n in range(40)]
    return program(
        {**GRID, **terms(*extra)},
        [*QUANTITIES, *(quantity(f"x{n}", f"{rng.choice(names)} + x{n - 10}") for n in range(10, 40))],
        [
            *RULES,
            *(derivation(n + 100, condition(), **{f"x{n}": f"{rng.choice(names)} * 2"}) for n in range(10)),
            *(rule(n, condition(), condition(), f"x{rng.randrange(40)} > 3") for n in range(200, 400)),
        ],
    )


def test_soak_holds_memory_flat() -> None:
    """MBRIDGE_SOAK evaluations in one process, each fact set another one, some compared with the reference."""
    built = soak_program()
    rng = random.Random(11)
    start = 0.0
    for i, facts in enumerate(random_facts(rng, SOAK)):
        if i == min(500, SOAK // 4):
            gc.collect()
            start = resident_mib()
        inference = infer(built, facts, "durable")
        if i % 50 == 0:
            assert inference == infer(built, facts, "reference")
    gc.collect()
    grown = resident_mib() - start
    print(f"{SOAK} evaluations of {len(built.steps)} steps: {start:.1f} MiB + {grown:.1f} MiB")
    assert grown < 8
    assert built.revision is V06
