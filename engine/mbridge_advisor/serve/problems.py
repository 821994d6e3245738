"""Problem details after RFC 9457: what the services say where they can't answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RequestError

MEDIA_TYPE = "application/problem+json"

KINDS: Mapping[str, tuple[int, str]] = {
    "bad-json": (400, "The body is not JSON"),
    "no-token": (401, "A token is needed"),
    "wrong-host": (403, "The request is for another host"),
    "not-found": (404, "There is no such thing"),
    "wrong-method": (405, "The method is not allowed"),
    "slow-body": (408, "The body came too slowly"),
    "too-large": (413, "The body is too large"),
    "wrong-type": (415, "The body is not declared as JSON"),
    "bad-request": (422, "The request can't be understood"),
    "internal": (500, "The service has a fault"),
    "busy": (503, "The service is busy"),
    "timeout": (504, "The answer took too long"),
}
"""Kind -> HTTP status, title."""


class ServiceError(Exception):
    """A call that can't be answered.

    Attributes:
        kind: a key of :data:`KINDS`.
        detail: all of it in one text.
        more: ``field``, ``value``, ``reason`` and ``way_out``, where there are such.
    """

    def __init__(self, kind: str, detail: str, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.more = kind, detail, more or {}

    @classmethod
    def of(cls, error: RequestError, kind: str = "bad-request") -> ServiceError:
        """The problem that a request can't be understood."""
        more = {key: value for key, value in error.to_dict().items() if key not in ("error", "message")}
        return cls(kind, str(error), more)

    @property
    def status(self) -> int:
        """HTTP status."""
        return KINDS[self.kind][0]

    def to_dict(self) -> dict[str, Any]:
        """As ``schemas/problem.schema.json`` describes."""
        status, title = KINDS[self.kind]
        head = {"type": f"urn:mbridge-advisor:problem:{self.kind}", "title": title, "status": status}
        return {**head, "detail": self.detail, **self.more}
