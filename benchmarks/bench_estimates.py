"""How long estimates take: one configuration, and many at once, for a dense and a MoE model.

python benchmarks/bench_estimates.py [N]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from mbridge_advisor import memory, timing
from mbridge_advisor.knowledge.load import load
from mbridge_advisor.memory import Grids, Recompute, Settings

RECOMPUTES = (
    Recompute(),
    Recompute("selective"),
    Recompute("selective", modules=("core_attn", "mlp")),
    Recompute("full", "uniform", 1),
    Recompute("full", "block", 2),
)


def sample(n: int, experts: bool) -> Grids:
    """n candidates for 1024 GPUs, drawn from powers of two."""
    r = np.random.default_rng(7)
    pp = 2 ** r.integers(0, 5, n)
    return Grids.of(
        world_size=1024,
        global_batch_size=2048,
        tp=2 ** r.integers(0, 4, n),
        pp=pp,
        vpp=np.where(pp > 1, r.choice([1, 2, 4], n), 1),
        cp=2 ** r.integers(0, 3, n),
        ep=2 ** r.integers(0, 7, n) if experts else 1,
        mbs=2 ** r.integers(0, 3, n),
        recompute=RECOMPUTES,
        recompute_index=r.integers(0, len(RECOMPUTES), n),
    )


def seconds(action: Callable[[], object], repeat: int) -> float:
    """Best of ``repeat`` runs: the process's own time, which other work on the machine disturbs less."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    knowledge = load()
    gpu = knowledge.gpus["H100"]
    for name in ("llama3-70b", "deepseek-v3"):
        arch = knowledge.models[name].architecture
        settings = Settings(global_batch_size=2048, precision="fp8_cs")
        for size, repeat in ((1, 20), (n, 2)):
            grids = sample(size, arch.is_moe)
            m = seconds(lambda a=arch, s=settings, g=grids: memory.estimate(a, s, g, gpu), repeat)
            t = seconds(lambda a=arch, s=settings, g=grids: timing.estimate(a, s, g, gpu), repeat)
            if size == 1:
                one = m + t
                print(f"{name}: one configuration {m * 1e3:.2f} ms memory + {t * 1e3:.2f} ms time")
            else:
                print(
                    f"{name}: {size:,} at once {m / size * 1e6:.2f} + {t / size * 1e6:.2f} microseconds each,"
                    f" {one * size / (m + t):,.0f} times less than one by one"
                )
    print(f"peak memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
