"""What both services tell of themselves: ``/health``, ``/ready``, ``/metrics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .guard import Metrics, extra_headers
from .operations import Reply
from .pool import Pool
from .problems import MEDIA_TYPE, ServiceError

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """One GET path."""

    path: str
    summary: str
    media_type: str
    endpoint: Endpoint


def pages(pool: Pool, metrics: Metrics) -> tuple[Page, ...]:
    """The paths, each with what it is."""

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        if not pool.counts.ready:
            return response(Reply.problem(ServiceError("busy", "No worker is ready yet. Try again.")))
        return JSONResponse({"workers": pool.counts.ready})

    async def measured(request: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return (
        Page("/health", "Whether the service runs.", "application/json", health),
        Page("/ready", "Whether it can answer.", "application/json", ready),
        Page("/metrics", "Metrics in Prometheus' text form.", "text/plain", measured),
    )


def response(reply: Reply) -> Response:
    """A reply over HTTP."""
    media_type = "application/json" if reply.status == 200 else MEDIA_TYPE
    return Response(reply.body, reply.status, extra_headers(reply.status), media_type)
