"""Sustained load on the HTTP service over loopback: requests/s, times, memory; and threads against processes.

    python benchmarks/bench_serve.py --seconds 150 --kill 30
    python benchmarks/bench_serve.py --threads

The client shares the machine with the server, so on few cores the figures are low bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

MODELS = ("llama3-70b", "qwen3-30b-a3b", "deepseek-v3", "llama3-8b")
SHARES = {"check": 70, "estimate": 25, "advise": 5}


def call(operation: str, rng: random.Random) -> bytes:
    """A request's body: one of many thousand different ones."""
    grid = {"tp": rng.choice((1, 2, 4, 8)), "pp": rng.choice((1, 2, 4)), "cp": rng.choice((1, 2)), "ep": 1}
    cluster = {"gpu": rng.choice(("H100", "B200", "GB200")), "gpus": rng.choice((64, 128, 256))}
    training = {"seq_length": rng.choice((4096, 8192, 16384)), "global_batch_size": rng.choice((256, 512, 1024))}
    request: dict[str, Any] = {"model": rng.choice(MODELS), "cluster": cluster, "training": training}
    if operation != "advise":
        request["grid"] = grid
    return json.dumps({"request": request}).encode()


async def client(port: int, until: float, seed: int, seen: list[tuple[str, int, float]]) -> None:
    """One connection that asks again as soon as it is answered."""
    rng = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        (operation,) = rng.choices(list(SHARES), list(SHARES.values()))
        body = call(operation, rng)
        head = f"POST /v1/{operation} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        begun = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"(?i)content-length: (\d+)", answer)
        await reader.readexactly(int(length[1]) if length else 0)
        seen.append((operation, int(answer.split()[1]), time.perf_counter() - begun))
    writer.close()


def family(parent: int) -> list[int]:
    """The process and its children."""
    found = [parent]
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def memory(pid: int) -> float:
    """Resident MiB."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


async def load(port: int, server: int, options: argparse.Namespace) -> int:
    """Ask for a while; how many answers."""
    seen: list[tuple[str, int, float]] = []
    begun = time.monotonic()
    until = begun + options.seconds
    clients = [asyncio.create_task(client(port, until, n, seen)) for n in range(options.clients)]
    step = options.seconds / 10
    killed, last_kill = 0, begun
    for n in count(1):
        await asyncio.sleep(max(0.0, begun + n * step - time.monotonic()))
        pids = family(server)
        sizes = sorted((memory(pid) for pid in pids[1:]), reverse=True)
        shown = ", ".join(f"{size:.0f}" for size in sizes)
        print(
            f"{n * step:5.0f} s: {len(seen):7,} answers, front {memory(server):.0f} MiB, workers {shown} MiB",
            flush=True,
        )
        if time.monotonic() >= until:
            break
        if options.kill and time.monotonic() - last_kill >= options.kill and len(pids) > 1:
            os.kill(random.choice(pids[1:]), signal.SIGKILL)
            killed, last_kill = killed + 1, time.monotonic()
    await asyncio.gather(*clients)
    total = time.monotonic() - begun
    print(f"\n{len(seen):,} requests in {total:.0f} s: {len(seen) / total:.0f}/s over {options.clients} connections")
    print(f"statuses {dict(Counter(status for _, status, _ in seen))}, workers killed {killed}")
    for name in (*SHARES, "all"):
        times = sorted(t * 1000 for operation, _, t in seen if name in (operation, "all"))
        if len(times) > 1:
            middle, p99 = statistics.median(times), times[int(len(times) * 0.99)]
            print(f"{name:9} {len(times):7,}: median {middle:7.1f} ms, p99 {p99:7.1f} ms, max {times[-1]:7.1f} ms")
    return len(seen)


def threads() -> None:
    """The same calls by one thread, two threads, and two processes."""
    from mbridge_advisor.serve.operations import answer
    from mbridge_advisor.serve.pool import Pool

    for operation, number in (("check", 300), ("estimate", 300), ("advise", 24)):
        rng = random.Random(1)
        calls = [call(operation, rng) for _ in range(number)]
        for body in calls:
            answer(operation, body)  # what is cached is cached for all

        def run(workers: int, operation: str = operation, calls: list[bytes] = calls) -> float:
            begun = time.perf_counter()
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(partial(answer, operation), calls))
            return len(calls) / (time.perf_counter() - begun)

        async def spread(operation: str = operation, calls: list[bytes] = calls) -> float:
            async with Pool(2) as pool:
                await asyncio.gather(*(pool.answer(operation, body) for body in calls))
                begun = time.perf_counter()
                await asyncio.gather(*(pool.answer(operation, body) for body in calls))
                return len(calls) / (time.perf_counter() - begun)

        rates = f"1 thread {run(1):.0f}/s, 2 threads {run(2):.0f}/s, 8 threads {run(8):.0f}/s"
        print(f"{operation:9} {rates}, 2 processes {asyncio.run(spread()):.0f}/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", type=float, default=0, help="kill a worker every so many seconds")
    parser.add_argument("--threads", action="store_true", help="compare threads with processes instead")
    options = parser.parse_args()
    if options.threads:
        threads()
        return
    words = [sys.executable, "-m", "mbridge_advisor", "serve", "--port", "0", "--workers", str(options.workers)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r":(\d+)$", process.stderr.readline())
    assert found
    try:
        answers = asyncio.run(load(int(found[1]), process.pid, options))
    finally:
        process.terminate()
        process.communicate()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    each = (used.ru_utime + used.ru_stime) / answers * 1000
    print(f"exit code {process.returncode}; the service used {each:.1f} ms of CPU an answer, its starts included")


if __name__ == "__main__":
    main()
