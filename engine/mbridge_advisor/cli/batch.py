"""``batch``: one request a line in, one answer or error object a line out."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click

from ..errors import AdvisorError, RequestError
from .common import answers, cores, lang_option

MAX_LINE = 4 * 2**20  # bytes
AHEAD = 4  # lines that each worker may be ahead of the one that is written next

Submit = Callable[[bytes], Any]


class BatchError(AdvisorError):
    """The batch can't go on."""


@click.command()
@click.argument("command", type=click.Choice(["advise", "check", "estimate"]))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File for the answers; standard output if none.")
@click.option("--resume", is_flag=True, help="Go on where an interrupted run stopped writing --output.")
@click.option("--jobs", "-j", type=click.IntRange(1, 1024), help="Processes; as many as there are cores by default.")
@click.option("--top", type=click.IntRange(1, 50), default=1, help="advise: how many grids.")
@click.option("--dask", "dask_address", metavar="ADDRESS", help="Work on a Dask cluster (needs the extra `dask`).")
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Work on a Ray cluster (needs the extra `ray`).")
@lang_option
@answers
def batch(
    command: str,
    file: Path,
    output: Path | None,
    resume: bool,
    jobs: int | None,
    top: int,
    dask_address: str | None,
    ray_address: str | None,
    lang: str,
) -> int:
    """Answer every line of FILE, JSON lines with one request each (`-` is standard input), in order.

    Each line of the output has `line`, `digest` (of the input line), `exit_code`, and `answer` or `error`. A line that
    can't be answered doesn't stop the rest. Memory stays constant whatever the length of FILE.

    Exit codes: 0 every line was answered, 1 some were not, 2 the files can't be used.

    Example: mbridge-advisor batch check configs.jsonl --output verdicts.jsonl
    """
    jobs = jobs or cores()
    if dask_address and ray_address:
        raise RequestError("--ray", ray_address, "stands beside --dask", "Give one address.")
    if resume and output is None:
        raise RequestError("--resume", None, "needs --output", "Name the file that was being written.")
    if output is not None and not resume and output.exists() and output.stat().st_size:
        raise RequestError("--output", str(output), "exists", "Give --resume to go on, or another name.")
    try:
        with _opened(file) as source, _written(output) as target:
            done, failed = _resumed(source, output) if resume and output is not None else (0, 0)
            failed += _work(source, target, done, command, top, lang, jobs, dask_address, ray_address)
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise
        reason = f"can't be used ({problem.strerror or problem})"
        raise RequestError("file", problem.filename, reason, "Check the path.") from None
    return int(failed > 0)


def answer(raw: bytes, command: str, top: int, lang: str) -> str:
    """One line of output (without its number) for one line of input. Never raises."""
    head: dict[str, Any] = {"digest": digest(raw)}
    try:
        if len(raw) > MAX_LINE:
            raise RequestError("line", None, "is longer than 4 MiB", "Split it.")
        try:
            request = json.loads(raw, parse_constant=_refuse)
        except (ValueError, RecursionError) as problem:
            raise RequestError("line", None, f"is not JSON ({str(problem)[:100]})", "One request a line.") from None
        result = _run(request, command, top)
        body = {**head, "exit_code": result.exit_code, "answer": result.to_dict(lang)}
    except AdvisorError as problem:
        body = {**head, "exit_code": 2, "error": problem.to_dict()}
    except Exception as problem:  # a fault of ours must not end the batch
        told = {"error": "InternalError", "message": f"{type(problem).__name__}: {problem}"[:500]}
        body = {**head, "exit_code": 2, "error": told}
    return json.dumps(body, ensure_ascii=False)


def digest(raw: bytes) -> str:
    """Sixteen hex digits of the SHA-256 of an input line, without its end."""
    return hashlib.sha256(raw.rstrip(b"\r\n")).hexdigest()[:16]


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _run(request: Any, command: str, top: int) -> Any:
    if command == "check":
        from ..advice.check import check

        return check(request)
    if command == "estimate":
        from ..advice.estimate import estimate

        return estimate(request)
    from ..advice.advise import advise

    return advise(request, top=top)


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    with file.open("rb") as stream:
        yield stream


@contextmanager
def _written(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        yield sys.stdout.buffer
        return
    with output.open("ab") as stream:  # what is written goes to the end, also after a torn line was cut off
        yield stream


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    """Lines; of one that is too long only the beginning, which is refused later."""
    while line := source.readline(MAX_LINE + 1):
        while not line.endswith(b"\n") and (rest := source.readline(MAX_LINE)):
            if rest.endswith(b"\n"):
                break
        yield line


def _resumed(source: IO[bytes], output: Path) -> tuple[int, int]:
    """Lines that are done, and how many of them failed; the input is left at the next one, a torn line is cut off.

    Raises:
        BatchError: the output doesn't belong to the input.
    """
    if not output.exists():
        return 0, 0
    done = failed = end = 0
    inputs = _lines(source)
    with output.open("r+b") as stream:
        while line := stream.readline():
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                row = None
            if not isinstance(row, dict) or "digest" not in row:
                break
            raw = next(inputs, None)
            if raw is None or row["digest"] != digest(raw):
                raise BatchError(f"{output}: line {done + 1} doesn't answer line {done + 1} of the input.")
            done, failed, end = done + 1, failed + ("error" in row), stream.tell()
        stream.truncate(end)
    return done, failed


def _work(
    source: IO[bytes],
    target: IO[bytes],
    done: int,
    command: str,
    top: int,
    lang: str,
    jobs: int,
    dask_address: str | None,
    ray_address: str | None,
) -> int:
    """Answer what is left; the number of lines that failed."""
    failed = 0
    with _bar(source) as advance, _workers(jobs, dask_address, ray_address) as workers:

        def submit(raw: bytes) -> Any:
            return workers.submit(answer, raw, command, top, lang)

        for number, text in enumerate(_ordered(_lines(source), submit, workers, jobs * AHEAD), done + 1):
            failed += '"error": {' in text[:200]
            target.write(f'{{"line": {number}, {text[1:]}\n'.encode())
            target.flush()
            advance()
    return failed


def _ordered(lines: Iterator[bytes], submit: Submit, workers: Any, window: int) -> Iterator[str]:
    """Answers in the order of the lines, with at most ``window`` lines in flight."""
    pending: deque[tuple[bytes, Any]] = deque()

    def fill() -> None:
        for raw in islice(lines, window - len(pending)):
            pending.append((raw, submit(raw)))

    fill()
    while pending:
        raw, future = pending.popleft()
        try:
            yield future.result()
        except BrokenProcessPool:
            # A worker died. Which line did it is unknown: the lines in flight go one by one through new pools.
            waiting = [raw, *(r for r, _ in pending)]
            pending.clear()
            workers.renew()
            for each in waiting:
                try:
                    yield submit(each).result()
                except BrokenProcessPool:
                    workers.renew()
                    told = {"error": "WorkerDied", "message": "The process that answered this line died."}
                    yield json.dumps({"digest": digest(each), "exit_code": 2, "error": told})
        fill()


class _Pool:
    """Processes of this machine; ``renew`` replaces them after one died."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.pool = ProcessPoolExecutor(jobs)

    def submit(self, function: Callable[..., str], *args: Any) -> Future[str]:
        return self.pool.submit(function, *args)

    def renew(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.pool = ProcessPoolExecutor(self.jobs)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


class _Cluster:
    """Processes of a Dask or Ray cluster, which replace dead workers themselves."""

    def __init__(self, submit: Callable[..., Any], close: Callable[[], Any]) -> None:
        self.submit, self.close = submit, close

    def renew(self) -> None:
        """Nothing to do."""


@contextmanager
def _workers(jobs: int, dask_address: str | None, ray_address: str | None) -> Iterator[Any]:
    if dask_address:
        workers: Any = _dask(dask_address)
    elif ray_address:
        workers = _ray(ray_address)
    else:
        workers = _Pool(jobs)
    try:
        yield workers
    finally:
        workers.close()


def _dask(address: str) -> _Cluster:
    try:
        from distributed import Client
    except ImportError:
        raise BatchError("--dask needs Dask: pip install 'mbridge-advisor[dask]'.") from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as problem:
        raise BatchError(f"--dask: {address} can't be reached ({problem}).") from None
    executor: Executor = client.get_executor(pure=False)
    return _Cluster(executor.submit, client.close)


def _ray(address: str) -> _Cluster:
    try:
        import ray
    except ImportError:
        raise BatchError("--ray needs Ray: pip install 'mbridge-advisor[ray]'.") from None
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as problem:
        raise BatchError(f"--ray: {address} can't be reached ({problem}).") from None
    remote = ray.remote(answer)
    return _Cluster(lambda function, *args: remote.remote(*args).future(), ray.shutdown)


@contextmanager
def _bar(source: IO[bytes]) -> Iterator[Callable[[], None]]:
    """A bar on standard error that follows the place in the input."""
    if not sys.stderr.isatty() or not source.seekable():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    size = os.fstat(source.fileno()).st_size
    with Progress(
        TextColumn("{task.fields[lines]:,} lines"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("batch", total=size, lines=0)
        lines = 0

        def advance() -> None:
            nonlocal lines
            lines += 1
            bar.update(task, completed=source.tell(), lines=lines)

        yield advance
