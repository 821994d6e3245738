"""One pass over a log: what it shows, where, and on which ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ..errors import RequestError
from ..intake.request import check_value, parse_word
from ..knowledge.model import Knowledge, Sign, Text, Value
from .matcher import matcher_for
from .stream import Log, Reading, read_lines

MAX_RANKS = 1 << 17
SHOWN_RANKS = 64
MAX_SAMPLES = 512
MAX_UNKNOWN = 5
MAX_SHOWN = 240
CONFIG_LINES = 200_000  # settings are printed before training starts
TOTALS = frozenset({"log_nan_steps", "log_skipped_steps"})  # counts of each line, which add up
SUMMARY = b"Configuration Summary (Non-Default Values vs Megatron Core)"  # as Bridge prints it since v0.2

_RANK = re.compile(
    r"\[(?:rank|default)(\d{1,6})\]:|^ {0,6}(\d{1,6}): |^\[\d+,(\d{1,6})\]<std"
    r"|\[rank (\d{1,6})\]|\brank[ =:]+(\d{1,6})\b",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(?:\s*(?:\[(?:rank|default)?\d{1,6}\]:|\d{1,6}: |\[\d+,\d{1,6}\]<std\w+>:))+\s?", re.IGNORECASE)
_RAISED = re.compile(r"^\s*(?:[\w.]*(?:Error|Exception)|AssertionError)\b(?::|$)")
_FILE_RANK = re.compile(r"(?:rank[_.-]?|attempt_\d{1,3}/)(\d{1,6})(?!\d)", re.IGNORECASE)
_SETTING = re.compile(
    rb"^(?:\[(?:rank|default)\d+\]:)?[\s\d:,.\-\[\]]*"
    rb"([a-z][a-z0-9_]{3,60}) ?(?::|=|\.{3,}) ?([^\s,#]{1,200})\s*(?:\(Mcore default: .*\))?$"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Evidence:
    """Where something was seen.

    Attributes:
        line: 1-based, of the first occurrence; 0 for the symptom in words.
        text: the line, shortened.
        rank: of the first occurrence, where the line or the file's name tells.
        count: how often.
        ranks: that showed it, ascending; at most 64.
        file: the log, where there are several.
    """

    line: int
    text: str
    rank: int | None = None
    count: int = 1
    ranks: tuple[int, ...] = ()
    file: str = ""


@dataclass(frozen=True)
class Hit:
    """A rule's sign that was seen, with the values of its first occurrence, and all ranks that showed it."""

    rule: str
    sign: Sign
    values: Mapping[str, Value]
    evidence: Evidence
    ranks: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Measured:
    """The numbers that one name had over a log.

    Attributes:
        count: how many.
        low, high, total: of the finite ones.
        finite: whether all are.
    """

    count: int
    low: float
    high: float
    total: float
    finite: bool


@dataclass(frozen=True)
class Scan:
    """What a log shows.

    Attributes:
        hits: in order of first occurrence.
        values: name -> value that lines showed: the median, or the sum, of numbers that changed from line to line.
        measured: name -> the numbers behind such a value.
        settings: name -> value of configuration lines; what differed from line to line is left out.
        lines_of: name -> line at which a value or setting was first seen.
        unknown: the first exceptions that no sign explains.
        whole: whether the run printed all settings that differ from Core's defaults.
        reading: how far it was read.
    """

    hits: tuple[Hit, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    measured: Mapping[str, Measured] = field(default_factory=dict)
    settings: Mapping[str, Value] = field(default_factory=dict)
    lines_of: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[Evidence, ...] = ()
    whole: bool = False
    reading: Reading = field(default_factory=Reading)


@dataclass
class _Seen:
    """Occurrences of one thing."""

    line: int
    text: str
    rank: int | None
    file: str
    values: Mapping[str, Value] = field(default_factory=dict)
    count: int = 0
    ranks: set[int] = field(default_factory=set)

    def again(self, rank: int | None) -> None:
        self.count += 1
        if rank is not None and len(self.ranks) < MAX_RANKS:
            self.ranks.add(rank)

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.line, self.text, self.rank, self.count, tuple(sorted(self.ranks)[:SHOWN_RANKS]), self.file)


class _Series:
    """The values that one name had over a log: bounded, evenly thinned where there are too many."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.plain: list[Value] = []
        self.step, self.count = 1, 0
        self.low, self.high, self.total, self.finite = math.inf, -math.inf, 0.0, True

    def add(self, value: Value) -> None:
        if isinstance(value, float):
            if self.count % self.step == 0:
                self.samples.append(value)
                if len(self.samples) > MAX_SAMPLES:
                    self.samples = self.samples[::2]
                    self.step *= 2
        elif value not in self.plain and len(self.plain) < 3:
            self.plain.append(value)
        if isinstance(value, int | float):
            if math.isfinite(value):
                self.low, self.high = min(self.low, value), max(self.high, value)
                self.total += value
            else:
                self.finite = False
        self.count += 1

    @property
    def value(self) -> Value:
        """The median of measured numbers; the only value of anything else, or None."""
        if self.samples:
            finite = [s for s in self.samples if math.isfinite(s)]
            return float(median(finite)) if finite else math.nan
        return self.plain[0] if len(self.plain) == 1 else None

    @property
    def measured(self) -> Measured:
        return Measured(self.count, self.low, self.high, self.total, self.finite)


def scan(log: Log | Mapping[str, Log], knowledge: Knowledge) -> Scan:
    """Read a log, or several by name, once.

    Raises:
        RequestError: a file can't be opened.
    """
    logs = log if isinstance(log, Mapping) else {"": log}
    scanner = _Scanner(knowledge)
    for name, one in logs.items():
        scanner.read(one, name)
    return scanner.result()


class _Scanner:
    """What was seen so far."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self.matcher = matcher_for(knowledge)
        self.hits: dict[tuple[str, str], tuple[Sign, _Seen]] = {}
        self.series: dict[str, _Series] = {}
        self.settings: dict[str, list[Value]] = {}
        self.lines_of: dict[str, int] = {}
        self.unknown: dict[str, _Seen] = {}
        self.whole = False
        self.readings: list[Reading] = []

    def read(self, log: Log, file: str) -> None:
        """One log."""
        reading = Reading()
        self.readings.append(reading)
        named = _FILE_RANK.search(file)
        own_rank = int(named.group(1)) if named else None
        for raw in read_lines(log, reading):
            number, known = reading.lines, False
            for pattern, values in self.matcher.match(raw):
                if pattern.rule is None or pattern.sign is None:
                    for name, value in values.items():
                        self.series.setdefault(name, _Series()).add(value)
                        self.lines_of.setdefault(name, number)
                    continue
                known = True
                rank = rank_of(raw, own_rank)
                key = (pattern.rule, pattern.sign.text)
                if key not in self.hits:
                    self.hits[key] = pattern.sign, _Seen(number, shown(raw), rank, file, values)
                self.hits[key][1].again(rank)
            if not known and (b"Error" in raw or b"Exception" in raw):
                self._unknown(raw, number, own_rank, file)
            if number <= CONFIG_LINES and len(raw) < 300 and b"_" in raw:
                if (setting := _setting(raw, self.knowledge)) is not None:
                    name, value = setting
                    if value not in self.settings.setdefault(name, []):
                        self.settings[name].append(value)
                    self.lines_of.setdefault(name, number)
            elif SUMMARY in raw:
                self.whole = True
        if file:
            reading.notes = tuple(Text(f"{file}: {n.en}", f"{file}：{n.zh}") for n in reading.notes)

    def _unknown(self, raw: bytes, number: int, own_rank: int | None, file: str) -> None:
        text = _PREFIX.sub("", raw[:MAX_SHOWN].decode("utf-8", "replace"))
        if _RAISED.match(text) and (text[:80] in self.unknown or len(self.unknown) < MAX_UNKNOWN):
            rank = rank_of(raw, own_rank)
            self.unknown.setdefault(text[:80], _Seen(number, shown(raw), rank, file)).again(rank)

    def result(self) -> Scan:
        """All of it."""
        values = {name: float(s.total) if name in TOTALS else s.value for name, s in self.series.items()}
        return Scan(
            hits=tuple(
                Hit(rule, sign, seen.values, seen.evidence, frozenset(seen.ranks))
                for (rule, _), (sign, seen) in self.hits.items()
            ),
            values={name: value for name, value in values.items() if value is not None},
            measured={name: s.measured for name, s in self.series.items()},
            settings={name: values[0] for name, values in self.settings.items() if len(values) == 1},
            lines_of=self.lines_of,
            unknown=tuple(seen.evidence for seen in self.unknown.values()),
            whole=self.whole,
            reading=Reading(
                lines=sum(r.lines for r in self.readings),
                bytes=sum(r.bytes for r in self.readings),
                notes=tuple(n for r in self.readings for n in r.notes),
            ),
        )


def rank_of(raw: bytes, default: int | None = None) -> int | None:
    """The rank that a line names, in its prefix or its words."""
    found = _RANK.search(raw[:400].decode("utf-8", "replace"))
    return int(next(group for group in found.groups() if group)) if found else default


def shown(raw: bytes) -> str:
    """A line for people: without control characters, shortened."""
    text = " ".join(_CONTROL.sub("", raw.decode("utf-8", "replace")).split())
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _setting(raw: bytes, knowledge: Knowledge) -> tuple[str, Value] | None:
    """``(short name, value)`` of a line that is a setting by its full field name, as configurations are printed."""
    found = _SETTING.match(raw)
    if found is None:
        return None
    field, word = (group.decode("utf-8", "replace") for group in found.groups())
    term = knowledge.by_field.get(field)
    if term is None or term.field != field or term.section in ("derived", "environment"):
        return None
    try:
        return term.name, check_value(term, parse_word(word.strip("'\"")), term.field)
    except RequestError:
        return None
