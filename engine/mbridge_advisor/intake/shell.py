"""Read a launch script without running it: its variables, its commands as lists of words, its ``#SBATCH`` lines.

Assignments, arrays, ``${X:-default}``, arithmetic and simple string tests are followed. What depends on the outside (a
command's output, an argument, an unset variable) stays as it is written, with its ``$``. Of an ``if`` that can't be
decided the first branch is read. Loops and functions are read once.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import RequestError

MAX_TEXT = 100_000  # characters of one value; doubling variables end here
MAX_WORDS = 200_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
_CLOSER = {"(": ")", "{": "}"}


@dataclass
class Script:
    """What a script says.

    Attributes:
        commands: words of each command, expanded.
        variables: name -> value of scalars, words of arrays.
        exported: variables that processes see.
        sbatch: words of all ``#SBATCH`` lines.
        undecided: conditions whose first branch was read.
    """

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str | list[str]] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    sbatch: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def read_script(text: str, preset: dict[str, str] | None = None) -> Script:
    """Read a script.

    Args:
        text: the script.
        preset: variables that are known from elsewhere.

    Raises:
        RequestError: it isn't shell (an unclosed quote, a value without end).
    """
    script = Script()
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            script.sbatch += _split(re.sub(r"\s#.*", "", line[7:]))
    script.variables.update(preset or {})
    _run(_statements(text), script)
    return script


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _statements(text: str) -> Iterator[list[str]]:
    """Commands as lists of raw words, quotes kept; an array is one word."""
    words: list[str] = []
    at, total = 0, 0
    while at < len(text):
        c = text[at]
        if c == "\\" and text[at + 1 : at + 2] == "\n":
            at += 2
        elif c == "\\" and text[at + 1 : at + 3] == "\r\n":
            at += 3
        elif c in " \t\r":
            at += 1
        elif c == "#":
            at = _line_end(text, at)
        elif c in "\n;&|()":
            if words:
                yield words
                words = []
            at += 1
        else:
            end = _word_end(text, at)
            words.append(text[at:end])
            total += 1
            if total > MAX_WORDS:
                raise RequestError("file", None, "has too many words for a script", "Give the launch script only.")
            at = end
    if words:
        yield words


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _word_end(text: str, at: int) -> int:
    start = at
    while at < len(text):
        c = text[at]
        if c == "\\":
            if text[at + 1 : at + 2] == "\n":
                return at
            at += 2
        elif c in "'\"`":
            at = _quoted_end(text, at)
        elif c == "$" and text[at + 1 : at + 2] in ("(", "{"):
            at = _bracket_end(text, at + 1)
        elif c == "(" and at > start and text[at - 1] == "=" and _ASSIGN.match(text, start):
            return _bracket_end(text, at)
        elif c in " \t\r\n;&|()":
            return max(at, start + 1)
        else:
            at += 1
    return len(text)


def _quoted_end(text: str, at: int) -> int:
    quote, at = text[at], at + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote != "'" else 1
    return min(at + 1, len(text))


def _bracket_end(text: str, at: int) -> int:
    """Past the bracket that closes the one at ``at``; quotes and comments inside are skipped."""
    depth, open_, close = 0, text[at], _CLOSER[text[at]]
    array = open_ == "("
    while at < len(text):
        c = text[at]
        if c == "\\":
            at += 2
            continue
        if c in "'\"`":
            at = _quoted_end(text, at)
            continue
        if c == "#" and array and text[at - 1] in " \t\n":
            at = _line_end(text, at)
            continue
        depth += (c == open_) - (c == close)
        at += 1
        if depth == 0:
            return at
    return len(text)


def _run(statements: Iterator[list[str]], script: Script) -> None:
    # Of each open `if`: is this branch read, has one been read, was it read in the first place.
    stack: list[list[bool]] = []
    for words in statements:
        while words and words[0] in ("then", "do", "{", "}", "done", "time", "exec", "!"):
            words = words[1:]
        if not words:
            continue
        head = words[0]
        live = all(branch[0] for branch in stack)
        if head in ("if", "elif"):
            if head == "if":
                stack.append([False, False])
                live = live and True
            elif not stack:
                continue
            above = all(branch[0] for branch in stack[:-1])
            verdict = False
            if above and not stack[-1][1]:
                verdict = _test(words[1:], script)
            stack[-1] = [verdict, stack[-1][1] or verdict]
        elif head == "else" and stack:
            stack[-1] = [not stack[-1][1], True]
            if len(words) > 1 and all(branch[0] for branch in stack):
                _command(words[1:], script)
        elif head == "fi" and stack:
            stack.pop()
        elif live:
            _command(words, script)


def _test(words: list[str], script: Script) -> bool:
    """A condition; one that can't be decided counts as true."""
    shown = " ".join(words)[:100]
    inner = [w for w in words if w not in ("[", "[[", "]", "]]", "test")]
    if len(inner) == 2 and inner[0] in ("-z", "-n"):
        value = " ".join(_expand(inner[1], script))
        if "$" not in value:
            return (value == "") == (inner[0] == "-z")
    if len(inner) == 3 and inner[1] in ("=", "==", "!=", "-eq", "-ne", "-gt", "-lt", "-ge", "-le"):
        left, right = (" ".join(_expand(inner[n], script)) for n in (0, 2))
        if "$" not in left + right:
            if inner[1] in ("=", "=="):
                return left == right
            if inner[1] == "!=":
                return left != right
            a, b = _number(left), _number(right)
            if a is not None and b is not None:
                return {"-eq": a == b, "-ne": a != b, "-gt": a > b, "-lt": a < b, "-ge": a >= b, "-le": a <= b}[
                    inner[1]
                ]
    script.undecided.append(shown)
    return True


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else None


def _command(words: list[str], script: Script) -> None:
    export = words[0] in ("export", "declare", "local", "readonly", "typeset")
    if export:
        words = [w for w in words[1:] if not w.startswith("-")]
    assigned: dict[str, str] = {}
    while words:
        match = _ASSIGN.match(words[0])
        if match is None:
            break
        name, more, raw = match[1], match[2], words[0][match.end() :]
        before = script.variables.get(name)
        if raw.startswith("("):
            items = [w for words_ in _statements(raw[1:-1]) for word in words_ for w in _expand(word, script)]
            old = before if isinstance(before, list) else [before] if before else []
            script.variables[name] = (old if more else []) + items
        else:
            value = " ".join(_expand(raw, script, split=False))
            old = before if isinstance(before, list) else [before or ""]
            value = "".join(old[:1]) + value if more else value
            # A plain value assigned to an array is its first element.
            script.variables[name] = [value, *old[1:]] if isinstance(before, list) else value
            assigned[name] = value
        _bounded(script.variables[name])
        words = words[1:]
    if export:
        script.exported.update(assigned)
        for name in words:
            known = script.variables.get(name)
            if isinstance(known, str):
                script.exported[name] = known
        return
    if not words:
        return
    script.exported.update(assigned)
    expanded = [w for word in words for w in _expand(word, script)]
    _bounded(expanded)
    script.commands.append(expanded)


def _bounded(value: str | list[str]) -> None:
    size = len(value) if isinstance(value, str) else sum(map(len, value)) + len(value)
    if size > MAX_TEXT:
        raise RequestError("file", None, "has a variable that grows without end", "Give the arguments themselves.")


def _expand(raw: str, script: Script, split: bool = True) -> list[str]:
    """A raw word as words: quotes removed, variables replaced; unquoted values are split at blanks."""
    out: list[str] = []
    current: list[str] = []
    started = False
    at = 0

    def add(text: str) -> None:
        current.append(text)

    def add_split(values: list[str], quoted: bool) -> None:
        nonlocal started
        parts = values if quoted else [p for v in values for p in v.split()] if split else values
        if not split:
            add(" ".join(parts))
            return
        for n, part in enumerate(parts):
            if n:
                out.append("".join(current))
                current.clear()
            add(part)
            started = True

    while at < len(raw):
        c = raw[at]
        if c == "'":
            end = _quoted_end(raw, at)
            add(raw[at + 1 : end - 1])
            started, at = True, end
        elif c == '"':
            end = _quoted_end(raw, at)
            started = True
            inner = raw[at + 1 : end - 1]
            pos = 0
            while pos < len(inner):
                if inner[pos] == "\\" and pos + 1 < len(inner):
                    if inner[pos + 1] == "\n":
                        add(" ")
                    elif inner[pos + 1] in '"\\$`':
                        add(inner[pos + 1])
                    else:
                        add(inner[pos : pos + 2])
                    pos += 2
                elif inner[pos] == "$":
                    values, pos = _variable(inner, pos, script)
                    add_split(values, True)
                else:
                    add(inner[pos])
                    pos += 1
            at = end
        elif c == "$":
            values, at = _variable(raw, at, script)
            add_split(values, False)
        elif c == "\\" and at + 1 < len(raw):
            add("" if raw[at + 1] == "\n" else raw[at + 1])
            started, at = True, at + 2
        else:
            add(c)
            started, at = True, at + 1
    if started or current:
        out.append("".join(current))
    return out


def _variable(text: str, at: int, script: Script) -> tuple[list[str], int]:
    """The value of what starts at a ``$``, and where it ends; unknown ones stay as written."""
    rest = text[at + 1 :]
    if rest.startswith("(("):
        end = _bracket_end(text, at + 1)
        value = _arithmetic(text[at + 3 : end - 2], script)
        return [text[at:end] if value is None else str(value)], end
    if rest.startswith("("):
        end = _bracket_end(text, at + 1)
        return [text[at:end]], end
    if rest.startswith("{"):
        end = _bracket_end(text, at + 1)
        match = re.fullmatch(r"([A-Za-z_]\w*|\d+|@|\*)(\[[@*]\])?(?:(:?[-=+])(.*))?", text[at + 2 : end - 1], re.DOTALL)
        if match is None:
            return [text[at:end]], end
        name, sign, other = match[1], match[3], match[4]
        known = script.variables.get(name)
        if isinstance(known, list) and match[2] is None:
            known = known[0] if known else ""
        if sign and sign.endswith("+"):
            return (_expand_inner(other, script) if known else [""]), end
        if known is not None and (known or not (sign and sign.startswith(":"))):
            return (known if isinstance(known, list) else [known]), end
        if sign:
            return _expand_inner(other, script), end
        return [text[at:end]], end
    match = _NAME.match(rest)
    if match is None:
        return ["$" + rest[:1]], at + 1 + len(rest[:1])
    known = script.variables.get(match[0])
    end = at + 1 + match.end()
    if known is None:
        return [text[at:end]], end
    return (known[:1] if isinstance(known, list) else [known]), end


def _expand_inner(text: str, script: Script) -> list[str]:
    return [" ".join(_expand(text, script, split=False))]


def _arithmetic(text: str, script: Script) -> int | None:
    """A sum, product, quotient or difference of numbers and variables."""

    def value(match: re.Match[str]) -> str:
        known = script.variables.get(match[1])
        return known if isinstance(known, str) and _number(known) is not None else "?"

    plain = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", value, text)
    if not re.fullmatch(r"[\d\s+\-*/%()]{1,200}", plain) or "**" in plain:
        return None
    try:
        tree = ast.parse(plain.strip().replace("/", "//"), mode="eval")
        return _sum(tree.body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _sum(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_sum(node.operand)
    if isinstance(node, ast.BinOp):
        a, b = _sum(node.left), _sum(node.right)
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult) and abs(a) < 10**15 and abs(b) < 10**15:
            return a * b
        if isinstance(node.op, ast.FloorDiv):
            return a // b
        if isinstance(node.op, ast.Mod):
            return a % b
    raise ValueError
