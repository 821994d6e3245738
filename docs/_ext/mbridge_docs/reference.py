"""Reference of the command line, the HTTP service and the Python functions, from their own definitions.

Help texts and docstrings are English in both languages: they are what ``--help`` and ``help()`` show.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import click
import mbridge_advisor
from mbridge_advisor.cli import cli
from mbridge_advisor.serve.guard import Metrics
from mbridge_advisor.serve.http import http_app
from mbridge_advisor.serve.pool import Pool

from .pages import Pages, esc

SUMMARIES: Mapping[str, str] = {
    "/v1/advise": "为给定集群上的模型找出最佳网格，并给出全部理由。",
    "/v1/check": "按所属版本的全部规则判断一个配置：是否合法，是否合理？",
    "/v1/estimate": "估计请求所给网格的峰值显存与单步时间。",
    "/v1/diagnose": "根据日志、现象、配置或三者的组合，找出运行失败、挂起或缓慢的原因。",
    "/v1/explain/{subject}": "解释一条规则、一个数量、设置项、模型、GPU 或版本。",
    "/v1/rules": "列出规则，内容完整，含中英两种语言。",
    "/v1/models": "列出目录中的模型。",
    "/v1/gpus": "列出 GPU 系统。",
    "/v1/revisions": "列出知识库涉及的 Megatron Bridge 版本。",
    "/v1/schemas": "列出各模式（schema）的名称。",
    "/v1/schemas/{name}": "请求、答复或知识的 JSON Schema。",
    "/health": "服务是否在运行。",
    "/ready": "服务能否答复。",
    "/metrics": "Prometheus 文本格式的指标。",
}
"""The OpenAPI summaries in Chinese, by path."""
WIDTH = 88
"""Columns of help texts."""


def _block(text: str, language: str = "text") -> str:
    lines = "".join(f"   {line}".rstrip() + "\n" for line in text.splitlines())
    return f".. code-block:: {language}\n\n{lines}\n"


def commands(pages: Pages, request: dict[str, Any]) -> str:
    """The help of every command."""
    return "\n".join(_command(pages, cli, "mbridge-advisor", None))


def _command(pages: Pages, command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=name, terminal_width=WIDTH)
    yield pages.section(f"``{context.command_path}``", _block(command.get_help(context)))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                yield from _command(pages, found, inner, context)


@cache
def openapi() -> Mapping[str, Any]:
    """The OpenAPI document of the service."""
    pool = Pool(1)  # starts nothing before it is entered
    return http_app(pool, Metrics(pool)).openapi()


def http(pages: Pages, request: dict[str, Any]) -> str:
    """The service's paths."""
    t = pages.t
    head = [t("path", "路径"), t("what it does", "说明"), t("takes", "参数"), t("statuses", "状态码")]
    rows = []
    for path, methods in openapi()["paths"].items():
        for method, operation in methods.items():
            named = [f"``{p['name']}``" for p in operation.get("parameters", ())]
            for content in operation.get("requestBody", {}).get("content", {}).values():
                named += [f"``{part}``" for part in _properties(content["schema"])]
            rows.append([
                f"``{method.upper()} {path}``",
                t(esc(operation["summary"]), SUMMARIES[path]),
                ", ".join(named) or "–",
                ", ".join(operation["responses"]),
            ])  # fmt: skip
    return pages.table(head, rows)


def _properties(schema: Mapping[str, Any]) -> list[str]:
    """Names of what a body holds; a reference is followed within the document."""
    if "$ref" in schema:
        found: Any = openapi()
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return _properties(found)
    return list(schema.get("properties", ()))


def python(pages: Pages, request: dict[str, Any]) -> str:
    """The package's public names with their own texts."""
    found = [(name, getattr(mbridge_advisor, name)) for name in mbridge_advisor.__all__]
    out = []
    for title, kept in (
        (pages.t("Functions", "函数"), [(n, x) for n, x in found if not isinstance(x, type)]),
        (pages.t("Results", "结果"), [(n, x) for n, x in found if is_dataclass(x)]),
        (pages.t("Errors", "异常"), [(n, x) for n, x in found if isinstance(x, type) and issubclass(x, Exception)]),
    ):
        body = "\n".join(pages.section(name, _block(_declared(name, entry), "python"), "~") for name, entry in kept)
        out.append(pages.section(title, body))
    return "\n".join(out)


def _declared(name: str, entry: Any) -> str:
    """A declaration and its docstring, as one would read it in the source."""
    text = [f"    {line}" for line in f'"""{inspect.getdoc(entry)}\n"""'.splitlines()]
    if not isinstance(entry, type):
        return "\n".join([*_signature(name, inspect.signature(entry)), *text])
    base = entry.__bases__[0].__name__
    head = f"class {name}:" if base == "object" else f"class {name}({base}):"
    declared = [f"    {f.name}: {f.type}" for f in fields(entry)] if is_dataclass(entry) else []
    return "\n".join([head, *text, *declared])


def _signature(name: str, signature: inspect.Signature) -> Iterator[str]:
    yield f"def {name}("
    star = False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not star:
            star = True
            yield "    *,"
        # The address of a function would differ from build to build.
        default = "" if p.default is p.empty else f" = {'...' if callable(p.default) else repr(p.default)}"
        yield f"    {p.name}: {p.annotation}{default},"
    yield f") -> {signature.return_annotation}:"
