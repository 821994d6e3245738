"""The HTTP service. Its routes and their description follow from ``schemas/operations.schema.json``."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ..advice.common import package_version
from ..knowledge.schema import schema_text
from . import schemas
from .guard import Metrics
from .operations import Reply
from .pool import Pool
from .problems import KINDS, MEDIA_TYPE, ServiceError
from .status import Endpoint, pages, response

GETS = ("explain", "rules", "models", "gpus", "revisions")
_PREFIX = "#/components/schemas"
_KINDS = {404: "not-found", 405: "wrong-method"}  # of what routing refuses


def http_app(pool: Pool, metrics: Metrics) -> FastAPI:
    """The application; it opens and closes the pool."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with pool:
            yield

    app = FastAPI(
        title="mbridge-advisor",
        version=package_version(),
        description="Cited, machine-checked advice on parallelising a training run in NVIDIA Megatron Bridge.",
        license_info={"name": "Apache-2.0"},
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    for name in schemas.operations():
        if name in GETS:
            path = "/v1/explain/{subject:path}" if name == "explain" else f"/v1/{name}"
            app.get(path, **_described(name))(_getter(name, pool))
        else:
            app.post(f"/v1/{name}", **_described(name))(_poster(name, pool))
    _add_own(app, pool, metrics)
    for error in (ServiceError, HTTPException, RequestValidationError, Exception):
        app.exception_handler(error)(_told)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            roots = ["operations", "problem", *schemas.ANSWERS.values()]
            document = generate()
            document["components"] = {
                "schemas": schemas.collected(roots, _PREFIX),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            }
            document["security"] = [{}, {"token": []}]  # as it was started
        return generate()

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _poster(name: str, pool: Pool) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        # Without the type a web page could post to us unasked: browsers ask before they send JSON.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ServiceError("wrong-type", "Send the body as `Content-Type: application/json`.")
        if request.query_params:
            raise ServiceError("bad-request", "Arguments belong into the body, not behind the path.")
        return response(await pool.answer(name, await request.body()))

    return endpoint


def _getter(name: str, pool: Pool) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        given = request.query_params.multi_items()
        arguments = dict(given)
        if len(arguments) < len(given):
            raise ServiceError("bad-request", "A parameter is given twice.")
        if name == "explain":
            arguments["name"] = request.path_params["subject"]
        return response(await pool.answer(name, json.dumps(arguments).encode()))

    return endpoint


def _add_own(app: FastAPI, pool: Pool, metrics: Metrics) -> None:
    """What isn't an operation."""

    @app.get("/v1/schemas", summary="Names of the schemas.", response_model=None)
    async def schema_names() -> list[str]:
        return list(schemas.names())

    @app.get(
        "/v1/schemas/{name}",
        summary="A JSON Schema of requests, answers or knowledge.",
        **_own("application/schema+json", 404, 422),
    )
    async def schema(name: str) -> Response:
        if name not in schemas.names():
            raise ServiceError("not-found", f"There is no such schema. There are: {', '.join(schemas.names())}.")
        return Response(schema_text(name), media_type="application/schema+json")

    for page in pages(pool, metrics):
        app.get(page.path, summary=page.summary, **_own(page.media_type, 503))(page.endpoint)


def _described(name: str) -> dict[str, Any]:
    """How an operation stands in the OpenAPI document."""
    shape = schemas.operations()[name]
    if name in schemas.ANSWERS:
        answer: dict[str, Any] = {"$ref": f"{_PREFIX}/{schemas.ANSWERS[name]}"}
    else:
        answer = {"type": "array", "items": {"type": "object"}}
    more: dict[str, Any]
    if name in GETS:
        parts = schemas.moved(shape["properties"], _PREFIX, "operations")
        more = {
            "parameters": [
                {
                    "name": "subject" if part == "name" else part,
                    "in": "path" if part == "name" else "query",
                    "required": part == "name",
                    "schema": schema,
                }
                for part, schema in parts.items()
            ]
        }
    else:
        body = {"$ref": f"{_PREFIX}/operations/$defs/{name}"}
        more = {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}
    statuses = (400, 401, 403, 404, 408, 413, 415, 422, 500, 503, 504)
    return {
        "summary": re.split(r"(?<=[.?])\s", shape["description"])[0],
        "description": shape["description"],
        "operation_id": name,
        "response_model": None,
        "openapi_extra": more,
        "responses": {
            200: {"description": "The answer.", "content": {"application/json": {"schema": answer}}},
            **_problems(*statuses),
        },
    }


def _own(media_type: str, *statuses: int) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "It.", "content": {media_type: {}}}
    return {"response_model": None, "response_class": Response, "responses": {200: good, **_problems(*statuses)}}


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    titles = dict(KINDS.values())
    schema = {"schema": {"$ref": f"{_PREFIX}/problem"}}
    return {each: {"description": f"{titles[each]}.", "content": {MEDIA_TYPE: schema}} for each in statuses}


async def _told(request: Request, error: Exception) -> Response:
    """An exception as a problem. Routing has its own, without a body."""
    if isinstance(error, ServiceError):
        return response(Reply.problem(error))
    headers: dict[str, str] = {}
    kind = "internal"
    if isinstance(error, HTTPException):
        kind, headers = _KINDS.get(error.status_code, "bad-request"), dict(error.headers or {})
    elif isinstance(error, RequestValidationError):
        kind = "bad-request"
    told = response(Reply.problem(ServiceError(kind, f"{request.method} {request.url.path}: {KINDS[kind][1]}.")))
    told.headers.update(headers)
    return told
