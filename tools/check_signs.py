"""Looks every message of Bridge and Core that the knowledge base recognises up in their source, release by release.

    python tools/check_signs.py BRIDGE CORE [--write]

BRIDGE and CORE are git repositories with the releases' tags and pinned commits. Nothing of them is run: files are
parsed, and each template (the ``signs`` of rules, the ``in_log`` of terms) is held against their string literals, where
a value of an f-string, a ``%`` or ``{}`` field matches a captured value or a gap, and literals that stand side by side
are one. ``--write`` records at which releases each was found in tests/data/sign_places.yaml, which the tests compare
with the ranges that the knowledge base claims.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import yaml
from mbridge_advisor.evidence.source import BRIDGE, CORE, Source, open_source
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.model import Knowledge
from mbridge_advisor.knowledge.signs import plain

RECORD = Path(__file__).resolve().parents[1] / "tests" / "data" / "sign_places.yaml"
REPOS = {"bridge": BRIDGE, "core": CORE}
FOLDERS = {BRIDGE: ("src/", "scripts/"), CORE: ("megatron/",)}
GAP = "\x00"  # a value in a literal
_FIELD = re.compile(r"%\.?\d*[sdfrgx]|\{[^{}\s]{0,40}\}")
_RAISED = re.compile(r"^\w+Error: (?:\.\.\.)?")  # Python's own words before a message
_HOLE = re.compile(r"\{[A-Za-z_]\w*(?:\*[0-9.e+-]+)?\}|\.\.\.")


def messages(source: Source) -> str:
    """All string literals, one a line, values replaced by gaps, in lower case."""
    out: set[str] = set()
    for path in source.files():
        if path.endswith(".py") and path.startswith(FOLDERS[source.repo]) and (raw := source.read(path)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about escapes in the source that is read
                    tree = ast.parse(raw)
            except SyntaxError:
                continue
            out.update(plain(_FIELD.sub(GAP, text)).lower() for text in _literals(tree))
    return "\n".join(sorted(out))


def _literals(node: ast.AST) -> Iterator[str]:
    text = _text(node)
    if text is not None:
        yield text
        return
    grown: dict[str, str] = {}  # texts that a block of statements puts together: msg = "..", msg += ".."
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (part := _text(value)) is not None:
                grown[name] = part
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if name in grown:
                grown[name] += _text(value) or GAP
        yield from _literals(child)
    yield from grown.values()


def _text(node: ast.AST) -> str | None:
    """The text of a literal, of an f-string, or of a sum with one; None of anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else GAP for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        if left is not None or right is not None:
            return (GAP if left is None else left) + (GAP if right is None else right)
    return None


def pattern(template: str) -> re.Pattern[str]:
    """What a template looks like in the source: its words in order in one literal, with gaps for values."""
    template = _RAISED.sub("", template)
    words = _HOLE.split(template)
    holes = _HOLE.findall(template)
    out = re.escape(plain(words[0]).strip().lower())
    for hole, run in zip(holes, words[1:], strict=True):
        # A value may be a gap of the literal, or written out there; a gap of the template is anything between words.
        left, right = (r"(?![a-z_])", r"(?<![a-z_])") if hole == "..." else ("", "")
        run = re.escape(plain(run).strip().lower())
        out += f"{left}[^\n]{{0,400}}?{right}{run}" if run else ""
    return re.compile(out.replace("\\ ", f"[ {GAP}]{{1,3}}"))


# Messages that the source puts together from parts, so that no literal has all their words; read by a person.
COMPOSED = {
    "Invalid cuda graph implementation: full_iteration": "the value is the setting",
    "Unexpected result nan": "the value is the result",
    "tensor_parallel_num_weight_shards (...) must be divisible by tensor": "the names of the fields are arguments",
    "expert_tensor_parallel_num_weight_shards (...) must be divisible by": "the names of the fields are arguments",
    "No such file or directory: ... .idx": "Python's own message, with the path of the index",
}


def claims(base: Knowledge) -> dict[str, tuple[str, list[str]]]:
    """Template -> (who prints it, tags at which it is said to be worded so)."""
    return {
        sign.text: (sign.by, [r.tag for r in base.revisions.values() if r.within(sign.bridge)])
        for rule in base.rules.values()
        for sign in rule.signs
        if sign.by in REPOS and not rule.withdrawn and sign.text not in COMPOSED
    }


def places(base: Knowledge, roots: dict[str, Path]) -> dict[str, dict[str, list[str]]]:
    """Template -> repository -> tags at which it was found."""
    wanted = {**{text: by for text, (by, _) in claims(base).items()}}
    shown = {text: "" for term in base.terms.values() for text in term.in_log}
    patterns = {text: pattern(text) for text in (*wanted, *shown)}
    found: dict[str, dict[str, list[str]]] = {text: {} for text in patterns}
    for revision in base.revisions.values():
        for name, repo in REPOS.items():
            at = revision.tag if repo == BRIDGE else revision.core_commit
            text = messages(open_source(repo, roots[name], at))
            for template, compiled in patterns.items():
                if compiled.search(text):
                    found[template].setdefault(name, []).append(revision.tag)
    return found


def wrong(base: Knowledge, found: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    """Claims that differ from what was found."""
    for text, (by, tags) in claims(base).items():
        at = found.get(text, {}).get(by, [])
        if at != tags:
            yield f"{text!r} by {by}: said to be worded so at {', '.join(tags)}, found at {', '.join(at) or 'none'}"


def main() -> int:
    """Look up, print what contradicts a claim, and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bridge", type=Path)
    parser.add_argument("core", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    base = load()
    found = places(base, {"bridge": options.bridge, "core": options.core})
    if options.write:
        head = "# Written by tools/check_signs.py: message -> who prints it -> releases in whose source it was found.\n"
        RECORD.write_text(
            head + yaml.safe_dump(found, sort_keys=True, width=1000, default_flow_style=None), encoding="utf-8"
        )
    mistakes = list(wrong(base, found))
    print("\n".join(mistakes) or f"{len(found)} messages found where they are claimed")
    return int(bool(mistakes))


if __name__ == "__main__":
    sys.exit(main())
