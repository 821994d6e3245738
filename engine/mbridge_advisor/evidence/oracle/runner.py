"""Starts the oracle's worker, feeds it configurations, and survives its failures.

The worker executes code of the given sources. Nothing here starts it on its own account: a caller must have been told
to (``--execute``), and can show :meth:`Oracle.describe` first.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ...errors import RequestError

WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Verdict:
    """What the real code said. See the worker's docstring for the fields.

    ``verdict`` is ``unsupported`` where the oracle can't tell: a name without a field at this revision, an error in a
    stand-in, a crash of the worker, or no answer in time.
    """

    verdict: Literal["accept", "reject", "unsupported"]
    stage: str = ""
    message: str = ""
    where: str = ""
    explicit: bool = False
    trace: tuple[str, ...] = ()
    effective: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """A verdict from the worker's reply; raises KeyError, TypeError or ValueError if it isn't one."""
        if data["verdict"] not in ("accept", "reject", "unsupported"):
            raise ValueError(f"verdict: {data['verdict']!r}")
        return cls(
            verdict=data["verdict"],
            stage=str(data.get("stage", "")),
            message=str(data.get("message", "")),
            where=str(data.get("where", "")),
            explicit=bool(data.get("explicit", False)),
            trace=tuple(data.get("trace", ())),
            effective=dict(data.get("effective", {})),
        )

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "trace": list(self.trace), "effective": dict(self.effective)}


@dataclass(frozen=True)
class Sources:
    """The code to run.

    Attributes:
        paths: folders for the import path, Bridge first.
        versions: package -> version that the stand-ins report (``transformer-engine``).
        label: for people, e.g. ``v0.6.0``.
    """

    paths: tuple[Path, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    @classmethod
    def find(
        cls, bridge: Path, core: Path | None = None, versions: Mapping[str, str] | None = None, label: str = ""
    ) -> Sources:
        """Import roots in a checkout or an unpacked or installed wheel of Bridge and of Core.

        Args:
            bridge: folder with ``src/megatron/bridge`` or ``megatron/bridge``.
            core: folder with ``megatron/core``; None: beside Bridge, or in its ``3rdparty/Megatron-LM``.

        Raises:
            RequestError: where there is no such package.
        """
        roots = [root for root in (bridge / "src", bridge) if (root / "megatron" / "bridge").is_dir()]
        if not roots:
            raise RequestError(
                "bridge_source", str(bridge), "holds no Megatron Bridge", "Name a folder with src/megatron/bridge."
            )
        candidates = [core] if core else [roots[0], bridge / "3rdparty" / "Megatron-LM"]
        cores = [root for root in candidates if (root / "megatron" / "core" / "transformer").is_dir()]
        if not cores:
            raise RequestError(
                "core_source", str(core or bridge), "holds no Megatron Core", "Name a folder with megatron/core."
            )
        paths = tuple(dict.fromkeys((roots[0].resolve(), cores[0].resolve())))
        return cls(paths=paths, versions=dict(versions or {}), label=label)


class Oracle:
    """One worker process; a context manager.

    Args:
        sources: what to run.
        python: an interpreter that has torch, numpy, packaging, PyYAML, OmegaConf, hydra-core and einops.
        timeout: seconds for one configuration.
        start_timeout: seconds for the imports.
        nice: added to the worker's niceness.
        worker: another worker script (for tests).

    Attributes:
        info: what the worker said about itself when it last started (versions, limits, stages).
        restarts: how often it had to be started again.
    """

    def __init__(
        self,
        sources: Sources,
        python: str = "python3",
        *,
        timeout: float = 120.0,
        start_timeout: float = 300.0,
        nice: int = 0,
        worker: Path = WORKER,
    ) -> None:
        self.sources, self.python, self.nice, self.worker = sources, python, nice, worker
        self.timeout, self.start_timeout = timeout, start_timeout
        self.info: dict[str, Any] = {}
        self.restarts = 0
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0

    @property
    def command(self) -> list[str]:
        """The worker's command line."""
        command = [self.python, "-u", str(self.worker)]
        for path in self.sources.paths:
            command += ["--path", str(path)]
        if self.sources.versions:
            command += ["--versions", json.dumps(dict(self.sources.versions), sort_keys=True)]
        return command

    def describe(self) -> str:
        """What a run will execute, for people."""
        folders = ", ".join(map(str, self.sources.paths))
        return (
            f"Runs the validation code in {folders} on the CPU, in a process of its own:\n"
            f"  {shlex.join(self.command)}\n"
            "It imports these packages and nothing else of theirs; it writes only to a temporary folder."
        )

    def __enter__(self) -> Oracle:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker and remove its temporary folder."""
        self._stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def judge(self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Verdict:
        """The verdict on one configuration. A crash or a timeout gives ``unsupported``, and a fresh worker next time.

        Args:
            config: names or dotted paths -> values, as the worker takes them.
            defaults: set first, and left out where the revision has no such field.
        """
        if self._process is None:
            self._start()
            self.restarts += 1
        process = self._process
        assert process is not None
        assert process.stdin is not None
        self._count += 1
        request = {"id": self._count, "config": dict(config), "defaults": dict(defaults or {})}
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:
            return self._failed("the worker ended")
        try:
            line = self._lines.get(timeout=self.timeout)
        except queue.Empty:
            return self._failed(f"no answer within {self.timeout:g} s")
        if line is None:
            return self._failed("the worker ended")
        try:
            reply = json.loads(line)
            if reply["id"] != self._count:
                raise ValueError(f"answer to {reply['id']!r}")
            return Verdict.from_dict(reply)
        except (ValueError, KeyError, TypeError) as error:
            return self._failed(f"malformed answer: {error}")

    # --- process ---

    def _start(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mbridge-oracle-")
        folder = self._folder.name
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NVTE_", "NCCL_", "CUDA_"))}
        environment.update(
            PYTHONPYCACHEPREFIX=os.path.join(folder, "pycache"),  # never write into the given sources
            HOME=folder,
            CUDA_VISIBLE_DEVICES="",
            OMP_NUM_THREADS="1",
            HF_HUB_OFFLINE="1",
        )
        errors = open(os.path.join(folder, "stderr"), "w", encoding="utf-8")  # noqa: SIM115 (handed to the process)
        with errors:
            try:
                self._process = subprocess.Popen(
                    ["nice", "-n", str(self.nice), *self.command] if self.nice else self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    cwd=folder,
                    env=environment,
                )
            except OSError as error:
                raise RequestError(
                    "python", self.python, f"can't be started: {error}", "Name an interpreter that has torch."
                ) from None
        self._lines = queue.Queue()
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        try:
            line = self._lines.get(timeout=self.start_timeout)
            reply = json.loads(line) if line else {"ready": False, "message": "it ended at once"}
            ready, message = bool(reply["ready"]), str(reply.get("message", ""))
        except queue.Empty:
            ready, message = False, f"no sign of life within {self.start_timeout:g} s"
        except (ValueError, KeyError, TypeError):
            ready, message = False, "its first line is malformed"
        if not ready:
            self._stop()
            with open(os.path.join(folder, "stderr"), encoding="utf-8", errors="replace") as file:
                tail = " | ".join(line.strip() for line in file.read().splitlines()[-3:])
            raise RequestError(
                "sources",
                self.sources.label or str(self.sources.paths[0]),
                f"can't be run: {message or tail}",
                f"See whether {self.python} has torch, numpy, packaging, PyYAML, OmegaConf, hydra-core and einops.",
            )
        self.info = {k: v for k, v in reply.items() if k != "ready"}

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def _failed(self, reason: str) -> Verdict:
        process = self._process
        self._stop()
        code = process.returncode if process is not None else None
        return Verdict("unsupported", message=f"{reason} (exit status {code})")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
