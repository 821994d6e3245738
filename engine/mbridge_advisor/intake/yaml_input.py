"""YAML that others wrote, as plain data. No tag is acted on, most are refused; aliases are followed within a budget."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from ..errors import RequestError

MAX_DEPTH = 60
MAX_VALUES = 200_000  # values after aliases are followed
MAX_DIGITS = 18
PLAIN_TAGS = frozenset({"!", "str", "int", "float", "bool", "null", "seq", "map", "python/tuple", "python/unicode"})

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null")),
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def parse_yaml(text: str, name: str) -> Any:
    """The first document of a text as mappings with text keys, lists and scalars.

    Args:
        text: YAML.
        name: what to call it in errors.

    Raises:
        RequestError: not YAML; nested too deep; too large once aliases are followed; an alias inside itself.
    """
    return _Reader(name).read(text)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.events: Iterator[Any] = iter(())
        self.anchors: dict[str, tuple[Any, int]] = {}  # name -> (value, values in it)
        self.count = 0

    def wrong(self, event: Any, reason: str, way_out: str) -> RequestError:
        return RequestError(self.name, None, f"line {event.start_mark.line + 1} {reason}", way_out)

    def read(self, text: str) -> Any:
        try:
            self.events = yaml.parse(text, Loader=_Loader)
            next(self.events)
            start = next(self.events)
            return self.value(next(self.events), 0) if isinstance(start, yaml.DocumentStartEvent) else None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f"line {mark.line + 1} " if mark else ""
            reason = f"{line}isn't YAML ({error.problem or error.context})"
            raise RequestError(self.name, None, reason, "Mend the file.") from None
        except (yaml.YAMLError, UnicodeError) as error:
            reason = f"isn't YAML ({str(error).splitlines()[0]})"
            raise RequestError(self.name, None, reason, "Mend the file.") from None

    def value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self.wrong(event, f"has the alias *{event.anchor} before its value", "Write the value itself.")
            value, size = self.anchors[event.anchor]
            self.add(event, size)
            return value
        if event.tag is not None and event.tag.rpartition(":")[2] not in PLAIN_TAGS:
            raise self.wrong(event, f"has the tag {event.tag[:80]}", "Plain values only: no tag is ever acted on.")
        before = self.count
        self.add(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            value = plain(event.value) if event.implicit[0] else event.value
        elif depth == MAX_DEPTH:
            raise self.wrong(event, "is nested too deep", f"At most {MAX_DEPTH} levels.")
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
                value.append(self.value(item, depth + 1))
        else:
            value = self.mapping(depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, self.count - before
        return value

    def add(self, event: Any, size: int) -> None:
        self.count += size
        if self.count > MAX_VALUES:
            raise self.wrong(event, "is where the file grows too large", f"At most {MAX_VALUES} values.")

    def mapping(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(key := next(self.events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise self.wrong(key, "has a key that isn't plain text", "Use text keys.")
            value = self.value(next(self.events), depth + 1)
            # Of an argument given twice the last counts, as on a command line.
            once = not key.value.startswith(("<<", "--"))
            if once and key.value in out and out[key.value] != value:
                reason = f"has the key {key.value[:80]!r} twice in one mapping, with another value"
                raise self.wrong(key, reason, "Write each key once.")
            if key.value == "<<":
                merged += value if isinstance(value, list) else [value]
            else:
                out[key.value] = value
        for base in merged:
            if isinstance(base, dict):
                out = {**base, **out}
        return out


def plain(text: str) -> Any:
    """A plain scalar as YAML 1.1 readers take it; numbers too long to be settings stay text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text[0] in "-+.0123456789":
        if _INT.fullmatch(text) and len(text.lstrip("-+0")) <= MAX_DIGITS:
            return int(text)
        if _FLOAT.fullmatch(text) and not _INT.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
    return text
