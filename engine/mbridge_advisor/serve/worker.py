"""A process that answers calls, one after the other: ``python -m mbridge_advisor.serve.worker``.

It reads calls from standard input and writes replies to standard output. Both are frames: a line of JSON that ends with
``size``, then so many bytes. The first reply, without a call, says that it is ready. It ends with its input; signals
that a terminal or a service manager sends to the whole group are left to the parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_STATM = Path("/proc/self/statm")


def main() -> None:
    """Answer until the input ends."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    calls, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the frames
    from .operations import answer

    answer("check", b'{"request": {"grid": {"tp": 1}}}')  # loads and compiles what all calls need
    write(replies, {"status": 200}, b"")
    while (call := _read(calls)) is not None:
        head, raw = call
        reply = answer(head["operation"], raw, told=head["told"])
        write(replies, {"status": reply.status, "memory": _memory()}, reply.body)


def write(stream: BinaryIO, head: dict[str, Any], body: bytes) -> None:
    """Write one frame."""
    stream.write(frame(head, body))
    stream.flush()


def frame(head: dict[str, Any], body: bytes) -> bytes:
    """One frame: a line of JSON, and the body."""
    return json.dumps({**head, "size": len(body)}).encode() + b"\n" + body


def _read(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    body = stream.read(head["size"])
    return (head, body) if len(body) == head["size"] else None


def _memory() -> int:
    """Resident memory of this process in bytes; its peak where the system doesn't tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the parent has gone
        main()
