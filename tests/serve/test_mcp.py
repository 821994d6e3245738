"""The MCP server with the SDK's own client: over standard input and output, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import jsonschema
import mbridge_advisor
import pytest
from mbridge_advisor.knowledge.locate import own_root
from mbridge_advisor.serve import schemas
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from serve.running import GRID, LLAMA, running

TOKEN = "0123456789-abcdef"
pytestmark = pytest.mark.xdist_group("mcp")
CALLS: dict[str, dict[str, Any]] = {
    "advise": {"request": LLAMA, "top": 1, "lang": "zh"},
    "check": {"request": GRID},
    "estimate": {"request": GRID},
    "diagnose": {"symptom": "CUDA out of memory", "request": GRID},
    "explain": {"name": "MB-WORLD-002"},
}


async def session(client: Client) -> None:
    """What an agent does."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == set(CALLS)
    for name, arguments in CALLS.items():
        tool = tools[name]
        jsonschema.Draft202012Validator(tool.input_schema).validate(arguments)
        result = await client.call_tool(name, arguments)
        assert not result.is_error, result.content
        jsonschema.Draft202012Validator(tool.output_schema).validate(result.structured_content)
        assert result.content[0].text.startswith("# ")
    report = (await client.call_tool("check", {**CALLS["check"], "config": None, "lang": None})).structured_content
    assert report == json.loads(json.dumps(mbridge_advisor.check(GRID).to_dict()))
    await faults(client)
    await resources(client)


async def faults(client: Client) -> None:
    for name, arguments, said in (
        ("check", {"request": {"grid": {"tp": "two"}}}, "whole number"),
        ("check", {}, "is missing"),
        ("estimate", {"request": {"model": "/etc/config.json"}}, "none is read here"),
        ("check", {"config": str(own_root() / "knowledge" / "vocabulary.yaml")}, "is in no release"),
        ("explain", {"name": "nothing of ours"}, "is not a rule"),
    ):
        result = await client.call_tool(name, arguments)
        assert result.is_error
        assert said in result.content[0].text
    with pytest.raises(MCPError):
        await client.call_tool("launch", {})


async def resources(client: Client) -> None:
    listed = [resource.uri for resource in (await client.list_resources()).resources]
    templates = [template.uri_template for template in (await client.list_resource_templates()).resource_templates]
    assert len(listed) + len(templates) == 11
    examples = ["MB-WORLD-002", "deepseek-v3", "H100", "v0.6.0", "tensor_model_parallel_size", "request"]
    named = [template.partition("{")[0] + name for template, name in zip(templates, examples, strict=True)]
    for uri in (*listed, *named):
        (content,) = (await client.read_resource(uri)).contents
        assert json.loads(content.text)
    for uri in (
        "mbridge://rules/MB-NONE-001",
        "mbridge://rules/H100",
        "mbridge://models/MB-WORLD-002",
        "mbridge://terms",
        "mbridge://schemas/..%2F..%2Fpyproject.toml",
        "mbridge://knowledge",
        "file:///etc/passwd",
    ):
        with pytest.raises(MCPError):
            await client.read_resource(uri)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 300))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_stdio(mode: str) -> None:
    async def test() -> None:
        words = ["-m", "mbridge_advisor", "mcp"]
        server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
        async with Client(stdio_client(server), mode=mode) as client:
            await session(client)

    run(test)


def test_streamable_http() -> None:
    with running("--workers", "1", command="mcp --http") as service:

        async def test() -> None:
            for mode in ("auto", "legacy"):
                async with Client(f"{service.base}/mcp", mode=mode) as client:
                    await session(client)

        run(test)
        assert service.metric('mbridge_advisor_requests_total{path="/mcp",status="200"}') > 20
        assert service.client.get("/mcp").status_code == 405  # nobody waits there for news
        foreign = {"Origin": "https://somewhere.example"}
        assert service.client.post("/mcp", json={}, headers=foreign).status_code == 403
        assert service.stop() == 0


def test_streamable_http_asks_for_the_token() -> None:
    with running("--workers", "1", "--host", "0.0.0.0", command="mcp --http", MBRIDGE_ADVISOR_TOKEN=TOKEN) as service:
        assert service.client.post("/mcp", json={}).status_code == 401

        async def test() -> None:
            async with (
                httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120) as http,
                Client(streamable_http_client(f"{service.base}/mcp", http_client=http)) as client,
            ):
                assert not (await client.call_tool("check", CALLS["check"])).is_error

        run(test)


@pytest.mark.parametrize("name", schemas.ANSWERS)
def test_tools_are_told_in_few_words_yet_wholly(name: str) -> None:
    told = schemas.tool_input(name)
    jsonschema.Draft202012Validator.check_schema(told)
    jsonschema.Draft202012Validator.check_schema(schemas.tool_output(name))
    assert len(json.dumps(told)) < 16_000
    if "request" in told["properties"]:
        whole = json.loads((own_root() / "schemas" / "request.schema.json").read_text(encoding="utf-8"))
        for section in ("cluster", "training", "grid", "environment"):
            full = {k for k, v in whole["properties"][section]["properties"].items() if "$ref" not in v}
            assert set(told["$defs"]["request"]["properties"][section]["properties"]) == full - {"recompute"}
