"""The generator of configurations, and shrinking."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from mbridge_advisor.evidence.oracle.cases import MAX_WORLD, SIZES, SMALLEST, Case, generate, shrink


def sample(seed: int, count: int) -> list[Case]:
    rng = random.Random(seed)
    return [generate(rng) for _ in range(count)]


def test_a_seed_gives_the_same_cases_everywhere() -> None:
    assert sample(7, 50) == sample(7, 50)
    assert sample(7, 50) != sample(8, 50)


@given(st.integers(0, 2**32))
def test_every_case_is_complete_and_small(seed: int) -> None:
    case = generate(random.Random(seed))
    assert SMALLEST.keys() <= case.keys()
    assert 1 <= case["world_size"] <= MAX_WORLD
    assert all(case[name] >= 1 for name in SIZES if name in case)
    if "num_moe_experts" in case:
        assert case["moe_router_topk"] >= 1
    assert case["hidden_size"] == 64 * case["num_attention_heads"]


def test_both_sides_of_the_main_constraints_are_met() -> None:
    cases = sample(1, 2000)

    def sides(name: str, holds: list[bool]) -> None:
        share = sum(holds) / len(holds)
        assert 0.02 < share < 0.98, (name, share)

    sides("world", [c["world_size"] % (c["tp"] * c["pp"] * c["cp"]) == 0 for c in cases])
    sides("layers", [c["num_layers"] % c["pp"] == 0 for c in cases if c["pp"] > 1])
    sides("experts", [c["num_moe_experts"] % c.get("ep", 1) == 0 for c in cases if c.get("num_moe_experts")])
    sides("sequence", [c["seq_length"] % (2 * c["cp"]) == 0 for c in cases if c["cp"] > 1])
    sides("sp", [c.get("sequence_parallel", False) for c in cases if c["tp"] > 1])
    sides("vpp needs pp", [c["pp"] > 1 for c in cases if c.get("vpp")])
    kinds = Counter("moe" if c.get("num_moe_experts") else "dense" for c in cases)
    assert min(kinds.values()) > 500


def test_shrinking_keeps_what_is_looked_for_and_drops_the_rest() -> None:
    rng = random.Random(3)

    def same(case: Case) -> bool:
        return case.get("tp", 1) % 3 == 0 and case.get("cp", 1) > 1

    found = [c for c in (generate(rng) for _ in range(3000)) if same(c)]
    assert found
    for case in found[:20]:
        small = shrink(dict(case), same)
        assert same(small)
        assert {k: v for k, v in small.items() if k not in SMALLEST} == {"tp": 3, "cp": 2}


def test_shrinking_stops_at_its_budget() -> None:
    calls = 0

    def same(case: Case) -> bool:
        nonlocal calls
        calls += 1
        return True

    shrink(generate(random.Random(5)), same, budget=3)
    assert calls == 3
