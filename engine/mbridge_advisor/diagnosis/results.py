"""What ``diagnose`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..advice.results import Answer, Grid, NotJudged, Statement
from ..knowledge.model import Citation, Text, Value
from .scan import Evidence

Certainty = Literal["confirmed", "likely", "possible"]
Verdict = Literal["found", "suspected", "unclear", "clean"]


@dataclass(frozen=True)
class Cause:
    """One explanation of what happened.

    Attributes:
        rule, kind, severity, status: of the rule that gives it, as it stands at the asked release.
        certainty: ``confirmed`` (a message that only this produces, or numbers that prove it), ``likely`` or
            ``possible``.
        message: what happened, with numbers filled in.
        because: why.
        evidence: where it was seen; empty where a configuration alone shows it.
        facts: name -> value of all that the rule read.
        fix: how to mend it, in words; ``set`` is the same as data, field name -> value.
        citations: sources of the rule.
        behind: rules that hold here and may be the reason.
        open: rules that may be the reason too, but lack a value.
        asks: fields whose values would settle it.
        confirm: what else would confirm it.
        releases: tags in which the message is worded as it was seen; empty where that tells nothing.
        aftermath: whether it mostly follows from another rank's failure.
        general: whether another cause says the same more precisely.
    """

    rule: str
    kind: str
    severity: str
    status: str
    certainty: Certainty
    message: Text
    because: Text
    evidence: tuple[Evidence, ...]
    facts: Mapping[str, Value]
    citations: tuple[Citation, ...]
    fix: Text | None
    set: Mapping[str, Value]
    behind: tuple[Statement, ...]
    open: tuple[NotJudged, ...]
    asks: tuple[str, ...]
    confirm: Text | None
    releases: tuple[str, ...]
    aftermath: bool
    general: bool = False

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {
            "rule": self.rule,
            "kind": self.kind,
            "severity": self.severity,
            "status": self.status,
            "certainty": self.certainty,
            "message": self.message[lang],
            "because": self.because[lang],
            "evidence": [_evidence(e) for e in self.evidence],
            "facts": _plain(self.facts),
            "fix": {"text": self.fix[lang] if self.fix else None, "set": _plain(self.set)},
            "citations": [c.to_dict() for c in self.citations],
            "behind": [s.to_dict(lang) for s in self.behind],
            "open": [n.to_dict() for n in self.open],
            "asks": list(self.asks),
            "confirm": self.confirm[lang] if self.confirm else None,
            "releases": list(self.releases),
            "aftermath": self.aftermath,
            "general": self.general,
        }


@dataclass(frozen=True)
class Ask:
    """Something to be told: the request's field, and what it is."""

    field: str
    title: Text

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {"field": self.field, "title": self.title[lang]}


@dataclass(frozen=True)
class Observed:
    """A value that was read from the log or the words; ``line`` is 0 for the words, ``shown`` is it for people."""

    field: str
    value: Value
    line: int
    shown: Text

    def to_dict(self) -> dict[str, Any]:
        return {"field": self.field, "value": _json(self.value), "line": self.line}


@dataclass(frozen=True)
class Comparison:
    """Two configurations, by the estimate.

    Attributes:
        changes: field name -> (before, after).
        before, after: the estimated grids; None where one can't be estimated.
        alone: field name -> estimated tokens/s/GPU with this change alone, over those before. Settings of recompute
            count as one change.
    """

    changes: Mapping[str, tuple[Value, Value]]
    before: Grid | None = None
    after: Grid | None = None
    alone: Mapping[str, float] = field(default_factory=dict)

    @property
    def speed_ratio(self) -> float | None:
        """Estimated tokens/s/GPU after, over those before."""
        if not (self.before and self.after and self.before.throughput and self.after.throughput):
            return None
        return self.after.throughput.tokens_per_second_per_gpu / self.before.throughput.tokens_per_second_per_gpu

    def to_dict(self) -> dict[str, Any]:
        return {
            "changes": {name: {"before": _json(b), "after": _json(a)} for name, (b, a) in self.changes.items()},
            "before": _figures(self.before),
            "after": _figures(self.after),
            "alone": {name: round(ratio, 4) for name, ratio in self.alone.items()},
            "speed_ratio": None if self.speed_ratio is None else round(self.speed_ratio, 4),
        }


@dataclass(frozen=True)
class Criterion:
    """A success criterion of a smoke run.

    Attributes:
        text: as the plan words it.
        holds: whether the log shows that it holds; None where the log doesn't tell.
        shown: what the log shows.
    """

    text: Text
    holds: bool | None
    shown: Text

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {"text": self.text[lang], "holds": self.holds, "shown": self.shown[lang]}


@dataclass(frozen=True)
class Diagnosis(Answer):
    """Causes, best first, and what they rest on.

    Attributes:
        causes: best first.
        findings: what the rules say of the configuration beyond the causes.
        observed: name -> value that log and words gave.
        unknown: exceptions in the log that no rule explains.
        asks: what to tell, most wanted first.
        comparison: of the two configurations, where two were given.
        not_judged: rules about the configuration that lacked a value.
        criteria: of the smoke plan, where one was given.
        lines: how many lines of the log were read.
        configured: whether a configuration was given.
        described: whether there was a symptom in words.
    """

    causes: tuple[Cause, ...]
    findings: tuple[Statement, ...]
    observed: Mapping[str, Observed]
    unknown: tuple[Evidence, ...]
    asks: tuple[Ask, ...]
    comparison: Comparison | None
    not_judged: tuple[NotJudged, ...]
    criteria: tuple[Criterion, ...]
    lines: int
    configured: bool
    described: bool

    @property
    def verdict(self) -> Verdict:
        """``found`` with a confirmed cause, ``suspected`` with another, ``unclear`` or ``clean`` with none."""
        real = [c for c in self.causes if c.severity in ("error", "warning")]
        if any(c.certainty == "confirmed" for c in real):
            return "found"
        if self.causes:
            return "suspected"
        return "clean" if (self.configured or self.lines) and not (self.described or self.unknown) else "unclear"

    @property
    def exit_code(self) -> int:
        """1 where a cause was found or a success criterion doesn't hold, else 0."""
        return int(self.verdict == "found" or any(c.holds is False for c in self.criteria))

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {
            **self.head(lang),
            "verdict": self.verdict,
            "causes": [c.to_dict(lang) for c in self.causes],
            "findings": [f.to_dict(lang) for f in self.findings],
            "observed": {name: o.to_dict() for name, o in self.observed.items()},
            "unknown": [_evidence(e) for e in self.unknown],
            "asks": [a.to_dict(lang) for a in self.asks],
            "comparison": self.comparison.to_dict() if self.comparison else None,
            "not_judged": [n.to_dict() for n in self.not_judged],
            "criteria": [c.to_dict(lang) for c in self.criteria],
            "lines": self.lines,
        }


def _figures(grid: Grid | None) -> dict[str, Any] | None:
    if grid is None:
        return None
    speed = grid.throughput.to_dict() if grid.throughput else None
    return {"memory": grid.memory.to_dict(), "throughput": speed}


def _evidence(e: Evidence) -> dict[str, Any]:
    out = {"line": e.line, "text": e.text, "rank": e.rank, "count": e.count, "ranks": list(e.ranks)}
    return {**out, "file": e.file} if e.file else out


def _json(value: Value) -> Any:
    if isinstance(value, float) and value != value:
        return None
    return list(value) if isinstance(value, tuple) else value


def _plain(mapping: Mapping[str, Value]) -> dict[str, Any]:
    return {name: _json(value) for name, value in mapping.items()}
