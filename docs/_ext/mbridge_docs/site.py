"""What the pages are made of: the loaded knowledge, its evidence, and what follows from both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from mbridge_advisor.advice.programs import program_for
from mbridge_advisor.errors import ExpressionError
from mbridge_advisor.evidence.anchors import Found
from mbridge_advisor.evidence.matrix import Row, build
from mbridge_advisor.evidence.source import BRIDGE
from mbridge_advisor.evidence.store import Evidence, Place, load_evidence, places_at
from mbridge_advisor.expressions import Expression
from mbridge_advisor.inference import Program
from mbridge_advisor.knowledge import Knowledge, load
from mbridge_advisor.knowledge.model import Citation, Quantity, Revision, Rule, Text

NAMES_IN_TEXT = re.compile(r"\{([A-Za-z_]\w*)[^}]*\}")


@dataclass(frozen=True, eq=False)
class Site:
    """The knowledge as the pages show it."""

    base: Knowledge
    evidence: Evidence

    @cached_property
    def rows(self) -> Mapping[str, Row]:
        """The matrix, by rule id or quantity name, from the evidence itself."""
        return {row.name: row for row in build(self.base, self.evidence)}

    @cached_property
    def programs(self) -> Mapping[str, Program]:
        """The compiled rules, by release."""
        return {tag: program_for(self.base, revision) for tag, revision in self.base.revisions.items()}

    @property
    def program(self) -> Program:
        """The compiled rules of the newest release."""
        return self.programs[self.base.latest.tag]

    @cached_property
    def topics(self) -> Mapping[str, list[Rule]]:
        """Rules by topic, topics in alphabetical order."""
        out: dict[str, list[Rule]] = {}
        for rule in self.base.rules.values():
            out.setdefault(rule.topic, []).append(rule)
        return dict(sorted(out.items()))

    @cached_property
    def reads(self) -> Mapping[str, frozenset[str]]:
        """What a rule or quantity reads, over all releases."""
        out: dict[str, set[str]] = {}
        for program in self.programs.values():
            for name, step in program.steps.items():
                out.setdefault(name, set()).update(step.inputs, *(e.names for e, _ in step.prefer))
        return {name: frozenset(found) for name, found in out.items()}

    @cached_property
    def derives(self) -> Mapping[str, frozenset[str]]:
        """What a rule or quantity concludes, over all releases."""
        out: dict[str, set[str]] = {}
        for program in self.programs.values():
            for name, step in program.steps.items():
                out.setdefault(name, set()).update(derived for derived, _ in step.derives)
        return {name: frozenset(found) for name, found in out.items()}

    @cached_property
    def readers(self) -> Mapping[str, list[str]]:
        """Name -> rules and quantities that read it."""
        return _turned(self.reads)

    @cached_property
    def derivers(self) -> Mapping[str, list[str]]:
        """Name -> rules and quantities that conclude it."""
        return _turned(self.derives)

    def places(self, owner: Rule | Quantity) -> dict[Place, dict[str, str]]:
        """Cited places of an owner: place -> release -> address of the very lines that were found there."""
        out: dict[Place, dict[str, str]] = {}
        for revision in self.base.revisions.values():
            for place in places_at(owner, revision):
                found = out.setdefault(place, {})
                if (address := self.lines(place, revision)) is not None:
                    found[revision.tag] = address
        return out

    def lines(self, place: Place, revision: Revision) -> str | None:
        """Address of the lines that were found at a release; None where nothing was."""
        recorded = self.evidence.recorded.get(revision.tag)
        found = recorded.anchors.get(place.key) if recorded else None
        if not isinstance(found, Found):
            return None
        first, last = found.lines
        commit = revision.commit if place.repo == BRIDGE else revision.core_commit
        # A rendered page of Markdown has no lines; `plain=1` shows the source.
        plain = "?plain=1" if place.path.endswith(".md") else ""
        return f"https://github.com/{place.repo}/blob/{commit}/{place.path}{plain}#L{first}-L{last}"


@lru_cache(maxsize=2)
def site() -> Site:
    """The site of the knowledge base that :func:`mbridge_advisor.knowledge.load` finds."""
    base = load()
    return Site(base, load_evidence(Path(base.root)))


def address(citation: Citation, latest: Revision) -> str | None:
    """Where a citation without recorded lines can be read."""
    w = citation.where
    if citation.kind == "url":
        return w["url"]
    if not w.get("repo") or not w.get("path"):
        return w.get("url")
    commit = {BRIDGE: latest.commit, "NVIDIA/Megatron-LM": latest.core_commit}.get(w["repo"], w.get("at", "HEAD"))
    return f"https://github.com/{w['repo']}/blob/{commit}/{w['path']}"


def complaints(site: Site) -> Iterator[str]:
    """What must not be published: claims without source or evidence, unknown names, missing translations."""
    for name, owner in {**site.base.rules, **site.base.quantities}.items():
        if not owner.citations:
            yield f"{name} has no citation."
        if isinstance(owner, Rule):
            yield from (
                f"{name}: {other} in `related` is no rule."
                for other in owner.related + owner.causes
                if other not in site.base.rules
            )
            yield from (
                f"{name}: the name {n} isn't in the vocabulary."
                for n in sorted(_names(owner, site.base))
                if n not in site.base.terms
            )
    for name, row in site.rows.items():
        for tag, cell in row.cells.items():
            if cell.verdict == "absent":
                continue
            recorded = site.evidence.recorded.get(tag)
            for place in places_at(row.owner, site.base.revisions[tag]):
                if recorded is None or not isinstance(recorded.anchors.get(place.key), Found):
                    yield f"{name} cites {place}, which the evidence of {tag} doesn't hold."
            if row.owner.status == "code_verified" and cell.tag != "code_verified" and cell.carried is None:
                yield f"{name} claims code_verified at {tag} without evidence."
    for part in ("terms", "quantities", "rules", "models", "gpus", "revisions"):
        for name, entry in getattr(site.base, part).items():
            yield from (f"{name}: {where} has no Chinese text." for where in _untranslated(entry))


def _names(rule: Rule, base: Knowledge) -> set[str]:
    """Every name that a rule reads, concludes, shows or asks for, in any of its forms."""
    out = set(rule.asks)
    forms = [rule, *(form for r in base.revisions.values() if (form := rule.at(r)) is not None)]
    for form in forms:
        fix = form.fix
        texts = [form.then.message, form.because, fix.text if fix else None]
        out.update(n for text in texts if text for n in NAMES_IN_TEXT.findall(text.en + text.zh))
        out.update(form.then.derive, fix.set if fix else ())
        for source in (*form.when, *form.then.derive.values(), *(that for that, _ in form.then.prefer)):
            try:
                out |= Expression(source, base.terms).names
            except ExpressionError as error:
                out.add(str(error))
    for example in (*rule.fires, *rule.quiet):
        out.update(example.facts)
    return out


def _untranslated(entry: Any, where: str = "") -> Iterator[str]:
    if isinstance(entry, Text):
        if not entry.zh.strip() or (entry.zh == entry.en and re.search(r"[a-z]{3,} [a-z]{3,}", entry.en)):
            yield where.lstrip(".")
    elif is_dataclass(entry):
        for field in fields(entry):
            yield from _untranslated(getattr(entry, field.name), f"{where}.{field.name}")
    elif isinstance(entry, Mapping):
        for key, value in entry.items():
            yield from _untranslated(value, f"{where}.{key}")
    elif isinstance(entry, tuple):
        for value in entry:
            yield from _untranslated(value, where)


def _turned(edges: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for source, targets in edges.items():
        for target in targets:
            out.setdefault(target, []).append(source)
    return out
