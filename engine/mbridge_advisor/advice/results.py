"""Answers as typed, immutable objects. ``to_dict(lang)`` gives the JSON form that the output schemas describe."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from ..knowledge.model import Citation, Text, Value

Verdict = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Statement:
    """One line of an answer: what a rule says here, and what it rests on.

    Attributes:
        rule: rule id.
        kind, severity, status: as the rule stands at the asked revision.
        message: the rule's text with its numbers filled in.
        because: why the rule holds.
        facts: name -> value of all that the rule read.
        fix: how to mend it, in words; None where there is no advice.
        set: the same as data, field name -> value.
        citations: sources of the rule.
    """

    rule: str
    kind: str
    severity: str
    status: str
    message: Text
    because: Text
    facts: Mapping[str, Value]
    citations: tuple[Citation, ...]
    fix: Text | None = None
    set: Mapping[str, Value] = field(default_factory=dict)

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        out: dict[str, Any] = {
            "rule": self.rule,
            "kind": self.kind,
            "severity": self.severity,
            "status": self.status,
            "message": self.message[lang],
            "because": self.because[lang],
            "facts": _plain(self.facts),
            "citations": [c.to_dict() for c in self.citations],
        }
        if self.fix is not None or self.set:
            out["fix"] = {"text": self.fix[lang] if self.fix else None, "set": _plain(self.set)}
        return out


@dataclass(frozen=True)
class NotJudged:
    """A rule that could not be judged, and the names that it lacked."""

    rule: str
    missing: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "missing": list(self.missing)}


@dataclass(frozen=True)
class Derived:
    """A concluded value: what concluded it, from what."""

    name: str
    field: str
    value: Value
    source: str
    inputs: Mapping[str, Value]

    def to_dict(self) -> dict[str, Any]:
        return {"field": self.field, "value": _value(self.value), "from": self.source, "inputs": _plain(self.inputs)}


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest GPU.

    Attributes:
        components: name -> bytes, at the moment of the peak.
        total: sum of the components.
        capacity: device memory, or None where the GPU is unknown.
        decision: ``fits`` even with the margin that measured errors call for, ``tight`` without it, or
            ``does_not_fit``; None where the GPU is unknown.
        stage: pipeline rank of the fullest GPU.
        moment: when the peak is reached.
    """

    components: Mapping[str, int]
    total: int
    capacity: int | None
    stage: int
    moment: str
    decision: Literal["fits", "tight", "does_not_fit"] | None

    def to_dict(self) -> dict[str, Any]:
        return {
            **dict(self.components),
            "total": self.total,
            "capacity": self.capacity,
            "decision": self.decision,
            "stage": self.stage,
            "moment": self.moment,
        }


@dataclass(frozen=True)
class Throughput:
    """Speed, with the range that holds for 80 % of the measured rows.

    Attributes:
        tokens_per_second_per_gpu, low, high: tokens/s/GPU.
        step_seconds: of one optimizer step.
        model_tflops_per_gpu: model FLOPs, not hardware FLOPs.
        components: name -> seconds of a step.
    """

    tokens_per_second_per_gpu: float
    low: float
    high: float
    step_seconds: float
    model_tflops_per_gpu: float
    components: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "tokens_per_second_per_gpu": round(self.tokens_per_second_per_gpu, 1),
            "low": round(self.low, 1),
            "high": round(self.high, 1),
            "step_seconds": round(self.step_seconds, 4),
            "model_tflops_per_gpu": round(self.model_tflops_per_gpu, 1),
            "components": {k: round(v, 6) for k, v in self.components.items()},
        }


@dataclass(frozen=True)
class Grid:
    """One recommended grid.

    Attributes:
        fields: Bridge field name -> value of everything that the search decided.
        sizes: field name -> derived size (data_parallel_size, expert_data_parallel_size, min_gpus, num_microbatches).
        overrides: the list that ``run_recipe.py`` takes.
        reasons, cautions: what rules say for it and against it.
    """

    fields: Mapping[str, Value]
    sizes: Mapping[str, Value]
    memory: Memory
    throughput: Throughput | None
    reasons: tuple[Statement, ...]
    cautions: tuple[Statement, ...]
    overrides: tuple[str, ...]

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {
            **_plain(self.fields),
            **_plain(self.sizes),
            "memory": self.memory.to_dict(),
            "throughput": self.throughput.to_dict() if self.throughput else None,
            "reasons": [s.to_dict(lang) for s in self.reasons],
            "cautions": [s.to_dict(lang) for s in self.cautions],
            "overrides": list(self.overrides),
        }


@dataclass(frozen=True)
class NearestMiss:
    """Where nothing fits: the candidate that comes closest, and what would make it fit."""

    fields: Mapping[str, Value]
    memory: Memory | None
    reason: Text
    remedies: tuple[Text, ...]

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {
            "grid": _plain(self.fields),
            "memory": self.memory.to_dict() if self.memory else None,
            "reason": self.reason[lang],
            "remedies": [r[lang] for r in self.remedies],
        }


@dataclass(frozen=True)
class Answer:
    """What all answers share."""

    request: Mapping[str, Any]
    bridge: str
    knowledge: str
    package: str
    notes: tuple[Text, ...]

    def head(self, lang: str) -> dict[str, Any]:
        return {
            "request": deepcopy(dict(self.request)),
            "bridge": self.bridge,
            "versions": {"mbridge_advisor": self.package, "knowledge": self.knowledge},
            "notes": [n[lang] for n in self.notes],
        }


@dataclass(frozen=True)
class Advice(Answer):
    """Ranked grids for a request.

    Attributes:
        grids: best first; empty where nothing fits.
        statements: what rules say about the request itself (the guide's word, right-sizing ...).
        rejected: rule id (or ``memory``) -> candidates that it removed.
        candidates: how many were looked at.
        nearest_recipes: what the vendor ships for the model, nearest first.
    """

    grids: tuple[Grid, ...]
    statements: tuple[Statement, ...]
    rejected: Mapping[str, int]
    candidates: int
    nearest_recipes: tuple[Mapping[str, Any], ...]
    not_judged: tuple[NotJudged, ...]
    derived: tuple[Derived, ...]
    miss: NearestMiss | None = None

    @property
    def exit_code(self) -> int:
        """0, or 3 where no grid fits."""
        return 0 if self.grids else 3

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        every = [*self.statements, *(s for g in self.grids for s in (*g.reasons, *g.cautions))]
        return {
            **self.head(lang),
            "grids": [g.to_dict(lang) for g in self.grids],
            "statements": [s.to_dict(lang) for s in self.statements],
            "rejected": dict(self.rejected),
            "candidates": self.candidates,
            "nearest_recipes": [deepcopy(dict(r)) for r in self.nearest_recipes],  # the rows are everybody's
            "nearest_miss": self.miss.to_dict(lang) if self.miss else None,
            "not_judged": [n.to_dict() for n in self.not_judged],
            "derived": {d.name: d.to_dict() for d in self.derived},
            "citations": citation_table(every),
        }


@dataclass(frozen=True)
class Report(Answer):
    """The verdict on one configuration."""

    verdict: Verdict
    findings: tuple[Statement, ...]
    not_judged: tuple[NotJudged, ...]
    quantities: tuple[Derived, ...]

    @property
    def exit_code(self) -> int:
        """1 where an error was found, else 0."""
        return int(self.verdict == "error")

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {
            **self.head(lang),
            "verdict": self.verdict,
            "findings": [f.to_dict(lang) for f in self.findings],
            "not_judged": [n.to_dict() for n in self.not_judged],
            "quantities": {d.field: _value(d.value) for d in self.quantities},
            "derived": {d.name: d.to_dict() for d in self.quantities},
        }


@dataclass(frozen=True)
class Estimate(Answer):
    """Memory and time of one grid, and what rules say of it."""

    grid: Grid
    verdict: Verdict
    findings: tuple[Statement, ...]
    parameters: Mapping[str, int]

    @property
    def exit_code(self) -> int:
        """1 where the grid breaks a rule, 3 where it doesn't fit, else 0."""
        if self.verdict == "error":
            return 1
        return 3 if self.grid.memory.decision == "does_not_fit" else 0

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {
            **self.head(lang),
            "grid": self.grid.to_dict(lang),
            "verdict": self.verdict,
            "findings": [f.to_dict(lang) for f in self.findings],
            "parameters": dict(self.parameters),
        }


def citation_table(statements: list[Statement]) -> list[dict[str, Any]]:
    """Every source once, with the rules that rest on it."""
    table: dict[str, tuple[Citation, list[str]]] = {}
    for s in statements:
        for c in s.citations:
            _, rules = table.setdefault(str(c), (c, []))
            if s.rule not in rules:
                rules.append(s.rule)
    return [{**c.to_dict(), "rules": rules} for c, rules in table.values()]


def _value(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plain(mapping: Mapping[str, Value]) -> dict[str, Any]:
    return {k: _value(v) for k, v in mapping.items()}
