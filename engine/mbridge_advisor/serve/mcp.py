"""The operations as an MCP server: tools that answer, resources with what is known."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.routing import Route

from ..advice.common import package_version
from ..knowledge.schema import schema_text
from . import schemas
from .guard import App, Metrics
from .pool import Pool
from .status import pages

SCHEME = "mbridge://"
INSTRUCTIONS = """\
Cited advice on TP, PP, VPP, CP, EP, ETP, micro-batch size and recompute for a training run in NVIDIA Megatron Bridge.
advise: which grid? check: is this configuration legal? estimate: its memory and speed. diagnose: why did a run fail?
explain: one rule, setting, model, GPU or release. Pass configurations and logs as text; no path is ever read.
Figures are estimates. Tell the user the rule ids, their status (code_verified or doc_only) and what wasn't judged."""
_LISTS: Mapping[str, str] = {
    "rules": "Rules, with the releases at which they speak",
    "models": "Models of the catalogue",
    "gpus": "GPU systems",
    "revisions": "Megatron Bridge releases",
    "schemas": "JSON Schemas of requests and answers",
}
_ENTRIES: Mapping[str, str] = {
    "rules/{id}": "A rule, e.g. MB-WORLD-002",
    "models/{name}": "A model's dimensions, e.g. deepseek-v3",
    "gpus/{name}": "A GPU system, e.g. H100",
    "revisions/{tag}": "A release with its pins, e.g. v0.6.0",
    "terms/{name}": "A setting or quantity, e.g. tensor_model_parallel_size",
    "schemas/{name}": "A schema, e.g. request, which describes every setting",
}
_GROUPS = {"model": "models", "gpu": "gpus", "revision": "revisions", "term": "terms", "quantity": "terms"}
_HEAD = ("id", "name", "kind", "severity", "title")  # of an entry in a list
_JSON = "application/json"
Context = ServerRequestContext[Any]


def mcp_server(pool: Pool) -> Server[Any]:
    """The server; it opens and closes no pool."""

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools())

    async def call_tool(_: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in schemas.ANSWERS:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name}.")
        # Agents like to send null for what they leave out.
        arguments = {name: value for name, value in (params.arguments or {}).items() if value is not None}
        reply = await pool.answer(params.name, json.dumps(arguments).encode(), told=True)
        body = json.loads(reply.body)
        if reply.status != 200:
            return types.CallToolResult(content=[types.TextContent(text=body["detail"])], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=body["text"])], structured_content=body["data"])

    async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=SCHEME + name, name=name, description=f"{text}.", mime_type=_JSON)
                for name, text in _LISTS.items()
            ]
        )

    async def list_templates(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=SCHEME + path, name=path.partition("/")[0], description=f"{text}.", mime_type=_JSON
                )
                for path, text in _ENTRIES.items()
            ]
        )

    async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        text = await _resource(uri, pool)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)])

    return Server(
        "mbridge-advisor",
        version=package_version(),
        title="Megatron Bridge parallelism advisor",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _tools() -> list[types.Tool]:
    return [
        types.Tool(
            name=name,
            description=schemas.operations()[name]["description"],
            input_schema=schemas.tool_input(name),
            output_schema=schemas.tool_output(name),
            annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )
        for name in schemas.ANSWERS
    ]


async def _resource(uri: str, pool: Pool) -> str:
    """The text of a resource.

    Raises:
        MCPError: there is none of this name.
    """
    group, _, name = uri.removeprefix(SCHEME).partition("/")
    name = unquote(name)
    missing = MCPError(types.INVALID_PARAMS, f"There is no resource {uri}.")
    if not uri.startswith(SCHEME) or group not in {*_LISTS, "terms"} or (group == "terms" and not name):
        raise missing
    if group == "schemas":
        if name and name not in schemas.names():
            raise missing
        return schema_text(name) if name else json.dumps(list(schemas.names()))
    operation, arguments = ("explain", {"name": name}) if name else (group, {})
    reply = await pool.answer(operation, json.dumps(arguments).encode())
    data = json.loads(reply.body)
    if reply.status != 200:
        raise MCPError(types.INVALID_PARAMS, data["detail"])
    if name and _GROUPS.get(data["kind"], "rules") != group:
        raise missing
    if not name:
        data = [{key: entry[key] for key in _HEAD if key in entry} for entry in data]
    return json.dumps(data, ensure_ascii=False)


def stdio(pool: Pool) -> None:
    """Serve one client over standard input and output, until it goes."""

    async def run() -> None:
        server = mcp_server(pool)
        async with pool, stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(run())


def mcp_app(pool: Pool, metrics: Metrics) -> App:
    """The same over streamable HTTP at ``/mcp``; the application opens and closes the pool."""
    app = mcp_server(pool).streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=sys.maxsize,  # the guard sees to that, and to hosts
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        custom_starlette_routes=[Route(page.path, page.endpoint) for page in pages(pool, metrics)],
    )
    for route in app.routes:
        if isinstance(route, Route) and route.path == "/mcp":
            route.methods = {"POST"}  # we send nothing unasked, and who waits for it would only hold a place
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(each: Any) -> AsyncIterator[None]:
        async with pool, inner(each):
            yield

    app.router.lifespan_context = lifespan
    return app
