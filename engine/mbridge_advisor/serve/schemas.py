"""The schemas of ``schemas/`` in the form that OpenAPI and MCP want: one document whose references stay inside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from ..knowledge.locate import own_root
from ..knowledge.schema import schema_text

Schema = dict[str, Any]

ANSWERS: Mapping[str, str] = {
    "advise": "advice",
    "check": "report",
    "estimate": "estimate",
    "diagnose": "diagnosis",
    "explain": "explanation",
}
"""Operation -> the schema of its answer. The other operations answer with a list of explanations."""

_SUFFIX = ".schema.json"


@cache
def names() -> tuple[str, ...]:
    """All schemas, e.g. ``request``."""
    return tuple(sorted(path.name.removesuffix(_SUFFIX) for path in (own_root() / "schemas").glob(f"*{_SUFFIX}")))


def operations() -> Mapping[str, Schema]:
    """Operation -> the schema of its arguments. References are as in the file."""
    return {name: schema for name, schema in shapes().items() if schema.get("type") == "object"}


@cache
def shapes() -> Mapping[str, Schema]:
    """The definitions of ``operations.schema.json``."""
    definitions: Mapping[str, Schema] = json.loads(schema_text("operations"))["$defs"]
    return definitions


def collected(roots: Iterable[str], prefix: str) -> dict[str, Schema]:
    """Schemas and all that they refer to, by name, with references to ``prefix/name``.

    Args:
        roots: names of schemas.
        prefix: where the caller puts the result, e.g. ``#/components/schemas``.
    """
    out: dict[str, Schema] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in out:
            continue
        schema = {k: v for k, v in json.loads(schema_text(name)).items() if k not in ("$schema", "$id")}
        waiting += [file for file, _ in map(_split, _references(schema)) if file]
        out[name] = moved(schema, prefix, name)
    return out


def moved(schema: Any, prefix: str, home: str) -> Any:
    """A part of the schema ``home`` with its references turned into ``prefix/name``."""
    if isinstance(schema, list):
        return [moved(each, prefix, home) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: moved(value, prefix, home) for key, value in schema.items()}
    if isinstance(schema.get("$ref"), str):
        file, pointer = _split(schema["$ref"])
        out["$ref"] = f"{prefix}/{file or home}{pointer}"
    return out


def arguments(operation: str) -> dict[str, Schema]:
    """The schema of each argument, whole but for what is a request: that stays a reference."""
    parts = operations()[operation]["properties"]
    return {name: shapes().get(_local(part), part) for name, part in parts.items()}


def tool_input(operation: str) -> Schema:
    """The arguments of an operation as one small schema: Bridge's field names only, with type and choices.

    A language model reads it with every tool, so other spellings are left out (they are understood all the same), and
    what a setting means stands in the resource ``mbridge://schemas/request``.
    """
    parts = arguments(operation)
    requests = {name for name, part in parts.items() if "$ref" in part}
    out = {
        **operations()[operation],
        "properties": {
            name: {**part, "$ref": "#/$defs/request"} if name in requests else part for name, part in parts.items()
        },
    }
    return {**out, "$defs": {"request": _small_request()}} if requests else out


def tool_output(operation: str) -> Schema:
    """The answer of an operation as one schema. The echo of the request isn't described again."""
    name = ANSWERS[operation]
    definitions = collected([name], "#/$defs")
    root = definitions.pop(name)
    if "request" in definitions:
        definitions["request"] = {"type": "object", "description": "A request."}
    if any(ref.startswith(f"#/$defs/{name}/$defs/") for ref in _references([root, definitions])):
        definitions[name] = {"$defs": root.pop("$defs")}
    return {**root, "$defs": definitions} if definitions else root


def _small_request() -> Schema:
    schema = json.loads(schema_text("request"))
    properties: Schema = {}
    for name, part in schema["properties"].items():
        if part.get("type") == "object":
            fields = {k: _small(v) for k, v in part["properties"].items() if "$ref" not in v and k != "recompute"}
            properties[name] = {"type": "object", "properties": fields}
        else:
            properties[name] = part
    dimensions = {k: _small(v) for k, v in schema["$defs"]["architecture"]["properties"].items()}
    properties["model"] = {
        "description": "A catalogue name (see mbridge://models), {hf_config: {...}} with the content of config.json, "
        "or dimensions; beside a name, what differs.",
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"hf_config": {"type": "object"}, **dimensions}},
        ],
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _small(schema: Schema) -> Schema:
    return {key: schema[key] for key in ("type", "enum") if key in schema}


def _local(schema: Schema) -> str:
    """The definition that a schema refers to in its own file, or nothing."""
    file, pointer = _split(schema.get("$ref", ""))
    return "" if file else pointer.removeprefix("/$defs/")


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from _references(value)


def _split(reference: str) -> tuple[str, str]:
    """``(schema, pointer)``; no schema where the reference stays in its file."""
    file, _, pointer = reference.partition("#")
    return file.removesuffix(_SUFFIX), pointer
