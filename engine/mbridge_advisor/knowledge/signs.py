"""Templates of the messages that runs print: words, values and gaps, matched in time linear in the line.

``world size ({world_size}) is not divisible by ... {dense_ranks}`` holds words, values by name of the vocabulary, and
a gap. ``{log_flops*1e12}`` is multiplied by the number. Case doesn't matter; a blank stands for any blank space, which
the reader of a line has made one blank. Templates aren't regular expressions: what they compile to has no nested
repetition, and every repetition is bounded or a single class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .model import Term, Value

_CAPTURE = re.compile(r"\{([A-Za-z_]\w*)(?:\*([0-9.e+-]+))?\}")
_NUMBER = r"\d{1,15}(?:\.\d{0,9})?"
_PATTERNS: Mapping[str, str] = {
    "int": r"(-?\d{1,18})(?!\d)",
    "float": rf"(nan|-?inf|-?{_NUMBER}(?:e[+-]?\d{{1,3}})?)",
    "byte": rf"({_NUMBER} ?(?:[kmgt]i?b|bytes?|b))(?![a-z])",
    "str": r"([\w./+:-]{1,64})",
    "bool": r"(true|false)",
    "layout": r"([EtmL|*(),0-9]{1,2000})",
}
_SIZE = re.compile(rf"({_NUMBER}) ?([kmgt]?)(i?)b", re.IGNORECASE)
WORD = "[a-z_]{4,}"
_MIN_LITERAL = 10
_MAX_GAPS = 4


@dataclass(frozen=True)
class Template:
    """A compiled template.

    Attributes:
        source: as written.
        words: words (:func:`words`) that a line must have to match, the longest first; they serve to skip lines.
        names: the values that it captures.
    """

    source: str
    words: tuple[str, ...]
    names: tuple[str, ...]
    _parts: tuple[re.Pattern[str], ...]
    _readers: tuple[tuple[str, float | None], ...]  # (type, factor) of each capture

    @staticmethod
    def compile(source: str, terms: Mapping[str, Term]) -> Template:
        """Compile a template.

        Raises:
            ValueError: too few words, too many gaps, values that touch, or a value that can't be read from a line.
        """
        parts, literals, names, readers = [], [], [], []
        segments = [s.strip() for s in source.split("...")]
        if len(segments) > _MAX_GAPS + 1:
            raise ValueError(f"more than {_MAX_GAPS} gaps")
        if not all(segments):
            raise ValueError("a gap at an end or beside another says nothing")
        for segment in segments:
            pattern, end = "", 0
            for found in _CAPTURE.finditer(segment):
                before = segment[end : found.start()]
                if end and not before:
                    raise ValueError("two values touch")
                kind, factor = _kind(found.group(1), found.group(2), terms)
                literals.append(before)
                names.append(found.group(1))
                readers.append((kind, factor))
                pattern += re.escape(plain(before)) + _PATTERNS[kind]
                end = found.end()
            literals.append(segment[end:])
            parts.append(re.compile(pattern + re.escape(plain(segment[end:])), re.IGNORECASE))
        runs = [plain(run).strip().lower() for run in literals]
        if sum(map(len, runs)) < _MIN_LITERAL:
            raise ValueError(f"fewer than {_MIN_LITERAL} characters of words")
        if any(c in run for run in runs for c in "{}"):
            raise ValueError("braces that aren't {name}")
        if len(set(names)) < len(names):
            raise ValueError("a value that occurs twice")
        found_words = [word for run in runs for word in words(run)]
        if not found_words:
            raise ValueError("no word of four letters")
        # The first and the last may be parts of longer words in the line; a gap stands between whole words.
        inner = sorted(dict.fromkeys(found_words[1:-1] or found_words), key=len, reverse=True)
        return Template(source, tuple(inner), tuple(names), tuple(parts), tuple(readers))

    def match(self, line: str) -> dict[str, Value] | None:
        """The values in a line whose blank space is single blanks, or None where it doesn't match."""
        position = 0
        captured: list[Any] = []
        for part in self._parts:
            found = part.search(line, position)
            if found is None:
                return None
            position = found.end()
            captured += found.groups()
        return {n: _read(text, *r) for n, text, r in zip(self.names, captured, self._readers, strict=True)}


def words(text: str) -> list[str]:
    """The words of four letters and more of a text in lower case; digits and signs part them."""
    return re.findall(WORD, text)


def plain(text: str) -> str:
    """Any blank space made one blank; ends stay."""
    return re.sub(r"\s+", " ", text)


def _kind(name: str, factor: str | None, terms: Mapping[str, Term]) -> tuple[str, float | None]:
    term = terms.get(name)
    if term is None:
        raise ValueError(f"the name {name!r} isn't in the vocabulary")
    if term.type == "list":
        raise ValueError(f"{name} is a list, which no template reads")
    if name == "pipeline_model_parallel_layout":
        return "layout", None
    if factor is None:
        return ("byte" if term.unit == "byte" else term.type), None
    if term.type != "float":
        raise ValueError(f"{name} isn't a float and can't be multiplied")
    return "float", float(factor)


def _read(text: str, kind: str, factor: float | None) -> Value:
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text) * (factor or 1.0)
    if kind == "byte":
        return size(text)
    return text.lower() == "true" if kind == "bool" else text


def size(text: str) -> int:
    """Bytes of a size such as ``1.19 GiB``, ``640 MB`` or ``0 bytes``; PyTorch's and NVIDIA's GiB count in 1024."""
    found: Any = _SIZE.search(text)
    power = " kmgt".index(found.group(2).lower() or " ")
    return round(float(found.group(1)) * float((1024 if found.group(3) else 1000) ** power))
