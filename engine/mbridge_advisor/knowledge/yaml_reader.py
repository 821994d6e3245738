"""YAML as plain data: mappings with text keys, lists, text, numbers, true, false and null. Nothing else gets through.

Tags, anchors, aliases, merge keys, duplicate keys and several documents in one file are refused, so that a file can
neither run code nor grow when read. Unlike YAML 1.1, ``yes``, ``no``, ``on``, ``off`` and dates stay text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ..errors import KnowledgeError, Problem

MAX_BYTES = 5_000_000
MAX_DEPTH = 40
MAX_DIGITS = 18  # keeps whole numbers within 64 bits

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

Path_ = Sequence[str | int]


def show_path(path: Path_) -> str:
    """A path in a document as text: ``rules[3].when[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@dataclass(frozen=True)
class Document:
    """A file that was read.

    Attributes:
        file: what it is called in messages, relative to the root of the knowledge base.
        data: its content.
        text: its text; lines are looked up in it when asked for.
    """

    file: str
    data: Any
    text: str = field(repr=False, default="")

    def line(self, path: Path_ = ()) -> int | None:
        """The 1-based line of a place in the document, or of the nearest place around it."""
        node, line = self._node, None
        if node is None:
            return None
        for step in path:
            found = None
            if isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == step), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                found = (node.value[step], node.value[step])
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return int(line or node.start_mark.line + 1)

    def problem(self, path: Path_, reason: str, expected: str = "") -> Problem:
        """A mistake at a place in the document."""
        return Problem(self.file, self.line(path), show_path(path), reason, expected)

    @cached_property
    def _node(self) -> Any:
        # Safe: the text has been read once, so it has no aliases, no tags and little depth.
        return yaml.compose(self.text, Loader=_Loader) if self.text else None


def read(path: Path, file: str | None = None) -> Document:
    """Read a file.

    Args:
        path: the file.
        file: what to call it in messages; None = its path.

    Raises:
        KnowledgeError: it can't be read or has something that isn't allowed; all such mistakes up to the first that
            leaves the rest unreadable.
    """
    name = str(path) if file is None else file
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise KnowledgeError(
            [Problem(name, None, "", f"can't be read ({error.strerror})", "a readable file")]
        ) from None
    return parse(raw, name)


def parse(raw: bytes, file: str) -> Document:
    """Read the bytes of a file; see :func:`read`."""
    if len(raw) > MAX_BYTES:
        raise KnowledgeError([Problem(file, None, "", "is too long", f"at most {MAX_BYTES} bytes")])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise KnowledgeError([Problem(file, line, "", "isn't UTF-8 text", "UTF-8")]) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise KnowledgeError([Problem(file, line, "", "holds a NUL character", "text")])
    return Document(file, _Reader(file).read(text), text)


class _UnreadableError(Exception):
    """A mistake after which the rest can't be read."""


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.events: Iterator[Any] = iter(())

    def read(self, text: str) -> Any:
        data = None
        try:
            self.events = yaml.parse(text, Loader=_Loader)
            next(self.events)  # stream start
            start = next(self.events)
            if isinstance(start, yaml.DocumentStartEvent):
                if start.tags:
                    self.problem(start, "has a %TAG directive", "no tags")
                data = self.value(next(self.events), 0)
                next(self.events)  # document end
                second = next(self.events)
                if isinstance(second, yaml.DocumentStartEvent):
                    self.problem(second, "a second document starts here", "one document in a file")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
            what = " ".join(filter(None, (error.context, error.problem)))
            self.problems.append(Problem(self.file, line, "", f"isn't YAML ({what})", "YAML"))
        except (yaml.YAMLError, UnicodeError) as error:
            reason = str(error).splitlines()[0]
            self.problems.append(Problem(self.file, None, "", f"isn't YAML ({reason})", "YAML"))
        except _UnreadableError:
            pass
        if self.problems:
            raise KnowledgeError(self.problems)
        return data

    def problem(self, event: Any, reason: str, expected: str) -> None:
        self.problems.append(Problem(self.file, event.start_mark.line + 1, "", reason, expected))

    def value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is yaml.AliasEvent:
            self.problem(event, f"has the alias *{event.anchor}", "the value itself; aliases aren't allowed")
            return None
        if event.anchor is not None:
            self.problem(event, f"has the anchor &{event.anchor}", "no anchors")
        if event.tag is not None:
            self.problem(event, f"has the tag {event.tag}", "no tags")
        if kind is yaml.ScalarEvent:
            return self.plain(event) if event.implicit[0] else event.value
        if depth == MAX_DEPTH:
            self.problem(event, "is nested too deep", f"at most {MAX_DEPTH} levels")
            raise _UnreadableError
        if kind is yaml.SequenceStartEvent:
            items = []
            while type(item := next(self.events)) is not yaml.SequenceEndEvent:
                items.append(self.value(item, depth + 1))
            return items
        return self.mapping(depth)

    def mapping(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while type(key := next(self.events)) is not yaml.MappingEndEvent:
            if type(key) is not yaml.ScalarEvent or key.tag is not None or key.anchor is not None:
                self.problem(key, "has a key that isn't plain text", "a text key")
                if type(key) is not yaml.ScalarEvent:
                    raise _UnreadableError
            if key.value in out:
                self.problem(key, f"the key {key.value!r} stands twice in one mapping", "each key once")
            out[key.value] = self.value(next(self.events), depth + 1)
        return out

    def plain(self, event: Any) -> Any:
        text: str = event.value
        if text in _WORDS:
            return _WORDS[text]
        if text[0] in "-+.0123456789":
            if _INT.fullmatch(text):
                if len(text.lstrip("-+0")) <= MAX_DIGITS:
                    return int(text)
                self.problem(event, "is too large a number", f"at most {MAX_DIGITS} digits")
            elif _FLOAT.fullmatch(text):
                number = float(text)
                if math.isfinite(number):
                    return number
                self.problem(event, "is too large a number", "a finite number")
        return text
