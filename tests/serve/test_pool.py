"""The pool, with a worker that misbehaves on demand: it speaks the same frames and does what a call says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mbridge_advisor.serve import pool as module
from mbridge_advisor.serve.operations import Reply
from mbridge_advisor.serve.pool import TOKEN, Pool

WORKER = """
import json, os, signal, sys, time

def write(head, body):
    sys.stdout.buffer.write(json.dumps({**head, "size": len(body)}).encode() + b"\\n" + body)
    sys.stdout.buffer.flush()

write({}, b"")
while line := sys.stdin.buffer.readline():
    call = json.loads(sys.stdin.buffer.read(json.loads(line)["size"]))
    if call["do"] == "die" or (call["do"] == "die once" and not os.path.exists(call["mark"])):
        open(call.get("mark", os.devnull), "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if call["do"] == "hang":
        time.sleep(3600)
    if call["do"] == "babble":
        print("a library tells something", flush=True)
    if call["do"] == "half":
        sys.stdout.buffer.write(b'{"status": 200, "memory": 1, "size": 99}\\nhalf')
        sys.stdout.buffer.flush()
        os._exit(1)
    told = {"n": call.get("n"), "pid": os.getpid(), "token": os.environ.get("MBRIDGE_ADVISOR_TOKEN")}
    write({"status": 200, "memory": call.get("memory", 1)}, json.dumps(told).encode())
"""


@pytest.fixture(autouse=True)
def misbehaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-S", "-c", WORKER))
    monkeypatch.setattr(module, "_PAUSE", 0.01)


def run(test: Callable[[Pool], Awaitable[None]], workers: int = 2, **options: Any) -> Pool:
    pool = Pool(workers, **options)

    async def main() -> None:
        async with pool:
            await test(pool)

    asyncio.run(main())
    return pool


async def ask(pool: Pool, do: str = "answer", **more: Any) -> Reply:
    return await pool.answer("any", json.dumps({"do": do, **more}).encode())


def test_every_call_gets_its_own_reply() -> None:
    async def test(pool: Pool) -> None:
        while pool.counts.ready < 2:
            await asyncio.sleep(0.01)
        replies = await asyncio.gather(*(ask(pool, n=n) for n in range(200)))
        told = [json.loads(reply.body) for reply in replies]
        assert [each["n"] for each in told] == list(range(200))
        assert len({each["pid"] for each in told}) == 2

    run(test)


def test_a_call_whose_worker_died_is_tried_again(tmp_path: Path) -> None:
    async def test(pool: Pool) -> None:
        others = [asyncio.create_task(ask(pool, n=n)) for n in range(50)]
        reply = await ask(pool, "die once", n=7, mark=str(tmp_path / "mark"))
        assert json.loads(reply.body)["n"] == 7
        assert {each.status for each in await asyncio.gather(*others)} == {200}

    pool = run(test)
    assert (pool.counts.retried, pool.counts.ended["died"]) == (1, 1)


def test_workers_killed_under_load_lose_no_call() -> None:
    async def test(pool: Pool) -> None:
        calls = [asyncio.create_task(ask(pool, n=n)) for n in range(600)]
        for n in (50, 200, 400):
            told = json.loads((await calls[n]).body)
            try:
                os.kill(told["pid"], signal.SIGKILL)
            except ProcessLookupError:
                continue
        replies = await asyncio.gather(*calls)
        assert [json.loads(reply.body)["n"] for reply in replies] == list(range(600))

    assert run(test, workers=3).counts.ended["died"] >= 1


def test_a_worker_killed_while_it_waits_is_replaced() -> None:
    async def test(pool: Pool) -> None:
        first = json.loads((await ask(pool)).body)["pid"]
        os.kill(first, signal.SIGKILL)
        while not pool.counts.ended["died"]:
            await asyncio.sleep(0.01)
        assert json.loads((await ask(pool)).body)["pid"] != first

    assert run(test, workers=1).counts.retried == 0


def test_a_call_that_ends_every_worker_is_given_up() -> None:
    async def test(pool: Pool) -> None:
        for do in ("die", "half", "babble"):
            reply = await ask(pool, do)
            assert (reply.status, json.loads(reply.body)["type"]) == (500, "urn:mbridge-advisor:problem:internal")
        assert (await ask(pool)).status == 200

    assert run(test).counts.ended["died"] == 3 * module.TRIES


def test_a_call_that_takes_too_long_costs_its_worker() -> None:
    async def test(pool: Pool) -> None:
        while not pool.counts.ready:
            await asyncio.sleep(0.01)
        stuck = asyncio.create_task(ask(pool, "hang"))
        late = asyncio.create_task(ask(pool))  # no worker is free before its time is over, or just after
        assert (await stuck).status == 504
        assert (await late).status in (200, 503, 504)
        pool.timeout = 60
        assert (await ask(pool)).status == 200

    assert run(test, workers=1, timeout=2).counts.ended["timeout"] >= 1


def test_a_caller_that_goes_hurts_nobody() -> None:
    async def test(pool: Pool) -> None:
        calls = [asyncio.create_task(ask(pool, n=n)) for n in range(20)]
        for call in calls[::2]:
            call.cancel()
        replies = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in replies] == [n % 2 == 0 for n in range(20)]

    run(test, workers=1)


def test_workers_are_replaced_after_so_many_calls_but_not_all_at_once() -> None:
    async def test(pool: Pool) -> None:
        for n in range(100):
            assert json.loads((await ask(pool, n=n)).body)["n"] == n

    pool = run(test, recycle=20)
    assert 3 <= pool.counts.ended["recycled"] <= 10
    assert set(pool.counts.ended) == {"recycled"}


def test_a_worker_that_grew_too_large_is_replaced() -> None:
    async def test(pool: Pool) -> None:
        pids = [json.loads((await ask(pool, memory=size)).body)["pid"] for size in (100, 101, 100)]
        assert pids[0] == pids[1] != pids[2]

    assert run(test, workers=1, memory=100).counts.ended["memory"] == 1


def test_a_worker_that_cant_start_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    flaky = f"import os, sys\nif not os.path.exists({str(mark)!r}): open({str(mark)!r}, 'w'); sys.exit(1)\n"
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-S", "-c", flaky + WORKER))

    async def test(pool: Pool) -> None:
        assert (await ask(pool)).status == 200

    run(test, workers=1)


def test_without_workers_calls_are_turned_away_and_the_pool_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-S", "-c", "print('no frame')"))
    monkeypatch.setattr(module, "_GRACE", 0.1)

    async def test(pool: Pool) -> None:
        assert (await ask(pool)).status == 503
        assert not pool.counts.ready

    run(test, timeout=0.1)


def test_calls_in_hand_are_finished_before_the_pool_closes() -> None:
    calls: list[asyncio.Task[Reply]] = []

    async def test(pool: Pool) -> None:
        calls.extend(asyncio.create_task(ask(pool, n=n)) for n in range(50))
        await asyncio.sleep(0)

    pool = run(test)
    assert [json.loads(call.result().body)["n"] for call in calls] == list(range(50))
    assert pool.counts.ready == 0


def test_workers_dont_get_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "a token that is long enough")

    async def test(pool: Pool) -> None:
        assert json.loads((await ask(pool)).body)["token"] is None

    run(test, workers=1)
