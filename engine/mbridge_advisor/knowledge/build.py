"""From plain data, already checked against the schemas, to the objects of :mod:`mbridge_advisor.knowledge.model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..architecture import Architecture
from .model import (
    ByRevision,
    Citation,
    Example,
    Fix,
    Gpu,
    Model,
    Quantity,
    Revision,
    Rule,
    Sign,
    Symptoms,
    Term,
    Text,
    Then,
    Value,
)

Data = Mapping[str, Any]


def term(name: str, data: Data) -> Term:
    bounds = data.get("bounds")
    return Term(
        name=name,
        field=data["field"],
        section=data["section"],
        type=data["type"],
        title=_text(data["title"]),
        meaning=_text(data["meaning"]),
        unit=data.get("unit", "1"),
        path=_by_revision(data["path"]) if "path" in data else None,
        min=data.get("min"),
        max=data.get("max"),
        default=_by_revision(data["default"]) if "default" in data else None,
        nullable=data.get("nullable", False),
        values=tuple(data.get("values", ())),
        aliases=tuple(data.get("aliases", ())),
        bounds=(bounds["name"], bounds["side"]) if bounds else None,
        suggests=data.get("suggests"),
        tentative=data.get("tentative", False),
        in_log=tuple(data.get("in_log", ())),
    )


def revision(data: Data) -> Revision:
    return Revision(
        tag=data["tag"],
        commit=data["commit"],
        core_commit=data["core_commit"],
        core_version=data["core_version"],
        released=data["released"],
        environment=dict(data["environment"]),
        citations=_citations(data),
        note=_optional_text(data, "note"),
    )


def gpu(data: Data) -> Gpu:
    return Gpu(
        **{
            **data,
            "memory_bandwidth": float(data["memory_bandwidth"]),
            "nvlink_bandwidth": float(data["nvlink_bandwidth"]),
            "network_bandwidth": float(data["network_bandwidth"]),
            "peak_flops": {precision: float(rate) for precision, rate in data["peak_flops"].items()},
            "aliases": tuple(data.get("aliases", ())),
            "citations": {of: _citation(source) for of, source in data["citations"].items()},
            "note": _optional_text(data, "note"),
        }
    )


def model(data: Data) -> Model:
    return Model(
        **{
            **data,
            "architecture": architecture(data["architecture"]),
            "active_parameters": data.get("active_parameters"),
            "aliases": tuple(data.get("aliases", ())),
            "recipe_keys": tuple(data.get("recipe_keys", ())),
            "counts": dict(data.get("counts", {})),
            "citations": _citations(data),
            "note": _optional_text(data, "note"),
        }
    )


def architecture(data: Data) -> Architecture:
    fields: dict[str, Any] = {name: _value(value) for name, value in data.items()}
    return Architecture(**fields)


def quantity(data: Data) -> Quantity:
    return Quantity(
        name=data["name"],
        formula=data["formula"],
        bridge=data["bridge"],
        status=data["status"],
        citations=_citations(data),
        variants=tuple((v["bridge"], v["formula"]) for v in data.get("variants", ())),
        examples=tuple((_facts(e["given"]), _value(e["is"]), e.get("bridge")) for e in data["examples"]),
        because=_optional_text(data, "because"),
    )


def rule(data: Data, file: str, line: int | None) -> Rule:
    examples = data.get("examples", {})
    return Rule(
        id=data["id"],
        title=_text(data["title"]),
        kind=data["kind"],
        severity=data["severity"],
        status=data["status"],
        bridge=data["bridge"],
        when=tuple(data["when"]),
        then=_then(data["then"]),
        because=_text(data["because"]),
        citations=_citations(data),
        since=data["since"],
        fix=_fix(data["fix"]) if "fix" in data else None,
        withdrawn=_optional_text(data, "withdrawn"),
        variants=tuple((v["bridge"], _change(v)) for v in data.get("variants", ())),
        related=tuple(data.get("related", ())),
        fires=tuple(map(_example, examples.get("fires", ()))),
        quiet=tuple(map(_example, examples.get("quiet", ()))),
        signs=tuple(Sign(s["text"], s["by"], s.get("bridge", ">=0")) for s in data.get("signs", ())),
        symptoms=Symptoms(**{lang: tuple(words) for lang, words in data.get("symptoms", {}).items()}),
        refines=data.get("refines"),
        causes=tuple(data.get("causes", ())),
        asks=tuple(data.get("asks", ())),
        confirm=_optional_text(data, "confirm"),
        aftermath=data.get("aftermath", False),
        file=file,
        line=line,
    )


def _change(data: Data) -> Data:
    make: Mapping[str, Any] = {"severity": str, "when": tuple, "then": _then, "fix": _fix, "because": _text}
    return {key: make[key](value) for key, value in data.items() if key != "bridge"}


def _then(data: Data) -> Then:
    return Then(
        violation=_optional_text(data, "violation"),
        advice=_optional_text(data, "advice"),
        diagnosis=_optional_text(data, "diagnosis"),
        derive=dict(data.get("derive", {})),
        prefer=tuple((p["that"], float(p["cost"])) for p in data.get("prefer", ())),
    )


def _fix(data: Data) -> Fix:
    return Fix(_optional_text(data, "text"), _facts(data.get("set", {})))


def _example(data: Data) -> Example:
    facts = _facts(data)
    bridge = facts.pop("bridge", None)
    return Example(facts, bridge if bridge is None else str(bridge))


def _text(data: Data) -> Text:
    return Text(data["en"], data["zh"])


def _optional_text(data: Data, key: str) -> Text | None:
    return _text(data[key]) if key in data else None


def _citation(data: Data) -> Citation:
    ((kind, where),) = data.items()
    return Citation(kind, dict(where))  # type: ignore[arg-type]


def _citations(data: Data) -> tuple[Citation, ...]:
    return tuple(map(_citation, data["citations"]))


def _value(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _facts(data: Data) -> dict[str, Value]:
    return {name: _value(value) for name, value in data.items()}


def _by_revision(default: Any) -> ByRevision:
    """A plain default, or a list of cases; a list of text or numbers is a plain default too."""
    if isinstance(default, list) and default and isinstance(default[0], Mapping):
        return ByRevision(tuple((case["bridge"], _value(case["value"])) for case in default))
    return ByRevision(((">=0", _value(default)),))
