"""A symptom in words: which diagnoses speak of it, and the sizes, model and GPU that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..errors import RequestError
from ..intake.request import check_value
from ..knowledge.model import Knowledge, Rule, Value

_SIZE = re.compile(r"(?<![\w.])(tp|pp|vpp|cp|ep|etp|mbs|gbs)\s?[=:]?\s?(\d{1,7})(?![\w.])", re.IGNORECASE)
_GPUS = re.compile(r"(?<![\w.])(\d{1,7})(?:\s*x)?\s*(?:gpus?\b|cards?\b|(?:张)?(?:卡|显卡|GPU))", re.IGNORECASE)
_MAX_WORDS = 20_000  # characters


@dataclass(frozen=True)
class Words:
    """What a symptom tells.

    Attributes:
        rules: ids of the diagnoses whose symptoms occur, each with the phrase.
        values: name -> value; a name with two values is left out.
        model, gpu: catalogue names, where exactly one is named.
    """

    rules: Mapping[str, str]
    values: Mapping[str, Value]
    model: str | None
    gpu: str | None


def read_words(text: str, knowledge: Knowledge) -> Words:
    """Read a symptom, in English or Chinese."""
    text = text[:_MAX_WORDS]
    folded = " ".join(text.casefold().split())
    found: dict[str, set[Value]] = {}
    counts = (*_GPUS.findall(text), *_systems(knowledge).findall(text))
    for name, digits in (*_SIZE.findall(text), *(("world_size", n) for n in counts)):
        term = knowledge.terms[name.lower()]
        try:
            found.setdefault(term.name, set()).add(check_value(term, int(digits), term.field))
        except RequestError:
            continue
    gpu = _named(folded, {g.name: (g.name, *g.aliases) for g in knowledge.gpus.values()})
    return Words(
        rules={rule.id: phrase for rule in knowledge.rules.values() if (phrase := said(rule, folded))},
        values={name: next(iter(values)) for name, values in found.items() if len(values) == 1},
        model=_named(folded, {m.name: (m.name, *m.aliases, m.hf_id or "") for m in knowledge.models.values()}),
        gpu=gpu,
    )


def _systems(knowledge: Knowledge) -> re.Pattern[str]:
    """A number of GPUs by the name of their system: ``64 x H100``, ``64 张 H100``."""
    names = sorted({n for g in knowledge.gpus.values() for n in (g.name, *g.aliases)}, key=len, reverse=True)
    spelled = "|".join(map(re.escape, names))
    return re.compile(rf"(?<![\w.])(\d{{1,7}}) ?[x×*]? ?[张块个]? ?(?:{spelled})(?![\w-])", re.IGNORECASE)


def said(rule: Rule, folded: str) -> str | None:
    """The first phrase of a rule's symptoms all of whose parts occur in a text in lower case; None where none does."""
    if rule.withdrawn:
        return None
    for phrase in (*rule.symptoms.en, *rule.symptoms.zh):
        if all(_occurs(part, folded) for part in phrase.casefold().split(" + ")):
            return phrase
    return None


def _occurs(part: str, text: str) -> bool:
    """Latin words begin at a word's beginning (``hang`` is found in ``hangs``); Chinese has no blanks."""
    if not part[0].isascii():
        return part in text
    return re.search(rf"(?<![a-z0-9]){re.escape(part)}", text) is not None


def _named(folded: str, spellings: Mapping[str, tuple[str, ...]]) -> str | None:
    """The one entry whose spelling occurs; a longer spelling hides the shorter ones inside it."""

    def places() -> Iterator[tuple[int, int, str]]:
        for name, each in spellings.items():
            for spelling in filter(None, each):
                pattern = rf"(?<![a-z0-9]){re.escape(spelling.casefold())}(?![a-z0-9])"
                for place in re.finditer(pattern, folded):
                    yield place.start(), place.end(), name

    every = list(places())
    kept = {
        name
        for start, end, name in every
        if not any(s <= start and end <= e and (s, e) != (start, end) for s, e, _ in every)
    }
    return kept.pop() if len(kept) == 1 else None
