"""Writes ``schemas/request.schema.json`` from the vocabulary.

python -m mbridge_advisor.knowledge.generate
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..architecture import FIELD_NAMES
from ..errors import KnowledgeError
from . import build
from .locate import own_root
from .model import Term
from .schema import validate
from .yaml_reader import read

_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "str": "string", "list": "array"}
# A request may group the recompute settings: {recompute: {granularity: full}}.
_RECOMPUTE = ("granularity", "method", "num_layers", "modules")


def request_schema(terms: Mapping[str, Term]) -> dict[str, Any]:
    """The JSON Schema of a request. Field names are described; other spellings refer to them."""
    sections = {name: _section(terms, name) for name in ("cluster", "training", "grid", "environment")}
    training = sections["training"]["properties"]
    training["recompute"] = {
        "type": "object",
        "description": "The recompute settings as a group.",
        "properties": {key: _same("training", f"recompute_{key}") for key in _RECOMPUTE},
        "additionalProperties": False,
    }
    dimensions = {t.field: _term(t) for t in terms.values() if t.field in FIELD_NAMES}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://mbridge-advisor.org/schemas/0/request.schema.json",
        "title": "Request",
        "description": "What is asked: a model, a cluster, how it is trained, and what of the grid is given. Generated "
        "from knowledge/vocabulary.yaml by python -m mbridge_advisor.knowledge.generate.",
        "type": "object",
        "properties": {
            "bridge": {
                "type": "string",
                "description": "Release of Megatron Bridge, e.g. v0.6.0; the newest known where absent.",
                "pattern": r"^v?[0-9]+\.[0-9]+\.[0-9]+$",
            },
            "model": {
                "description": "A catalogue name, a Hugging Face config.json (path or content), or an architecture; "
                "single dimensions are enough for check.",
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {
                        "type": "object",
                        "properties": {"hf_config": {"type": ["string", "object"]}},
                        "required": ["hf_config"],
                        "additionalProperties": False,
                    },
                    {"$ref": "#/$defs/architecture", "minProperties": 1},
                ],
            },
            **sections,
        },
        "additionalProperties": False,
        "$defs": {
            "architecture": {
                "type": "object",
                "description": "Dimensions with Megatron Core's field names; beside a catalogue name, what differs.",
                "properties": {"name": {"type": "string", "minLength": 1, "description": "Name."}, **dimensions},
                "additionalProperties": False,
            }
        },
    }


def schema_text(terms: Mapping[str, Term]) -> str:
    """The text of the file."""
    return json.dumps(request_schema(terms), indent=2, ensure_ascii=False) + "\n"


def _section(terms: Mapping[str, Term], section: str) -> dict[str, Any]:
    mine = [term for term in terms.values() if term.section == section]
    properties: dict[str, Any] = {term.field: _term(term) for term in mine}
    for term in mine:
        for spelling in (term.name, *term.aliases):
            properties.setdefault(spelling, _same(section, term.field))
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _same(section: str, field: str) -> dict[str, Any]:
    return {"$ref": f"#/properties/{section}/properties/{field}"}


def _term(term: Term) -> dict[str, Any]:
    kind = _TYPES[term.type]
    types = [kind]
    if term.field in FIELD_NAMES and term.type == "list":
        types.append("integer")  # Megatron's "every n-th layer"
    if term.nullable:
        types.append("null")
    unit = "" if term.unit == "1" else f" Unit: {term.unit}."
    out: dict[str, Any] = {
        "type": types if len(types) > 1 else kind,
        "title": term.title.en,
        "description": f"{term.meaning.en}{unit}",
    }
    if term.min is not None:
        out["minimum"] = term.min
    if term.max is not None:
        out["maximum"] = term.max
    if term.type == "list":
        out["items"] = {"enum": list(term.values)} if term.values else {"type": ["string", "integer"]}
    elif term.values:
        out["enum"] = [*term.values, *([None] if term.nullable else [])]
    return out


def main() -> None:
    """Write the file next to the others; only the vocabulary has to be right."""
    document = read(own_root() / "knowledge" / "vocabulary.yaml", "knowledge/vocabulary.yaml")
    if problems := validate(document, "vocabulary"):
        raise SystemExit(str(KnowledgeError(problems)))
    terms = {name: build.term(name, data) for name, data in document.data["terms"].items()}
    path = own_root() / "schemas" / "request.schema.json"
    path.write_text(schema_text(terms), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
