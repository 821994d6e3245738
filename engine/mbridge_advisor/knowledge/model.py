"""The knowledge base as typed, immutable objects.

Nothing here reads files: :mod:`mbridge_advisor.knowledge.load` builds these objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ..architecture import Architecture

Value = int | float | bool | str | tuple[Any, ...] | None
Kind = Literal["constraint", "derivation", "sizing", "pitfall", "diagnosis"]
Severity = Literal["error", "override", "warning", "advice"]
Status = Literal["code_verified", "doc_only"]
Lang = Literal["en", "zh"]


@dataclass(frozen=True)
class Text:
    """A text for people, in English and Simplified Chinese."""

    en: str
    zh: str

    def __getitem__(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True)
class Citation:
    """Where a statement comes from.

    Attributes:
        kind: ``code``, ``doc``, ``url`` or ``data``.
        where: the fields given in the YAML (repo, path, symbol, condition, heading, at, url, title).
    """

    kind: Literal["code", "doc", "url", "data"]
    where: Mapping[str, str]

    def __str__(self) -> str:
        w = self.where
        at = f"@{w['at']}" if "at" in w else ""
        if self.kind == "code":
            return f"{w['repo']}{at} {w['path']} {w['symbol']}"
        if self.kind == "doc":
            return f"{w['repo']}{at} {w['path']} § {w['heading']}"
        if self.kind == "url":
            return f"{w['title']} <{w['url']}>"
        return " ".join(v for v in (w.get("repo"), w.get("path"), w.get("locator")) if v)

    def to_dict(self) -> dict[str, Any]:
        return {self.kind: dict(self.where)}


@dataclass(frozen=True)
class Revision:
    """A release of Megatron Bridge with what it pins.

    Attributes:
        tag: e.g. ``v0.6.0``.
        commit: Bridge commit, 40 hex digits.
        core_commit, core_version: the pinned Megatron Core.
        released: ISO date.
        environment: versions by name (pytorch, transformer_engine, cuda, python, container ...), None where the release
            doesn't state it.
        citations: where the versions stand.
    """

    tag: str
    commit: str
    core_commit: str
    core_version: str
    released: str
    environment: Mapping[str, str | None]
    citations: tuple[Citation, ...] = ()
    note: Text | None = None

    @cached_property
    def version(self) -> Version:
        return Version(self.tag.lstrip("v"))

    def within(self, specifier: str) -> bool:
        """Whether this revision satisfies a PEP 440 specifier such as ``>=0.2.0,<0.4``."""
        return self.version in SpecifierSet(specifier, prereleases=True)


@dataclass(frozen=True)
class ByRevision:
    """A value that may differ between revisions: pairs of (specifier, value), first match wins."""

    cases: tuple[tuple[str, Any], ...]

    def at(self, revision: Revision) -> Any:
        """The value at a revision, or None where no case speaks of it."""
        return next((value for spec, value in self.cases if revision.within(spec)), None)


@dataclass(frozen=True)
class Term:
    """One name of the vocabulary. See docs/architecture.md, section 4."""

    name: str
    field: str
    section: Literal["model", "cluster", "training", "grid", "environment", "derived"]
    type: Literal["int", "float", "bool", "str", "list"]
    title: Text
    meaning: Text
    unit: str = "1"
    path: ByRevision | None = None
    min: float | None = None
    max: float | None = None
    default: ByRevision | None = None
    nullable: bool = False
    values: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    bounds: tuple[str, Literal["min", "max"]] | None = None
    suggests: str | None = None
    tentative: bool = False
    in_log: tuple[str, ...] = ()  # templates of log lines that show its value


@dataclass(frozen=True)
class Quantity:
    """A named formula that always holds."""

    name: str
    formula: str
    bridge: str
    status: Status
    citations: tuple[Citation, ...]
    variants: tuple[tuple[str, str], ...] = ()  # (specifier, formula)
    examples: tuple[tuple[Mapping[str, Value], Value, str | None], ...] = ()  # (given, is, revision tag or None)
    because: Text | None = None

    def at(self, revision: Revision) -> str | None:
        """The formula at a revision, or None where the quantity doesn't exist there."""
        if not revision.within(self.bridge):
            return None
        return next((formula for spec, formula in self.variants if revision.within(spec)), self.formula)


@dataclass(frozen=True)
class Then:
    """What a rule concludes."""

    violation: Text | None = None
    advice: Text | None = None
    diagnosis: Text | None = None
    derive: Mapping[str, str] = field(default_factory=dict)  # name -> expression
    prefer: tuple[tuple[str, float], ...] = ()  # (expression, cost as a fraction)

    @property
    def message(self) -> Text | None:
        return self.violation or self.advice or self.diagnosis


@dataclass(frozen=True)
class Fix:
    """How to mend a violation: words, and the change as data (name -> literal or ``= expression``)."""

    text: Text | None = None
    set: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """Facts under which a rule must fire or stay quiet, at a revision (None: the newest in the rule's range)."""

    facts: Mapping[str, Value]
    bridge: str | None = None


@dataclass(frozen=True)
class Sign:
    """A message by which a run shows that a rule was broken, or that a diagnosis applies.

    Attributes:
        text: template of the message: words, ``{name}`` for a value of the vocabulary, ``...`` for anything between.
        by: the package that prints it.
        bridge: the releases in which it is worded so.
    """

    text: str
    by: str
    bridge: str = ">=0"


@dataclass(frozen=True)
class Symptoms:
    """What people say of it; each a phrase, or several joined by `` + ``, which must all occur."""

    en: tuple[str, ...] = ()
    zh: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One rule. ``at(revision)`` gives what it says there."""

    id: str
    title: Text
    kind: Kind
    severity: Severity
    status: Status
    bridge: str
    when: tuple[str, ...]
    then: Then
    because: Text
    citations: tuple[Citation, ...]
    since: str
    fix: Fix | None = None
    withdrawn: Text | None = None
    variants: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # (specifier, overriding attributes)
    related: tuple[str, ...] = ()
    fires: tuple[Example, ...] = ()
    quiet: tuple[Example, ...] = ()
    signs: tuple[Sign, ...] = ()
    symptoms: Symptoms = Symptoms()
    refines: str | None = None  # diagnosis: the more general one, with whose signs and symptoms it is considered
    causes: tuple[str, ...] = ()  # diagnosis: rules that may be behind it
    asks: tuple[str, ...] = ()  # diagnosis: names worth knowing
    confirm: Text | None = None  # diagnosis: what would confirm it
    aftermath: bool = False  # diagnosis: mostly follows from another failure
    file: str = ""
    line: int | None = None

    @property
    def topic(self) -> str:
        return self.id.split("-")[1]

    def at(self, revision: Revision) -> Rule | None:
        """The rule as it stands at a revision; None where it doesn't speak of it or was withdrawn."""
        if self.withdrawn or not revision.within(self.bridge):
            return None
        for spec, change in self.variants:
            if revision.within(spec):
                return replace(self, **change)
        return self


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU system. Memory in bytes, rates in bytes/s and FLOP/s (dense), all per GPU and one direction.

    Attributes:
        name: e.g. ``H100``.
        aliases: other spellings.
        memory_bytes: what the driver reports as total device memory.
        memory_bandwidth: HBM bytes/s.
        peak_flops: precision (bf16, fp16, fp8, mxfp8, nvfp4, tf32) -> dense FLOP/s; absent = not supported.
        compute_capability: major * 10 + minor, e.g. 90.
        gpus_per_node: GPUs an operating system sees.
        nvlink_domain: GPUs that reach each other over NVLink.
        nvlink_bandwidth: bytes/s.
        network_bandwidth: bytes/s to other NVLink domains, usual configuration.
        host_memory_bytes: of one node, where published.
        citations: attribute name -> source.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    compute_capability: int
    gpus_per_node: int
    nvlink_domain: int
    nvlink_bandwidth: float
    network_bandwidth: float
    citations: Mapping[str, Citation]
    aliases: tuple[str, ...] = ()
    host_memory_bytes: int | None = None
    note: Text | None = None


@dataclass(frozen=True)
class Model:
    """One model of the catalogue."""

    name: str
    title: str
    architecture: Architecture
    total_parameters: float  # as published
    active_parameters: float | None  # as published, MoE
    published: str  # what exactly the published figures count, e.g. "with embeddings, without MTP"
    citations: tuple[Citation, ...]
    aliases: tuple[str, ...] = ()
    hf_id: str | None = None
    recipe_keys: tuple[str, ...] = ()  # model_key values in recipe and throughput facts
    counts: Mapping[str, bool] = field(default_factory=dict)  # e.g. {"mtp": False, "embedding_active": True}
    max_seq_length: int | None = None
    note: Text | None = None


@dataclass(frozen=True)
class Knowledge:
    """All of it, indexed. Mappings keep file order."""

    version: str
    digest: str
    root: str
    terms: Mapping[str, Term]
    revisions: Mapping[str, Revision]
    gpus: Mapping[str, Gpu]
    models: Mapping[str, Model]
    quantities: Mapping[str, Quantity]
    rules: Mapping[str, Rule]
    calibration: Mapping[str, Any]
    matrix: Mapping[str, Any] = field(default_factory=dict)  # compat_matrix.yaml as data; empty where there is none

    @cached_property
    def by_field(self) -> Mapping[str, Term]:
        """Every spelling (short name, field, alias) -> term."""
        out: dict[str, Term] = {}
        for term in self.terms.values():
            for key in (term.name, term.field, *term.aliases):
                out[key] = term
        return out

    @cached_property
    def calibration_values(self) -> Mapping[str, float]:
        """The constants of the memory and time models, by name."""
        return {name: float(constant["value"]) for name, constant in self.calibration.items()}

    @property
    def latest(self) -> Revision:
        """The newest revision."""
        return max(self.revisions.values(), key=lambda r: r.version)
