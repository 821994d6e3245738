"""``serve`` and ``mcp``: the operations for other programs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ..errors import RequestError
from .common import answers, cores

_MIB = 1 << 20


def _service_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address; others than loopback need a token."
        ),
        click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="0: a free one."),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            help="File with the token that callers must send; else the variable MBRIDGE_ADVISOR_TOKEN.",
        ),
        click.option("--workers", type=click.IntRange(1, 256), help="Processes that answer; as many as cores."),
        click.option(
            "--timeout",
            type=click.FloatRange(0.1, 3600),
            default=30.0,
            show_default=True,
            help="Seconds for a request's body, and for its answer.",
        ),
        click.option("--max-body", type=click.IntRange(1, 1024), default=8, show_default=True, help="MiB of a body."),
        click.option(
            "--concurrency", type=click.IntRange(1, 10_000), default=64, show_default=True, help="Requests in hand."
        ),
        click.option(
            "--recycle", type=click.IntRange(1), default=10_000, show_default=True, help="Calls that a worker lives."
        ),
        click.option(
            "--worker-memory", type=click.IntRange(64), default=1024, show_default=True, help="MiB that it may take."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _settings(options: dict[str, Any]) -> Any:
    from ..serve.run import Settings, read_token

    return Settings(
        host=options["host"],
        port=options["port"],
        token=read_token(options["token_file"]),
        workers=options["workers"] or cores(),
        timeout=options["timeout"],
        body=options["max_body"] * _MIB,
        concurrency=options["concurrency"],
        recycle=options["recycle"],
        memory=options["worker_memory"] * _MIB,
    )


def _needs(extra: str, *modules: str) -> None:
    if any(find_spec(module) is None for module in modules):
        raise RequestError(extra, None, "isn't installed", f"pip install 'mbridge-advisor[{extra}]'")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("mcp").setLevel(logging.WARNING)  # it tells of each request


@click.command()
@_service_options
@answers
def serve(**options: Any) -> None:
    """Serve the operations over HTTP, described at /openapi.json; see docs/serve.md.

    Example: mbridge-advisor serve --port 8642
    """
    _needs("http", "fastapi", "uvicorn", "prometheus_client")
    from ..serve.http import http_app
    from ..serve.run import serve as run

    run(http_app, _settings(options))


@click.command()
@click.option("--http", is_flag=True, help="Streamable HTTP at /mcp, instead of standard input and output.")
@_service_options
@answers
def mcp(http: bool, **options: Any) -> None:
    """Serve the operations to agents as an MCP server; see docs/serve.md.

    Example: mbridge-advisor mcp
    """
    _needs("mcp", "mcp", "uvicorn", "prometheus_client")
    from ..serve.mcp import mcp_app, stdio
    from ..serve.run import serve as run

    if http:
        run(mcp_app, _settings(options))
    else:
        stdio(_settings({**options, "workers": options["workers"] or 1}).pool())
