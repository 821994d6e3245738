"""Batches: one answer a line in order, errors as lines, resumable, no matter how long the input is."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.cli.batch import MAX_LINE, _ordered, _Pool, answer, digest

GOOD = {"cluster": {"gpus": 8}, "grid": {"tp": 2, "pp": 2, "vpp": 2}}
BAD = {"cluster": {"gpus": 8}, "grid": {"tp": "two"}}


def run(*words: str, data: bytes | None = None) -> Any:
    return CliRunner().invoke(cli, ["batch", *words], input=data)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    rows = [GOOD if n % 3 else BAD for n in range(10)]
    path.write_text("".join(json.dumps({**row, "bridge": "v0.5.1"}) + "\n" for row in rows))
    return path


def test_answers_stand_in_order_and_errors_are_lines(requests: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run("check", str(requests), "-o", str(out), "-j", "2").exit_code == 1
    rows = lines_of(out)
    assert [row["line"] for row in rows] == list(range(1, 11))
    assert [row["exit_code"] for row in rows] == [2 if n % 3 == 0 else 0 for n in range(10)]
    assert rows[0]["error"]["field"] == "grid.tp"
    assert rows[1]["answer"]["bridge"] == "v0.5.1"
    assert [row["digest"] for row in rows] == [digest(line) for line in requests.read_bytes().splitlines()]


@pytest.mark.parametrize("command", ["advise", "estimate"])
def test_every_command(command: str) -> None:
    request = {"model": "llama3-8b", "cluster": {"gpu": "H100", "gpus": 8}, "training": {"seq_length": 4096}}
    row = json.loads(answer(json.dumps(request).encode(), command, 1, "zh"))
    assert row["exit_code"] in (0, 3)
    assert row["answer"]["request"]["model"] == "llama3-8b"


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 99999, b'{"grid": NaN}', b"x" * (MAX_LINE + 1)]
)
def test_a_line_that_is_no_request_is_an_error_object(raw: bytes) -> None:
    row = json.loads(answer(raw, "check", 1, "en"))
    assert row["exit_code"] == 2
    assert row["error"]["error"] == "RequestError"


def test_it_reads_standard_input_and_writes_standard_output() -> None:
    result = run("check", "-", "-j", "1", data=json.dumps(GOOD).encode() + b"\n" + json.dumps(GOOD).encode())
    assert result.exit_code == 0
    assert [json.loads(line)["line"] for line in result.stdout.splitlines()] == [1, 2]


@pytest.mark.parametrize("torn", [b"", b'{"line": 5, "dig', b"\n", b"[]\n"])
def test_an_interrupted_run_goes_on(requests: Path, tmp_path: Path, torn: bytes) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    run("check", str(requests), "-o", str(whole), "-j", "1")
    kept = b"".join(whole.read_bytes().splitlines(keepends=True)[:4])
    part.write_bytes(kept + torn)
    assert run("check", str(requests), "-o", str(part), "-j", "1").exit_code == 2  # not without --resume
    assert part.read_bytes() == kept + torn
    assert run("check", str(requests), "-o", str(part), "-j", "1", "--resume").exit_code == 1
    assert part.read_bytes() == whole.read_bytes()
    assert run("check", str(requests), "-o", str(part), "--resume", "-j", "1").exit_code == 1  # nothing is left to do
    assert part.read_bytes() == whole.read_bytes()


def test_it_doesn_t_go_on_with_another_input(requests: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run("check", str(requests), "-o", str(out), "-j", "1")
    requests.write_text(json.dumps(BAD) + "\n")
    result = run("check", str(requests), "-o", str(out), "--resume", "-j", "1")
    assert result.exit_code == 2
    assert "doesn't answer" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "missing.jsonl"), "missing.jsonl"),
        (("check", "-", "--resume"), "--output"),
        (("check", "-", "--ray", "a", "--dask", "b"), "Give one"),
        (("check", "-", "-o", "no/such/folder/out"), "no/such/folder"),
    ],
)
def test_files_that_can_t_be_used(words: tuple[str, ...], said: str) -> None:
    result = run(*words, data=b"")
    assert result.exit_code == 2
    assert said in result.stderr


class Eager:
    """A pool that counts how far the input is read ahead of what is written."""

    def __init__(self) -> None:
        self.read = 0
        self.ahead = 0
        self.written = 0

    def lines(self, count: int) -> Iterator[bytes]:
        for n in range(count):
            self.read += 1
            self.ahead = max(self.ahead, self.read - self.written)
            yield str(n).encode()

    def submit(self, raw: bytes) -> Future[str]:
        future: Future[str] = Future()
        future.set_result(raw.decode())
        return future


def test_memory_doesn_t_grow_with_the_input() -> None:
    pool = Eager()
    for n, text in enumerate(_ordered(pool.lines(5000), pool.submit, pool, 8)):
        assert text == str(n)
        pool.written += 1
    assert pool.read == 5000
    assert pool.ahead <= 9


def _deadly(raw: bytes) -> str:
    if raw == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    return raw.decode()


def test_a_worker_that_dies_costs_one_line() -> None:
    pool = _Pool(2)
    try:
        lines = [b"a", b"b", b"die", b"c", b"d", b"e"]
        got = list(_ordered(iter(lines), lambda raw: pool.submit(_deadly, raw), pool, 3))
    finally:
        pool.close()
    assert [*got[:2], *got[3:]] == ["a", "b", "c", "d", "e"]
    assert json.loads(got[2])["error"]["error"] == "WorkerDied"


def test_it_runs_on_a_dask_cluster(requests: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        out = tmp_path / "out.jsonl"
        assert run("check", str(requests), "-o", str(out), "--dask", cluster.scheduler_address).exit_code == 1
        assert len(lines_of(out)) == 10
