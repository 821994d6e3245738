"""How fast is a search? Prints figures and ratios measured in one run; asserts nothing.

    python benchmarks/bench_search.py

Reports for dense and MoE models on 64, 1,024 and 16,384 GPUs: candidates, seconds of a whole warm search on one core;
and for the constraint masks alone: candidates a second, against judging one candidate at a time.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from mbridge_advisor.advice.plan import find, make_plans
from mbridge_advisor.advice.programs import program_for
from mbridge_advisor.inference import infer
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import load
from mbridge_advisor.search.space import take

REQUESTS = [
    ("llama3-70b", "H100", 64, 8192),
    ("llama3-70b", "H100", 1024, 8192),
    ("llama3.1-405b", "H100", 16384, 8192),
    ("deepseek-v3", "GB200", 64, 4096),
    ("deepseek-v3", "H100", 1024, 4096),
    ("deepseek-v3", "GB200", 1024, 4096),
    ("deepseek-v3", "H100", 16384, 4096),
]
MASK_ROWS = 1_000_000


def best_of(n: int, run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Shortest of n timings in seconds."""
    times = []
    for _ in range(n):
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


def searches() -> None:
    """Whole searches, warm: from the checked request to ranked finalists, with and without tentative settings."""
    base = load()
    print(f"{'model':16} {'system':10} {'GPUs':>7} {'candidates':>11} {'seconds':>9} {'cpu':>6} {'candidates/s':>13}")
    for model, gpu, gpus, seq in REQUESTS:
        data = {"model": model, "cluster": {"gpu": gpu, "gpus": gpus}, "training": {"seq_length": seq}}
        request = parse_request(data, base)
        found = find(request, base, 5)
        # Wall clock, and the process's own time, which other work on the machine disturbs less.
        seconds, cpu = (
            best_of(5, lambda request=request: find(request, base, 5), clock)  # type: ignore[misc]
            for clock in (time.perf_counter, time.process_time)
        )
        rate = found.candidates / seconds
        print(f"{model:16} {gpu:10} {gpus:7,} {found.candidates:11,} {seconds:9.3f} {cpu:6.3f} {rate:13,.0f}")


def masks() -> None:
    """The constraint masks over a million random candidates, against the scalar evaluator."""
    base = load()
    request = parse_request(
        {"model": "deepseek-v3", "cluster": {"gpu": "H100", "gpus": 1024}, "training": {"micro_batch_size": 1}}, base
    )
    program = program_for(base, request.revision)
    plan = make_plans(request, base)[0]
    rng = np.random.default_rng(0)
    powers = 2 ** np.arange(8)
    columns = {name: rng.choice(powers, MASK_ROWS) for name in ("tp", "pp", "cp", "ep", "etp")}
    columns["sequence_parallel"] = columns["tp"] > 1
    columns["vpp"] = rng.choice([0, 2, 4], MASK_ROWS)
    facts = {k: v for k, v in plan.inference.facts.items() if k not in columns}
    block = 65536

    def all_masks() -> int:
        left = 0
        for start in range(0, MASK_ROWS, block):
            rows = take(columns, np.s_[start : start + block])
            full = program.columns({**facts, **rows})
            alive = np.ones(len(rows["tp"]), dtype=bool)
            for _, bad in program.constraint_masks(full):
                alive &= ~np.asarray(bad)
            left += int(np.count_nonzero(alive))
        return left

    left = all_masks()
    judged = len(program.constraints) - len(program.unjudged(program.columns({**facts, **take(columns, np.s_[:1])})))
    vector = best_of(3, all_masks) / MASK_ROWS
    one = {**facts, **{name: column[0].item() for name, column in columns.items()}}
    scalar = best_of(20, lambda: infer(program, one, engine="reference"))
    print(f"\nmasks: {judged} constraints, {MASK_ROWS:,} candidates, {left:,} left: {1 / vector:,.0f} candidates/s")
    print(f"one at a time: {scalar * 1e3:.2f} ms a candidate; the masks are {scalar / vector:,.0f} times faster")


if __name__ == "__main__":
    start = time.perf_counter()
    load()
    print(f"knowledge base loaded in {(time.perf_counter() - start) * 1e3:.0f} ms")
    searches()
    masks()
    print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
