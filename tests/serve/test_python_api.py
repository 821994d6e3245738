"""The Python functions for other programs: cheap to import, without state, from many threads and under asyncio."""

from __future__ import annotations

import asyncio
import inspect
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_type_hints

import mbridge_advisor
import pytest
from mbridge_advisor import RequestError, advise, check, diagnose, estimate, explain
from serve.running import GRID, LLAMA

FUNCTIONS = (advise, check, diagnose, estimate, explain)
MOE = {"model": "qwen3-30b-a3b", "cluster": {"gpu": "H100", "gpus": 16}, "training": {"seq_length": 4096}}
CALLS: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    (check, GRID, {}),
    (check, {"bridge": "v0.3.1", "cluster": {"gpus": 6}, "grid": {"tp": 4, "pp": 2, "ep": 8}}, {}),
    (check, {**MOE, "bridge": "v0.4.2", "grid": {"tp": 2, "ep": 8, "sequence_parallel": False}}, {}),
    (check, {"grid": {"tp": "two"}}, {}),
    (estimate, GRID, {}),
    (estimate, {**MOE, "grid": {"ep": 8, "pp": 2}}, {}),
    (advise, {**LLAMA, "grid": {"tp": 2}}, {"top": 2}),
    (advise, {**MOE, "bridge": "v0.5.1"}, {"top": 1}),
    (diagnose, GRID, {"symptom": "CUDA out of memory after a few hundred steps"}),
    (explain, "MB-WORLD-002", {}),
)


def answer(call: tuple[Any, Any, dict[str, Any]]) -> Any:
    function, request, more = call
    try:
        return function(request, **more).to_dict()
    except RequestError as problem:
        return problem.to_dict()


def test_importing_loads_nothing_heavy() -> None:
    heavy = ("numpy", "yaml", "jsonschema", "durable", "click", "rich", "fastapi", "mcp", "asyncio", "multiprocessing")
    # Without site, since .pth files of other packages import at will.
    code = f"import sys; sys.path[:] = {sys.path!r}; import mbridge_advisor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(heavy)
    assert {m for m in loaded if m.startswith("mbridge_advisor")} == {"mbridge_advisor", "mbridge_advisor.errors"}


def test_everything_that_is_offered_is_there() -> None:
    assert all(getattr(mbridge_advisor, name) is not None for name in mbridge_advisor.__all__)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_are_typed_and_documented(function: Any) -> None:
    hints = get_type_hints(function, vars(sys.modules[function.__module__]) | {"Any": Any})
    assert set(hints) == {*inspect.signature(function).parameters, "return"}
    assert "Raises:" in (inspect.getdoc(function) or "")


def test_eight_threads_get_the_answers_of_one() -> None:
    expected = [answer(call) for call in CALLS]
    start = threading.Barrier(8)

    def hammer(seed: int) -> list[tuple[int, Any]]:
        order = [n for n in range(len(CALLS)) for _ in range(2)]
        random.Random(seed).shuffle(order)
        start.wait()
        return [(n, answer(CALLS[n])) for n in order]

    with ThreadPoolExecutor(8) as threads:
        for done in threads.map(hammer, range(8)):
            for n, found in done:
                assert found == expected[n], CALLS[n]


def test_threads_that_are_the_first_to_ask() -> None:
    """In a new process, where nothing is loaded or compiled yet."""
    code = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import mbridge_advisor
start = threading.Barrier(8)
def ask(n):
    start.wait()
    return mbridge_advisor.check({"bridge": "v0.5.1", "cluster": {"gpus": 8}, "grid": {"tp": 3, "pp": 2}}).to_dict()
with ThreadPoolExecutor(8) as threads:
    answers = list(threads.map(ask, range(8)))
assert all(each == answers[0] for each in answers) and answers[0]["verdict"] == "error"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_asyncio() -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(answer, call) for call in CALLS))

    assert asyncio.run(main()) == [answer(call) for call in CALLS]


def test_answers_and_requests_are_left_alone() -> None:
    request = {**MOE, "grid": {"ep": 8, "recompute_modules": ["moe"]}}
    before = repr(request)
    first = check(request)
    data = first.to_dict()
    data["request"]["grid"]["expert_model_parallel_size"] = 99
    data["findings"].clear()
    assert repr(request) == before
    assert check(request) == first
    assert first.to_dict()["request"]["grid"]["expert_model_parallel_size"] == 8
