"""Checks documents against the JSON Schemas under ``schemas/`` and says in plain words what is wrong, all at once.

jsonschema takes a tenth of a second to import, so it is imported when something is validated.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from ..errors import Problem
from .locate import own_root
from .yaml_reader import Document

Mistake = tuple[tuple[str | int, ...], str, str]
"""Where, what is wrong, what was expected."""

_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def schema_text(name: str) -> str:
    """The text of a schema, e.g. ``request``."""
    return (own_root() / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")


def mistakes(data: Any, schema: str) -> list[Mistake]:
    """All mistakes of a value's shape, in order of place."""
    found = {mistake for error in _validator(schema).iter_errors(data) for mistake in _explain(error)}
    return sorted(found, key=lambda each: ([(isinstance(s, int), str(s).zfill(6)) for s in each[0]], each[1]))


def validate(document: Document, schema: str) -> list[Problem]:
    """The same for a file, with lines."""
    return [document.problem(*mistake) for mistake in mistakes(document.data, schema)]


def near_miss(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for a near one, else the known ones where they are few."""
    pool = list(known)
    near = difflib.get_close_matches(word, pool, n=1, cutoff=0.5 if len(word) <= 3 else 0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"one of {', '.join(pool)}" if len(pool) <= 30 else ""


@cache
def _validator(name: str) -> Any:
    import jsonschema
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    schemas = [json.loads(path.read_text(encoding="utf-8")) for path in (own_root() / "schemas").glob("*.schema.json")]
    registry: Any = Registry().with_resources((s["$id"], DRAFT202012.create_resource(s)) for s in schemas)
    (schema,) = (s for s in schemas if s["$id"].endswith(f"/{name}.schema.json"))
    return jsonschema.Draft202012Validator(schema, registry=registry)


def _explain(error: Any) -> Iterator[Mistake]:
    path: tuple[str | int, ...] = tuple(error.absolute_path)
    kind, limit, value, schema = error.validator, error.validator_value, error.instance, error.schema
    about = schema.get("description", "")
    if "propertyNames" in error.schema_path:
        path = (*path, value)
    if kind == "additionalProperties":
        known = schema.get("properties", {})
        for key in value:
            if key not in known:
                comma = " " in key and value[key] is None  # {en: one, two} is {en: one, "two": null}
                hint = "quotes around a text that holds a comma" if comma else near_miss(key, known)
                yield (*path, key), f"the key {key!r} is unknown", hint
    elif kind == "required":
        for key in limit:
            if key not in value:
                yield path, f"lacks the key {key!r}", schema.get("properties", {}).get(key, {}).get("description", "")
    elif kind == "type":
        types = [limit] if isinstance(limit, str) else limit
        what = "null" if value is None else f"{_show(value)}, {_kind(value)}"
        yield path, f"is {what}", " or ".join(_TYPES[t] for t in types)
    elif kind == "enum":
        words = [str(each) for each in limit]
        yield path, f"{_show(value)} isn't allowed here", near_miss(str(value), words)
    elif kind == "pattern":
        yield path, f"{_show(value)} has the wrong form", about or f"text like {limit}"
    elif kind in ("minItems", "minLength", "minProperties"):
        yield path, "is empty" if not value else f"has {len(value)} entries", about or f"at least {limit}"
    elif kind in ("maxLength", "maxItems", "maxProperties"):
        yield (
            path,
            f"has {len(value)} {'characters' if kind == 'maxLength' else 'entries'}",
            about or f"at most {limit}",
        )
    elif kind in ("minimum", "exclusiveMinimum"):
        yield path, f"{_show(value)} is too small", f"{'at least' if kind == 'minimum' else 'more than'} {limit}"
    elif kind in ("maximum", "exclusiveMaximum"):
        yield path, f"{_show(value)} is too large", f"{'at most' if kind == 'maximum' else 'less than'} {limit}"
    elif kind == "uniqueItems":
        yield path, "has an entry twice", "each entry once"
    else:
        yield path, error.message, about


def _kind(value: Any) -> str:
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return names[type(value)]


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
