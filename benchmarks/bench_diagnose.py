"""How fast `diagnose` reads a log (by processor time), and in how much memory.

python benchmarks/bench_diagnose.py [MEGABYTES]

Writes a synthetic log of that size (200 by default) to a temporary folder, plain and gzip, and reads each once. The log
is what 64 ranks print in one file: configuration, step lines, chatter of NCCL and Python, and a failure near the end.
"""

from __future__ import annotations

import gzip
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mbridge_advisor import diagnose

MB = 1_000_000
NOISE = (
    "node{0:02d}:4311:44{1:02d} [{2}] NCCL INFO Channel 0{2}/0 : {1}[{2}] -> {0}[{2}] [send] via NET/IB/{2}/GDRDMA\n",
    "{1:2d}: /opt/venv/lib/python3.12/site-packages/torch/utils/checkpoint.py:85: UserWarning: None of the inputs\n",
    "[default{2}]:INFO:megatron.core.distributed: number of parameters in bucket {0}: {1}2345678\n",
    "{1:2d}: DEBUG data loader worker {0} waits for batch {1} of shard /data/tokens_{2}_text_document\n",
    "[rank{1}]: [2026-12-02 10:00:{0:02d}] profiler: forward {1}.{0} ms, backward {0}.{2} ms\n",
)
STEP = (
    " [2026-12-02 10:00:00] iteration {0:8d}/ 1000000 | consumed samples: {0:12d} | elapsed time per iteration (ms):"
    " 8123.4 | throughput per GPU (TFLOP/s/GPU): 412.5 | learning rate: 3.000000E-04 | global batch size:   512 |"
    " lm loss: 2.345678E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)
FAILURE = (
    "[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 7 has a total capacity of"
    " 79.11 GiB of which 1.19 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of"
    " the allocated memory 70.02 GiB is allocated by PyTorch, and 513.20 MiB is reserved by PyTorch but unallocated.\n"
)


def lines(size: int) -> Iterator[str]:
    """A log of about ``size`` bytes."""
    yield "using world size: 64, data-parallel size: 8\n> initialized tensor model parallel with size 4\n"
    written, n = 0, 0
    while written < size:
        block = STEP.format(n) + "".join(line.format(n % 60, n % 64, n % 8) for line in NOISE * 4)
        yield block
        written, n = written + len(block), n + 1
    yield FAILURE


def main() -> None:
    """Plain, then gzip."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    diagnose(log=["nothing"])  # loads the knowledge base
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "run.log", Path(folder) / "run.log.gz"
        with plain.open("w") as out, gzip.open(packed, "wt", compresslevel=1) as zipped:
            for block in lines(size * MB):
                out.write(block)
                zipped.write(block)
        for path in (plain, packed):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            begun = time.process_time()
            result = diagnose(log=path)
            took = time.process_time() - begun
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            read = plain.stat().st_size / MB
            print(
                f"{path.name}: {read:,.0f} MB, {result.lines:,} lines in {took:.1f} s of one core = "
                f"{read / took:,.0f} MB/s, peak memory +{grown / 1000:,.0f} MB, first cause {result.causes[0].rule}"
            )


if __name__ == "__main__":
    main()
