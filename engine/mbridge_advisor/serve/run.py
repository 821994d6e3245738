"""Running a service over HTTP: who may call it, from where, and how it stops."""

from __future__ import annotations

import ipaddress
import math
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from ..errors import RequestError
from ..knowledge import load
from .guard import App, Guard, Metrics
from .pool import TOKEN, Pool

MIN_TOKEN = 16  # characters
_GRACE = 5  # seconds beyond the longest answer


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    Attributes:
        host, port: where it listens; port 0 takes a free one.
        token: what callers must send; None = nothing, on loopback only.
        workers: processes that answer.
        timeout: seconds in which a body must have come, and then an answer.
        body: largest body, bytes.
        concurrency: requests in hand; more are turned away.
        recycle: calls after which a worker is replaced.
        memory: resident bytes above which it is replaced at once.
    """

    host: str
    port: int
    token: str | None
    workers: int
    timeout: float = 30.0
    body: int = 8 << 20
    concurrency: int = 64
    recycle: int = 10_000
    memory: int = 1 << 30

    def pool(self) -> Pool:
        """A pool of this size; not started."""
        return Pool(self.workers, timeout=self.timeout, recycle=self.recycle, memory=self.memory)


def read_token(file: Path | None) -> str | None:
    """The token: from a file that the user names, else from the environment, else none.

    Raises:
        RequestError: the file can't be read, or the token is too short or no plain text.
    """
    if file is not None:
        try:
            token, name = file.read_text(encoding="utf-8").strip(), str(file)
        except (OSError, UnicodeDecodeError) as problem:
            raise RequestError("--token-file", str(file), f"can't be read ({problem})", "Check the path.") from None
    elif TOKEN in os.environ:
        token, name = os.environ[TOKEN].strip(), TOKEN
    else:
        return None
    if len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        way = f"At least {MIN_TOKEN} ASCII characters without blanks, e.g. from `openssl rand -hex 32`."
        raise RequestError(name, None, "holds no usable token", way)
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name other than ``localhost`` may lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(build: Callable[[Pool, Metrics], App], settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; requests in hand are answered first.

    Args:
        build: makes the application from its pool and metrics.
        settings: how.

    Raises:
        RequestError: an address that others reach, without a token; one that can't be listened on.
        KnowledgeError: the knowledge base has mistakes.
    """
    local = is_loopback(settings.host)
    if not local and settings.token is None:
        way = f"Give a token by --token-file or {TOKEN}, or listen on 127.0.0.1."
        raise RequestError("--host", settings.host, "is reached by others, and there is no token", way)
    load()  # so that mistakes are told here
    listening = _listen(settings.host, settings.port)
    pool = settings.pool()
    metrics = Metrics(pool)
    # What a browser is made to send to loopback under another name isn't for us. A token says the same better.
    hosts = frozenset({"localhost", "127.0.0.1", "[::1]", settings.host}) if settings.token is None else None
    guard = Guard(
        build(pool, metrics),
        metrics,
        token=settings.token,
        hosts=hosts,
        body=settings.body,
        timeout=settings.timeout,
        concurrency=settings.concurrency,
    )
    config = uvicorn.Config(
        guard,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=math.ceil(2 * settings.timeout) + _GRACE,
    )
    # uvicorn raises the signal again when all is done; that is a good end.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(0))
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    print(f"Listening on http://{name}:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol told, asyncio turns off the waiting for more to send (Nagle), which costs 40 ms an answer.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as problem:
        reason = f"can't be listened on ({problem.strerror or problem})"
        raise RequestError("--port", f"{host}:{port}", reason, "Choose another.") from None
    return listening
