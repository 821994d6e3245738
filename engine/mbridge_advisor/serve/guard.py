"""What stands before every HTTP request: host, token, concurrency, size and time of the body, metrics."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .operations import Reply
from .pool import Pool
from .problems import MEDIA_TYPE, ServiceError

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/ready"})  # answered without a token, and however busy we are
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Prometheus metrics of one service, in a registry of their own."""

    def __init__(self, pool: Pool) -> None:
        self.registry = CollectorRegistry()
        name = "mbridge_advisor"
        self.requests = Counter(f"{name}_requests", "Requests answered.", ("path", "status"), registry=self.registry)
        self.seconds = Histogram(
            f"{name}_request_seconds",
            "Time to the end of the answer.",
            ("path",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_hand = Gauge(f"{name}_requests_in_hand", "Requests being answered.", registry=self.registry)
        self.registry.register(_PoolMetrics(name, pool))


class _PoolMetrics(Collector):
    def __init__(self, name: str, pool: Pool) -> None:
        self.name, self.pool = name, pool

    def collect(self) -> Iterator[Metric]:
        counts = self.pool.counts
        yield GaugeMetricFamily(f"{self.name}_workers_ready", "Workers that work or wait.", value=counts.ready)
        memory = GaugeMetricFamily(f"{self.name}_worker_memory_bytes", "Resident memory.", labels=["worker"])
        for slot, size in sorted(counts.memory.items()):
            memory.add_metric([str(slot)], size)
        yield memory
        ended = CounterMetricFamily(f"{self.name}_workers_ended", "Workers that ended.", labels=["reason"])
        for reason in ("died", "recycled", "memory", "timeout"):
            ended.add_metric([reason], counts.ended[reason])
        yield ended
        yield CounterMetricFamily(f"{self.name}_calls_retried", "Calls whose worker died.", value=counts.retried)


class Guard:
    """ASGI middleware.

    Args:
        app: what it stands before.
        metrics: are fed.
        token: what ``Authorization: Bearer`` must carry; None = nothing.
        hosts: names that the headers ``Host`` and ``Origin`` may carry, against web pages that call services of the
            reader's machine; None = any.
        body: largest body in bytes.
        timeout: seconds in which a body must have come.
        concurrency: requests in hand; more are turned away.
    """

    def __init__(
        self,
        app: App,
        metrics: Metrics,
        *,
        token: str | None,
        hosts: frozenset[str] | None,
        body: int,
        timeout: float,
        concurrency: int,
    ) -> None:
        self.app, self.metrics = app, metrics
        self._token, self._hosts = token, hosts
        self._body, self._timeout, self._concurrency = body, timeout, concurrency
        self._in_hand = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        begun, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._in_hand += 1
        self.metrics.in_hand.set(self._in_hand)
        try:
            self._admit(scope)
            await self.app(scope, await self._received(scope, receive), sending)
        except ServiceError as problem:
            await respond(problem, sending)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not status:
                await respond(ServiceError("internal", "The service has a fault; its log tells more."), sending)
        finally:
            self._in_hand -= 1
            self.metrics.in_hand.set(self._in_hand)
            path = getattr(scope.get("route"), "path", "none")
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - begun)

    def _admit(self, scope: MutableMapping[str, Any]) -> None:
        headers = dict(scope["headers"])
        if self._hosts is not None:
            _, _, origin = headers.get(b"origin", b"").rpartition(b"//")
            for header, name in (("Host", headers.get(b"host", b"")), ("Origin", origin or b"localhost")):
                if _host(name) not in self._hosts:
                    raise ServiceError("wrong-host", f"The header {header} names none of this service's names.")
        if scope["path"] in OPEN:
            return
        if self._token is not None:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if not hmac.compare_digest(given.strip(), self._token.encode()) or kind.lower() != b"bearer":
                raise ServiceError(
                    "no-token", "Send the header `Authorization: Bearer TOKEN` with the service's token."
                )
        if self._in_hand > self._concurrency:
            raise ServiceError("busy", f"{self._concurrency} requests are in hand. Try again.")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._body:
            raise self._too_large()

    async def _received(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        """The whole body as one message; what comes after it as it comes."""
        if scope["method"] != "POST":
            return receive
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        break  # the caller has gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._body:
                        raise self._too_large()
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise ServiceError("slow-body", f"The body didn't come within {self._timeout:g} seconds.") from None
        whole: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

        async def replay() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            message, whole = whole, None
            return message

        return replay

    def _too_large(self) -> ServiceError:
        return ServiceError("too-large", f"The body is larger than {self._body:,} bytes.")


async def respond(problem: ServiceError, send: Send) -> None:
    """Send a problem."""
    body = Reply.problem(problem).body
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in extra_headers(problem.status).items()]
    if problem.status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the body isn't read
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def extra_headers(status: int) -> dict[str, str]:
    """Headers that belong to a status."""
    if status == 503:
        return {"Retry-After": "1"}
    return {"WWW-Authenticate": "Bearer"} if status == 401 else {}


def _host(header: bytes) -> str:
    """The name in a Host header, without its port."""
    name = header.decode("latin-1").lower()
    return name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]
