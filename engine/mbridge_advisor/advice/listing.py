"""Lists of what is known, in both languages: each entry as :func:`~mbridge_advisor.advice.explain.explain` gives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..intake.request import find_revision
from ..knowledge import Knowledge
from ..knowledge.model import Rule
from .explain import explain, rule_data, tags_of

Row = Mapping[str, Any]


def find_rules(
    base: Knowledge,
    *,
    kind: str | None = None,
    topic: str | None = None,
    severity: str | None = None,
    status: str | None = None,
    bridge: str | None = None,
    words: Iterable[str] = (),
) -> Iterator[tuple[Rule, Rule]]:
    """Rules that meet all conditions, each with its form at the asked release (the rule itself where none is asked).

    Args:
        base: the knowledge base.
        kind, severity: only these.
        status: only rules that have earned this tag at the asked release, or at some release.
        topic: the middle of the id, in any case.
        bridge: only rules that speak of this release, as they stand there.
        words: texts that must all occur in id, title, conditions or reason, in any case.

    Raises:
        RequestError: no such release.
    """
    revision = find_revision(bridge, base)
    wanted = [word.lower() for word in words]
    for rule in base.rules.values():
        here = rule.at(revision) if bridge else rule
        if here is None:
            continue
        releases = [revision] if bridge else [r for r in base.revisions.values() if rule.at(r)]
        text = " ".join([rule.id, rule.title.en, rule.title.zh, *here.when, rule.because.en, rule.because.zh]).lower()
        if (
            (kind is None or rule.kind == kind)
            and (topic is None or rule.topic == topic.upper())
            and (severity is None or here.severity == severity)
            and (status is None or status in tags_of(base, rule.id, releases).values())
            and all(word in text for word in wanted)
        ):
            yield rule, here


def rules(base: Knowledge, **conditions: Any) -> list[Row]:
    """Rules as data; conditions as for :func:`find_rules`."""
    return [rule_data(rule, base) for rule, _ in find_rules(base, **conditions)]


def models(base: Knowledge, lang: str) -> list[Row]:
    """The models of the catalogue."""
    return [explain(name, knowledge=base).to_dict(lang) for name in base.models]


def gpus(base: Knowledge, lang: str) -> list[Row]:
    """The GPU systems."""
    return [explain(name, knowledge=base).to_dict(lang) for name in base.gpus]


def revisions(base: Knowledge, lang: str) -> list[Row]:
    """The Megatron Bridge releases that the knowledge speaks of."""
    return [explain(tag, knowledge=base).to_dict(lang) for tag in base.revisions]
