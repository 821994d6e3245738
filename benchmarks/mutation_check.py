"""Changes one condition of the real source at a time, and shows whether ``verify`` reports it.

    python benchmarks/mutation_check.py --bridge-source DIR --core-source DIR [--revision v0.6.0] [--number 20]

Places are drawn at random from the recorded code anchors. In each, one comparison, ``and``/``or``, ``not`` or number is
changed in memory; the given sources stay as they are. Exit code 1 if any change goes unnoticed.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbridge_advisor.errors import AdvisorError
from mbridge_advisor.evidence.anchors import Found
from mbridge_advisor.evidence.source import Layout, Source
from mbridge_advisor.evidence.verify import Verification, open_sources, verify_sources
from mbridge_advisor.knowledge import load

SWAPS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


@dataclass(frozen=True)
class Overlay:
    """A source with one file changed."""

    under: Source
    path: str
    content: bytes

    @property
    def repo(self) -> str:
        return self.under.repo

    @property
    def layout(self) -> Layout:
        return self.under.layout

    @property
    def commit(self) -> str | None:
        return self.under.commit

    def read(self, path: str) -> bytes | None:
        return self.content if path == self.path else self.under.read(path)

    def files(self) -> Iterable[str]:
        return self.under.files()

    def __str__(self) -> str:
        return f"{self.under} (changed)"


def mutations(raw: bytes, lines: tuple[int, int]) -> Iterator[tuple[bytes, str]]:
    """Every way to change one operator or number of a test that begins between two lines, with what was changed.

    Args:
        raw: a module's text.
        lines: first and last line, 1-based.
    """
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int | None, column: int | None) -> int:
        return starts[(line or 1) - 1] + (column or 0)

    def swap(first: int, last: int, old: str, new: str) -> Iterator[tuple[bytes, str]]:
        place = raw.find(old.encode(), first, last)
        if place >= 0:
            yield raw[:place] + new.encode() + raw[place + len(old) :], f"{old} -> {new or 'nothing'}"

    for statement in ast.walk(ast.parse(raw)):
        if not isinstance(statement, ast.If | ast.Assert) or not lines[0] <= statement.lineno <= lines[1]:
            continue
        for node in ast.walk(statement.test):
            if isinstance(node, ast.Compare):
                left: ast.expr = node.left
                for operator, right in zip(node.ops, node.comparators, strict=True):
                    old, new = SWAPS[type(operator)]
                    between = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
                    yield from swap(*between, old, new)
                    left = right
            elif isinstance(node, ast.BoolOp):
                words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                first, second = node.values[:2]
                between = at(first.end_lineno, first.end_col_offset), at(second.lineno, second.col_offset)
                yield from swap(*between, f" {words[0]} ", f" {words[1]} ")
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                yield from swap(at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset), "not ", "")
            elif isinstance(node, ast.Constant) and type(node.value) is int:
                span = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
                yield from swap(*span, str(node.value), str(node.value + 1))


@dataclass(frozen=True)
class Trial:
    """One change, and the anchors that ``verify`` reported for it."""

    where: str
    change: str
    noticed: tuple[str, ...]
    target: str

    def to_dict(self) -> dict[str, Any]:
        return {"where": self.where, "change": self.change, "target": self.target, "reported": list(self.noticed)}


def trials(bridge: Path, core: Path, tag: str, number: int, seed: int) -> Iterator[Trial]:
    """Make the changes, one at a time."""
    knowledge = load()
    sources, revision, _ = open_sources(knowledge, bridge, core, tag)
    clean = verify_sources(knowledge, sources, revision)
    if clean.exit_code:
        raise SystemExit("The unchanged source isn't as reviewed; run `mbridge-advisor verify` first.")
    rng = random.Random(seed)
    anchors = [s for s in clean.sightings if s.place.kind == "code" and s.state in ("holds", "moved")]
    rng.shuffle(anchors)
    taken: set[tuple[str, tuple[int, int]]] = set()
    for sighting in anchors:
        assert isinstance(sighting.found, Found)
        where = (sighting.path, sighting.found.lines)
        raw = sources[sighting.place.repo].read(sighting.path)
        if raw is None or where in taken:
            continue
        choices = [m for m in mutations(raw, sighting.found.lines) if _parses(m[0])]
        if not choices:
            continue
        taken.add(where)
        content, change = rng.choice(choices)
        changed = {**sources, sighting.place.repo: Overlay(sources[sighting.place.repo], sighting.path, content)}
        found: Verification = verify_sources(knowledge, changed, revision)
        noticed = tuple(s.place.key for s in found.sightings if s.state in ("changed", "missing"))
        yield Trial(f"{sighting.path}:{sighting.found.lines[0]}", change, noticed, sighting.place.key)
        if len(taken) == number:
            return


def _parses(raw: bytes) -> bool:
    try:
        ast.parse(raw)
    except SyntaxError:
        return False
    return True


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bridge-source", type=Path, required=True)
    parser.add_argument("--core-source", type=Path, required=True)
    parser.add_argument("--revision", default="v0.6.0")
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    done = []
    try:
        for trial in trials(options.bridge_source, options.core_source, options.revision, options.number, options.seed):
            done.append(trial)
            if not options.json:
                mark = "reported" if trial.target in trial.noticed else "MISSED"
                print(f"{mark}: {trial.where}: {trial.change} ({len(trial.noticed)} anchors)", flush=True)
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    caught = sum(t.target in t.noticed for t in done)
    if options.json:
        print(json.dumps({"changes": len(done), "reported": caught, "trials": [t.to_dict() for t in done]}, indent=2))
    else:
        print(f"{caught} of {len(done)} reported")
    return int(caught < len(done))


if __name__ == "__main__":
    sys.exit(main())
