"""Finding what a citation points at, and a fingerprint of it.

A code anchor is a path, a qualified symbol and, mostly, a few words that tell a statement inside it. Its fingerprint is
a digest of the normalised syntax tree of the statement, of the guards around it, and of the local assignments that
those guards read. Positions, comments, docstrings and the wording of messages don't count; every operator, name and
number of a condition does. The same source has the same fingerprint on every Python from 3.11 on.

A documentation anchor is a path and a heading; its fingerprint is that of the section's words.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_SPEAKING = re.compile(r"^(warn|warning|info|error|debug|critical|exception|log|print|.*rank.*|.*warn.*|.*log.*)$")
_MESSAGE_NAME = re.compile(r"(^|_)(msg|message|error|reason|warning)s?($|_)")
_SKIPPED = frozenset({"ctx", "type_comment", "kind", "type_params"})

Guard = tuple[ast.AST, bool]
"""A test around a statement, and whether it must be true (false: the statement is in its ``else``)."""


@dataclass(frozen=True)
class Found:
    """A place that was found.

    Attributes:
        lines: first and last line, 1-based.
        fingerprint: 12 hexadecimal digits.
    """

    lines: tuple[int, int]
    fingerprint: str


@dataclass(frozen=True)
class Missing:
    """Why nothing was found: no such ``file``, ``symbol``, ``statement`` or ``heading``."""

    what: str


class Module:
    """A parsed module.

    Raises:
        SyntaxError: it doesn't parse; also for source that is too deeply nested or has null bytes.
    """

    def __init__(self, raw: bytes) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in somebody else's text
                self.tree = ast.parse(raw)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error) or type(error).__name__) from None
        self._searches: dict[str, _Search] = {}

    def find(self, symbol: str, condition: str | None = None) -> Found | Missing:
        """A symbol, or the smallest statement in it that has all words of the condition.

        Args:
            symbol: qualified name of a class, method, function, or of a variable of the module or a class.
            condition: words separated by blanks: names, attributes, strings, numbers, ``None``, ``True``.
        """
        node = self._symbol(symbol)
        if node is None:
            return Missing("symbol")
        try:
            if not condition:
                return _found(node, _print([], node, node))
            if symbol not in self._searches:
                self._searches[symbol] = _Search(node)
            place = self._searches[symbol].best(set(condition.split()))
            return Missing("statement") if place is None else _found(place[0], _print(place[1], place[0], node))
        except RecursionError:
            raise SyntaxError(f"{symbol} is nested too deeply") from None

    def _symbol(self, symbol: str) -> ast.stmt | None:
        body: Sequence[ast.stmt] = self.tree.body
        node: ast.stmt | None = None
        for name in symbol.split("."):
            node = next((s for s in _flat(body) if name in _defines(s)), None)
            if node is None:
                return None
            body = getattr(node, "body", [])
        return node


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, also those under ``if`` and ``try``, as in ``if HAVE_TE: class ..``."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _flat(statement.body)
            yield from _flat(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from _flat(handler.body)


def _defines(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        return {t.id for t in statement.targets if isinstance(t, ast.Name)}
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return {statement.target.id}
    return set()


class _Search:
    """The smallest statement that has all words, itself or together with the guards around it."""

    def __init__(self, symbol: ast.stmt) -> None:
        self.places: list[tuple[ast.stmt, tuple[Guard, ...], set[str], int]] = []
        self._walk(symbol, (), top=True)

    def best(self, wanted: set[str]) -> tuple[ast.stmt, tuple[Guard, ...]] | None:
        """The place, or None.

        What enforces by itself goes before the rest, the more words in its own test the better; then the smallest; of
        two equally small ones the first.
        """
        found: tuple[tuple[int, int], ast.stmt, tuple[Guard, ...]] | None = None
        telling = {word for word in wanted if word.isidentifier() and word not in ("None", "True", "False")}
        for statement, guards, own, size in self.places:
            if not wanted <= own | set().union(*(_words(test) for test, _ in guards)):
                continue
            header = _words(_header(statement))
            if not wanted <= own and not telling & header:
                continue
            around = header.union(*(_words(test) for test, _ in guards))
            enforces = _enforces(statement) and telling & header and wanted <= around
            around_size = sum(1 for test, _ in guards for _ in ast.walk(test))
            rank = (-len(wanted & header) if enforces else 0, size + around_size)
            if found is None or rank < found[0]:
                found = (rank, statement, guards)
        return None if found is None else found[1:]

    def _walk(self, node: ast.stmt, guards: tuple[Guard, ...], top: bool = False) -> tuple[set[str], int]:
        """Words and size of a statement without its ``else``; every statement under it is noted."""
        parts: list[ast.AST] = _header(node)
        words, size = _words(parts), sum(1 for part in parts for _ in ast.walk(part))
        place = len(self.places)
        self.places.append((node, guards, words, size))
        test: tuple[Guard, ...] = ((parts[0], True),) if isinstance(node, ast.If | ast.While) else ()
        if isinstance(node, ast.For):
            test = ((node.iter, True),)
        for child in _children(node):
            if _is_docstring(child):
                continue
            more, bigger = self._walk(child, (*guards, *test))
            words, size = words | more, size + bigger
        for child in getattr(node, "orelse", []):
            self._walk(child, (*guards, *((t, False) for t, _ in test)))
        if top and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = set()  # a condition tells a statement in it, never all of it
        self.places[place] = (node, guards, words, size)
        return words, size


def _enforces(node: ast.stmt) -> bool:
    """Whether a statement asserts, or raises or warns where its test holds."""
    if isinstance(node, ast.If):
        return any(
            isinstance(s, ast.Raise) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and _speaks(s.value))
            for s in node.body
        )
    return isinstance(node, ast.Assert)


def _children(node: ast.stmt) -> Iterator[ast.stmt]:
    yield from getattr(node, "body", [])
    for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
        yield from part.body
    yield from getattr(node, "finalbody", [])


_BODIES = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})


def _header(node: ast.AST) -> list[ast.AST]:
    """The expressions of a statement outside its blocks."""
    if isinstance(node, ast.If | ast.While):
        return [node.test]
    if isinstance(node, ast.Assert):
        return [node.test]
    out: list[ast.AST] = []
    for name, value in ast.iter_fields(node):
        if name in _BODIES:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and not isinstance(each, ast.expr_context):
                out.append(each)
    return out


def _words(nodes: ast.AST | Sequence[ast.AST]) -> set[str]:
    """Names, attributes, keywords, strings (whole and word by word) and constants; no wording of messages."""
    out: set[str] = set()
    todo = list(nodes) if isinstance(nodes, Sequence) else [nodes]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call) and _speaks(node):
            todo.append(node.func)
            todo.extend(a for a in node.args if not _is_message(a))
            continue
        if isinstance(node, ast.Name):
            out.add(node.id)
        elif isinstance(node, ast.Attribute):
            out.add(node.attr)
        elif isinstance(node, ast.keyword | ast.arg) and node.arg:
            out.add(node.arg)
        elif isinstance(node, ast.Constant):
            out.add(str(node.value))
            if isinstance(node.value, str):
                out.update(node.value.split())
        todo.extend(ast.iter_child_nodes(node))
    return out


def _speaks(call: ast.Call) -> bool:
    """Whether a call raises or prints a message: its text doesn't count."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return bool(name.endswith(("Error", "Exception", "Warning")) or _SPEAKING.match(name))


def _is_message(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod) and (_is_message(node.left) or _is_message(node.right))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "format" and _is_message(node.func.value)
    return isinstance(node, ast.JoinedStr)


def _print(guards: Sequence[Guard], node: ast.stmt, symbol: ast.stmt) -> list[Any]:
    """What is digested: guards, statement, and where the names that decide come from."""
    tests = [test for test, _ in guards]
    deciding = tests if node is symbol else [*tests, *_header(node)]
    return [
        *([_plain(test), wanted] for test, wanted in guards),
        _plain(node, whole=node is symbol),
        *(_plain(s) for s in _sources(deciding, node, symbol)),
    ]


def _sources(tests: Sequence[ast.AST], node: ast.stmt, symbol: ast.stmt) -> list[ast.stmt]:
    """The assignments before ``node``, in its symbol, to local names that the tests read, and to those these read."""
    if node is symbol:
        return []
    before = [
        s
        for s in ast.walk(symbol)
        if isinstance(s, ast.Assign | ast.AnnAssign | ast.AugAssign) and s.lineno < node.lineno
    ]
    wanted, taken = _names(tests), dict[int, ast.stmt]()
    grew = True
    while grew:
        grew = False
        for s in before:
            targets = s.targets if isinstance(s, ast.Assign) else [s.target]
            if id(s) not in taken and any(isinstance(t, ast.Name) and t.id in wanted for t in targets):
                taken[id(s)] = s
                wanted |= _names([s.value] if s.value is not None else [])
                grew = True
    return sorted(taken.values(), key=lambda s: (s.lineno, s.col_offset))


def _names(nodes: Sequence[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _plain(node: Any, whole: bool = True) -> Any:
    """A syntax tree as nested lists that don't depend on positions, messages or the version of Python.

    Unless ``whole``, the ``else`` of the outermost ``if`` is left out.
    """
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Assert):
        return ["Assert", _plain(node.test)]
    if isinstance(node, ast.JoinedStr):
        return ["JoinedStr", *(_plain(v) for v in node.values if isinstance(v, ast.FormattedValue))]
    if isinstance(node, ast.Call) and _speaks(node):
        return ["Call", _plain(node.func), *(_plain(a) for a in node.args if not _is_message(a))]
    if isinstance(node, ast.Assign) and _is_message(node.value) and _tells(node.targets):
        return ["Assign", "message"]
    out: list[Any] = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in _SKIPPED or value is None or value == []:
            continue
        if name == "orelse" and isinstance(node, ast.If) and not whole:
            continue
        if name == "body" and isinstance(value, list):
            value = [s for s in value if not _is_docstring(s)]
        out.append([name, _plain(value)])
    return out


def _tells(targets: Sequence[ast.expr]) -> bool:
    return all(isinstance(t, ast.Name) and _MESSAGE_NAME.search(t.id) for t in targets)


def _is_docstring(statement: Any) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _found(node: ast.stmt, content: list[Any]) -> Found:
    last = node.body[-1] if isinstance(node, ast.If) else node  # without its ``else``
    return Found((node.lineno, last.end_lineno or node.lineno), _digest(repr(content)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[`*]|\{#[^}]*\}")


def find_section(raw: bytes, heading: str) -> Found | Missing:
    """A section of a Markdown file, by its heading's words; it ends before the next heading of its level or above."""
    wanted = _heading_words(heading)
    lines = raw.decode("utf-8", "replace").splitlines()
    start, level = 0, 0
    fence = ""
    for number, line in enumerate(lines, 1):
        if opened := _FENCE.match(line):
            mark = opened.group(1)
            fence = mark if not fence else ("" if mark.startswith(fence) else fence)
            continue
        if fence or not (match := _HEADING.match(line)):
            continue
        depth = len(match.group(1))
        if level and depth <= level:
            return _section(lines, start, number - 1)
        if not level and _heading_words(match.group(2)) == wanted:
            start, level = number, depth
    return _section(lines, start, len(lines)) if level else Missing("heading")


def _heading_words(text: str) -> str:
    return " ".join(_MARKUP.sub(lambda m: m.group(1) or "", text).split()).casefold()


def _section(lines: Sequence[str], first: int, last: int) -> Found:
    return Found((first, last), _digest(" ".join(" ".join(lines[first:last]).split())))
