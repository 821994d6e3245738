"""The schemas are sound, refuse what they don't know, and follow the code and the vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_type_hints

import jsonschema
import pytest
from mbridge_advisor.architecture import FIELD_NAMES, Architecture
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.generate import schema_text as generated
from mbridge_advisor.knowledge.locate import own_root
from mbridge_advisor.knowledge.schema import mistakes, schema_text
from mbridge_advisor.knowledge.sources import EAGER, LAZY

SCHEMAS = sorted(path.name.removesuffix(".schema.json") for path in (own_root() / "schemas").glob("*.json"))
OPEN = {"memory", "grid"}  # components and grid fields are named by the estimate and the search


def objects(schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subschema that lists properties."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "type" in schema:
            yield name, schema
        for key, value in schema.items():
            yield from objects(value, key)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value, name)


def test_there_is_one_for_each_kind_of_file_and_interface() -> None:
    assert {
        *EAGER,
        *LAZY,
        "compat_matrix",
        "common",
        "answer",
        "request",
        "advice",
        "report",
        "audit",
        "diagnosis",
        "estimate",
        "plan",
        "explanation",
        "operations",
        "problem",
        "skill_card",
        "skill_evals",
    } == set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_sound_and_closed(name: str) -> None:
    schema = json.loads(schema_text(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"https://mbridge-advisor.org/schemas/0/{name}.schema.json"
    assert schema["description"]
    assert [
        where for where, s in objects(schema) if s.get("additionalProperties") is not False and where not in OPEN
    ] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_references_lead_somewhere(name: str) -> None:
    mistakes({}, name)  # raises where a reference can't be resolved on the way
    known = {s: json.loads(schema_text(s)) for s in SCHEMAS}
    for reference in references(known[name]):
        file, _, pointer = reference.partition("#")
        target: Any = known[file.removesuffix(".schema.json") or name]
        for step in pointer.strip("/").split("/") if pointer else ():
            target = target[step]


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def test_the_request_schema_is_up_to_date() -> None:
    """If not: python -m mbridge_advisor.knowledge.generate."""
    assert schema_text("request") == generated(load().terms)


def test_the_model_schema_has_the_fields_of_architecture() -> None:
    fields = json.loads(schema_text("model"))["properties"]["architecture"]["properties"]
    assert set(fields) == FIELD_NAMES
    kinds = {bool: "boolean", int: "integer", str: "string", type(None): "null"}
    for name, hint in get_type_hints(Architecture).items():
        expected = {kinds.get(part, "array") for part in getattr(hint, "__args__", (hint,))}
        found = fields[name]["type"]
        assert {found} == expected if isinstance(found, str) else set(found) == expected, name


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"model": "deepseek-v3", "cluster": {"gpu": "H100", "gpus": 256}, "training": {"seq_length": 4096}},
        {"bridge": "v0.6.0", "grid": {"tp": 2, "expert_model_parallel_size": 8, "etp": None, "sp": True}},
        {"model": {"hf_config": "config.json"}, "training": {"recompute": {"granularity": "full", "modules": None}}},
        {
            "model": {
                "num_layers": 2,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "vocab_size": 10,
                "moe_layer_freq": 2,
            }
        },
        {"model": {"name": "llama3-8b", "num_layers": 2}},
        {"environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}},
    ],
)
def test_good_requests(request_: dict[str, Any]) -> None:
    assert mistakes(request_, "request") == []


@pytest.mark.parametrize(
    ("request_", "path", "expected"),
    [
        ({"grid": {"tp": "2"}}, ("grid", "tp"), "a whole number"),
        (
            {"grid": {"tensor_model_paralel_size": 2}},
            ("grid", "tensor_model_paralel_size"),
            "tensor_model_parallel_size",
        ),
        ({"cluster": {"gpus": 10**9}}, ("cluster", "gpus"), "at most 1000000"),
        ({"training": {"task": "pretraining"}}, ("training", "task"), "'pretrain'"),
        ({"bridge": "main"}, ("bridge",), "v0.6.0"),
        ({"clutser": {}}, ("clutser",), "'cluster'"),
        ({"model": {}}, ("model",), "architecture"),
    ],
)
def test_bad_requests(request_: dict[str, Any], path: tuple[str, ...], expected: str) -> None:
    ((where, _, hint),) = mistakes(request_, "request")
    assert where == path
    assert expected in hint
