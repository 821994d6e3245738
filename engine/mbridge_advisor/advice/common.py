"""What all answers share: the request, the knowledge base, the version."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..intake.request import Request, parse_request
from ..knowledge import Knowledge, load


def package_version() -> str:
    """Version of this package, or ``0+unknown`` from a bare checkout."""
    try:
        return version("mbridge-advisor")
    except PackageNotFoundError:
        return "0+unknown"


def as_request(request: Mapping[str, Any] | Request, knowledge: Knowledge | None) -> tuple[Request, Knowledge]:
    """A mapping or an already checked request, with the knowledge base."""
    base = knowledge or load()
    return (request if isinstance(request, Request) else parse_request(request, base)), base
