"""Worker processes that answer calls. The death of one loses no call."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from .operations import Reply
from .problems import ServiceError
from .worker import frame

log = logging.getLogger(__name__)

TOKEN = "MBRIDGE_ADVISOR_TOKEN"  # the environment variable that workers don't get
TRIES = 3  # a call whose worker died is tried again, since calls are pure; one that kills every worker is given up
COMMAND = (sys.executable, "-P", "-m", "mbridge_advisor.serve.worker")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_START = 60.0  # seconds that a worker may take to be ready
_GRACE = 2.0  # seconds beyond a call's time, in which its worker is stopped
_NOBODY = ServiceError("busy", "No worker was free in time. Try again.")
_PAUSE = 1.0  # seconds before the next attempt after a worker couldn't be started


class WorkerError(Exception):
    """The process ended before it had replied."""


@dataclass(order=True)
class _Call:
    number: int  # calls are answered in this order; one that is tried again keeps its place
    frame: bytes = field(compare=False)
    reply: asyncio.Future[Reply] = field(compare=False)
    deadline: float = field(compare=False)
    tries: int = field(default=0, compare=False)

    def settle(self, reply: Reply) -> None:
        if not self.reply.done():  # the caller may have gone
            self.reply.set_result(reply)


@dataclass
class Counts:
    """What the pool has seen.

    Attributes:
        ready: workers that work or wait for work.
        memory: slot -> resident bytes of its worker after its last call.
        ended: why workers ended (``died``, ``recycled``, ``memory``, ``timeout``) -> how many.
        retried: calls that were tried again.
    """

    ready: int = 0
    memory: dict[int, int] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    retried: int = 0


class Pool:
    """Slots with one worker process each. An asynchronous context manager; on leaving, calls in hand are finished.

    Args:
        workers: how many slots.
        timeout: seconds from the arrival of a call to its reply; a worker that takes longer is killed.
        recycle: calls after which a worker makes room for a new one.
        memory: resident bytes above which it does so at once.
    """

    def __init__(self, workers: int, *, timeout: float = 30.0, recycle: int = 10_000, memory: int = 1 << 30) -> None:
        self.workers, self.timeout, self.recycle, self.memory = workers, timeout, recycle, memory
        self.counts = Counts()
        self._numbers = itertools.count()
        self._calls: asyncio.PriorityQueue[_Call] = asyncio.PriorityQueue()
        self._slots: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._slots = [asyncio.create_task(self._slot(number)) for number in range(self.workers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timeout + _GRACE):
                await self._calls.join()
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)

    async def answer(self, operation: str, raw: bytes, *, told: bool = False) -> Reply:
        """As :func:`~mbridge_advisor.serve.operations.answer`, by a worker."""
        loop = asyncio.get_running_loop()
        call = _Call(
            next(self._numbers),
            frame({"operation": operation, "told": told}, raw),
            loop.create_future(),
            loop.time() + self.timeout,
        )
        self._calls.put_nowait(call)
        try:
            async with asyncio.timeout(self.timeout + _GRACE):
                return await call.reply
        except TimeoutError:  # no worker has even looked at it
            return Reply.problem(_NOBODY)

    async def _slot(self, number: int) -> None:
        """One worker after the other."""
        # The first ones live shorter and shorter, so that later not all are replaced at the same time.
        life = max(1, self.recycle * (number + 1) // self.workers)
        while True:
            try:
                worker = await _Worker.start()
            except (WorkerError, OSError, TimeoutError) as problem:
                log.error("a worker could not be started: %s", str(problem) or type(problem).__name__)
                await asyncio.sleep(_PAUSE)
                continue
            self.counts.ready += 1
            try:
                why = await self._serve(worker, number, life)
                self.counts.ended[why] += 1
                log.log(logging.WARNING if why in ("died", "timeout") else logging.INFO, "worker %d: %s", number, why)
            finally:
                self.counts.ready -= 1
                await worker.stop()
            life = self.recycle

    async def _serve(self, worker: _Worker, number: int, life: int) -> str:
        """Calls for one worker; why it ends."""
        for _ in range(life):
            call = await self._next(worker)
            if call is None:
                return "died"
            try:
                left = call.deadline - asyncio.get_running_loop().time()
                if call.reply.done():
                    continue
                if left <= 0:
                    call.settle(Reply.problem(_NOBODY))
                    continue
                async with asyncio.timeout(left):
                    reply, self.counts.memory[number] = await worker.ask(call.frame)
                call.settle(reply)
            except TimeoutError:
                text = f"The answer took longer than {self.timeout:g} seconds. Ask for less."
                call.settle(Reply.problem(ServiceError("timeout", text)))
                return "timeout"
            except WorkerError:
                call.tries += 1
                if call.tries < TRIES:
                    self.counts.retried += 1
                    self._calls.put_nowait(call)
                else:
                    call.settle(Reply.problem(ServiceError("internal", "The call ended every worker that took it.")))
                return "died"
            finally:
                self._calls.task_done()
            if self.counts.memory[number] > self.memory:
                return "memory"
        return "recycled"

    async def _next(self, worker: _Worker) -> _Call | None:
        """The next call; None where the worker ends while it waits for one."""
        getting = asyncio.create_task(self._calls.get())
        try:
            await asyncio.wait({getting, worker.ended}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            getting.cancel()
            raise
        if getting.done() and not worker.ended.done():
            return getting.result()
        if getting.done():
            self._calls.put_nowait(getting.result())
            self._calls.task_done()
        getting.cancel()
        return None


class _Worker:
    """One process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.ended = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls) -> _Worker:
        """A worker that is ready."""
        environment = {**_ONE_THREAD, **{name: value for name, value in os.environ.items() if name != TOKEN}}
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE, env=environment)
        )
        try:
            await _finished(starting)
            worker = cls(starting.result())
            async with asyncio.timeout(_START):
                await worker._read()
        except BaseException:
            if starting.exception() is None:
                await cls(starting.result()).stop()
            raise
        return worker

    async def ask(self, call: bytes) -> tuple[Reply, int]:
        """The reply to a framed call, and the worker's memory."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(call)
            await self._process.stdin.drain()
        except ConnectionError:
            raise WorkerError("its input is closed") from None
        head, body = await self._read()
        return Reply(head["status"], body), head["memory"]

    async def _read(self) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdout is not None
        try:
            head = json.loads(await self._process.stdout.readuntil(b"\n"))
            return head, await self._process.stdout.readexactly(head["size"])
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerError("its output ended") from None
        except (asyncio.LimitOverrunError, ValueError, KeyError):
            raise WorkerError("its output is no frame") from None

    async def stop(self) -> None:
        """End it: it owes nobody a reply."""
        # Not process.kill(): that reaps a dead process, which the event loop wants to do.
        with suppress(ProcessLookupError):
            if self._process.returncode is None:
                os.kill(self._process.pid, signal.SIGKILL)
        # Closes the pipes, too.
        await _finished(asyncio.create_task(self._process.communicate()))


async def _finished(task: asyncio.Task[Any]) -> None:
    """Wait for a task to the end, even where the wait is cancelled: nothing of a process may be left behind."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
