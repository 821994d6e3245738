"""A real server process on a free loopback port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

LLAMA = {"model": "llama3-8b", "cluster": {"gpu": "H100", "gpus": 8}, "training": {"seq_length": 4096}}
GRID = {**LLAMA, "grid": {"tensor_model_parallel_size": 2}}


class Service:
    """A server process, a client for it, and what it writes (``log``)."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port
        self.base = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.base, timeout=120)
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def call(self, operation: str, **arguments: Any) -> httpx.Response:
        """POST one operation."""
        return self.client.post(f"/v1/{operation}", json=arguments)

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        return [pid for pid, parent in _parents() if parent == self.process.pid]

    def metric(self, name: str) -> float:
        """The value of a metric, with its labels as they are written."""
        (line,) = [line for line in self.client.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
        return float(line.rpartition(" ")[2])

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        self._reader.join(10)
        return code

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)


@contextmanager
def running(*options: str, command: str = "serve", **environment: str) -> Iterator[Service]:
    """A server that is ready; it is ended afterwards."""
    words = [sys.executable, "-m", "mbridge_advisor", *command.split(), "--port", "0", *options]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stderr is not None
    found = re.search(r"http://\S+:(\d+)", said := process.stderr.readline())
    assert found, said + process.stderr.read()
    service = Service(process, int(found[1]))
    try:
        while service.client.get("/ready").status_code != 200:
            assert process.poll() is None, service.log
            time.sleep(0.05)
        yield service
    finally:
        service.client.close()
        process.kill()
        process.wait()


def _parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
