"""One pass over a log: what it shows, where, and on which ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ..errors import RequestError
from ..intake.request import check_value, parse_word
from ..knowledge.model import Knowledge, Sign, Value
from .matcher import matcher_for
from .stream import Log, Reading, read_lines

MAX_RANKS = 64
MAX_SAMPLES = 512
MAX_UNKNOWN = 5
MAX_SHOWN = 240
CONFIG_LINES = 200_000  # settings are printed before training starts

_RANK = re.compile(
    r"\[(?:rank|default)(\d{1,6})\]:|^(\d{1,6}): |^\[\d+,(\d{1,6})\]<std|\[rank (\d{1,6})\]|\brank[ =:]+(\d{1,6})\b",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(?:\s*(?:\[(?:rank|default)?\d{1,6}\]:|\d{1,6}: |\[\d+,\d{1,6}\]<std\w+>:))+\s?", re.IGNORECASE)
_RAISED = re.compile(r"^\s*(?:[\w.]*(?:Error|Exception)|AssertionError)\b(?::|$)")
_SETTING = re.compile(r"^[\s\d:,.\-\[\]]*([a-z][a-z0-9_]{3,60}) ?(?::|=|\.{3,}) ?([^\s,#]{1,200})\s*$")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Evidence:
    """Where something was seen.

    Attributes:
        line: 1-based, of the first occurrence; 0 for the symptom in words.
        text: the line, shortened.
        rank: of the first occurrence, where the line tells.
        count: how often.
        ranks: that showed it, ascending; at most 64.
    """

    line: int
    text: str
    rank: int | None = None
    count: int = 1
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hit:
    """A rule's sign that was seen, with the values of its first occurrence."""

    rule: str
    sign: Sign
    values: Mapping[str, Value]
    evidence: Evidence


@dataclass(frozen=True)
class Scan:
    """What a log shows.

    Attributes:
        hits: in order of first occurrence.
        values: name -> value that lines showed: the median of numbers that changed from line to line.
        settings: name -> value of configuration lines; what differed from line to line is left out.
        lines_of: name -> line at which a value or setting was first seen.
        unknown: the first exceptions that no sign explains.
        reading: how far it was read.
        last_rank: the highest rank that was seen.
    """

    hits: tuple[Hit, ...]
    values: Mapping[str, Value]
    settings: Mapping[str, Value]
    lines_of: Mapping[str, int]
    unknown: tuple[Evidence, ...]
    reading: Reading
    last_rank: int | None = None


@dataclass
class _Seen:
    """Occurrences of one thing."""

    line: int
    text: str
    rank: int | None
    values: Mapping[str, Value] = field(default_factory=dict)
    count: int = 0
    ranks: set[int] = field(default_factory=set)

    def again(self, rank: int | None) -> None:
        self.count += 1
        if rank is not None and len(self.ranks) < MAX_RANKS:
            self.ranks.add(rank)

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.line, self.text, self.rank, self.count, tuple(sorted(self.ranks)))


class _Series:
    """The values that one name had over a log: bounded, evenly thinned where there are too many."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.plain: list[Value] = []
        self.step, self.count = 1, 0

    def add(self, value: Value) -> None:
        if isinstance(value, float):
            if self.count % self.step == 0:
                self.samples.append(value)
                if len(self.samples) > MAX_SAMPLES:
                    self.samples = self.samples[::2]
                    self.step *= 2
        elif value not in self.plain and len(self.plain) < 3:
            self.plain.append(value)
        self.count += 1

    @property
    def value(self) -> Value:
        """The median of measured numbers; the only value of anything else, or None."""
        if self.samples:
            finite = [s for s in self.samples if math.isfinite(s)]
            return float(median(finite)) if finite else math.nan
        return self.plain[0] if len(self.plain) == 1 else None


def scan(log: Log, knowledge: Knowledge) -> Scan:
    """Read a log once.

    Raises:
        RequestError: the file can't be opened.
    """
    matcher = matcher_for(knowledge)
    reading = Reading()
    hits: dict[tuple[str, str], tuple[Sign, _Seen]] = {}
    series: dict[str, _Series] = {}
    settings: dict[str, list[Value]] = {}
    lines_of: dict[str, int] = {}
    unknown: dict[str, _Seen] = {}
    last_rank: int | None = None
    for raw in read_lines(log, reading):
        number = reading.lines
        known = False
        for pattern, values in matcher.match(raw):
            if pattern.rule is None or pattern.sign is None:
                for name, value in values.items():
                    series.setdefault(name, _Series()).add(value)
                    lines_of.setdefault(name, number)
                continue
            known = True
            key = (pattern.rule, pattern.sign.text)
            rank = rank_of(raw)
            last_rank = rank if last_rank is None or (rank or 0) > last_rank else last_rank
            if key not in hits:
                hits[key] = pattern.sign, _Seen(number, shown(raw), rank, values)
            hits[key][1].again(rank)
        if not known and (b"Error" in raw or b"Exception" in raw):
            text = _PREFIX.sub("", raw.decode("utf-8", "replace"))
            if _RAISED.match(text) and (text[:80] in unknown or len(unknown) < MAX_UNKNOWN):
                rank = rank_of(raw)
                unknown.setdefault(text[:80], _Seen(number, shown(raw), rank)).again(rank)
        if number <= CONFIG_LINES and len(raw) < 300 and (setting := _setting(raw, knowledge)):
            name, value = setting
            if value not in settings.setdefault(name, []):
                settings[name].append(value)
            lines_of.setdefault(name, number)
    return Scan(
        hits=tuple(
            sorted(
                (Hit(rule, sign, seen.values, seen.evidence) for (rule, _), (sign, seen) in hits.items()),
                key=lambda hit: hit.evidence.line,
            )
        ),
        values={name: s.value for name, s in series.items() if s.value is not None},
        settings={name: values[0] for name, values in settings.items() if len(values) == 1},
        lines_of=lines_of,
        unknown=tuple(seen.evidence for seen in unknown.values()),
        reading=reading,
        last_rank=last_rank,
    )


def rank_of(raw: bytes) -> int | None:
    """The rank that a line names, in its prefix or its words."""
    found = _RANK.search(raw[:400].decode("utf-8", "replace"))
    return int(next(group for group in found.groups() if group)) if found else None


def shown(raw: bytes) -> str:
    """A line for people: without control characters, shortened."""
    text = " ".join(_CONTROL.sub("", raw.decode("utf-8", "replace")).split())
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _setting(raw: bytes, knowledge: Knowledge) -> tuple[str, Value] | None:
    """``(short name, value)`` of a line that is a setting by its full field name, as configurations are printed."""
    if b"_" not in raw:
        return None
    found = _SETTING.match(raw.decode("utf-8", "replace"))
    term = knowledge.by_field.get(found.group(1)) if found else None
    if found is None or term is None or term.field != found.group(1) or term.section in ("derived", "environment"):
        return None
    try:
        return term.name, check_value(term, parse_word(found.group(2).strip("'\"")), term.field)
    except RequestError:
        return None
