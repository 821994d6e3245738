"""What a change of the knowledge base does: to its entries, to the matrix, and to the answers.

The last is what matters and what the text of a change doesn't show: a corpus of scenarios is asked of both sides, and
the differences are counted, with examples.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import AdvisorError, RequestError
from ..knowledge.load import assemble, check, load_recipes
from ..knowledge.model import Knowledge, Rule, Value
from ..knowledge.snapshot import read as read_snapshot
from ..knowledge.sources import MATRIX, Files
from . import matrix
from .source import git, git_bytes
from .store import load_evidence

Progress = Callable[[str, float], None]
TOP = 3
EXAMPLES = 3
NOTICED = 0.001  # a figure that moves by less is the same
GRID_MODELS = (
    *("llama3-8b", "llama3-70b", "llama3.1-405b", "gemma3-27b", "qwen2.5-32b", "gpt3-175b", "nemotron-h-56b"),
    *("mixtral-8x7b", "qwen3-30b-a3b", "glm-4.5-air", "gpt-oss-120b", "deepseek-v3", "kimi-k2"),
)
GRID_SYSTEMS = (("H100", 64), ("H100", 512), ("H200", 256), ("B200", 128), ("GB200", 1024))
GRID_LENGTHS = (4096, 65536)  # tokens


@dataclass(frozen=True)
class Scenario:
    """One question. ``by``: what is asked, ``check`` or ``advise``."""

    id: str
    by: Literal["check", "advise"]
    request: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One entry of the knowledge base that differs.

    Attributes:
        kind: rules, quantities, terms, revisions, gpus, models, calibration.
        change: ``added``, ``changed``, ``withdrawn`` or ``removed``.
        fields: name -> (before, after), where changed.
    """

    kind: str
    name: str
    change: Literal["added", "changed", "withdrawn", "removed"]
    fields: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Effect:
    """How one answer differs. ``what`` sorts it: a verdict, a rule, a size, the top grid, a figure, an error."""

    scenario: Scenario
    what: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Review:
    """Everything that a change does.

    Attributes:
        entries: what was added, changed, withdrawn or removed.
        cells: (rule, release, before, after) of matrix cells that differ, in words.
        effects: how answers differ.
        asked: number of scenarios by kind.
    """

    base: str
    head: str
    versions: tuple[str, str]
    entries: tuple[Entry, ...]
    cells: tuple[tuple[str, str, str, str], ...]
    effects: tuple[Effect, ...]
    asked: Mapping[str, int]

    @property
    def exit_code(self) -> int:
        """1 where a verdict or a recommended grid changes, a rule is removed, or one loses what it had earned."""
        grave = ("verdict", "top grid", "answer")
        lost = any(b.endswith("code_verified") and not a.endswith("code_verified") for _, _, b, a in self.cells)
        removed = any(e.change == "removed" and e.kind == "rules" for e in self.entries)
        return int(lost or removed or any(e.what.startswith(grave) for e in self.effects))

    @property
    def counts(self) -> dict[str, int]:
        """What differs -> in how many scenarios, most first."""
        return dict(Counter(e.what for e in self.effects).most_common())

    def examples(self, what: str) -> list[Effect]:
        """A few scenarios of one kind of difference."""
        return [e for e in self.effects if e.what == what][:EXAMPLES]

    def to_dict(self) -> dict[str, Any]:
        """As data."""
        return {
            "base": self.base,
            "head": self.head,
            "versions": {"base": self.versions[0], "head": self.versions[1]},
            "entries": [
                {
                    "kind": e.kind,
                    "name": e.name,
                    "change": e.change,
                    "fields": {name: {"before": b, "after": a} for name, (b, a) in e.fields.items()},
                }
                for e in self.entries
            ],
            "matrix": [{"rule": r, "revision": t, "before": b, "after": a} for r, t, b, a in self.cells],
            "asked": dict(self.asked),
            "effects": {
                what: {
                    "scenarios": number,
                    "examples": [
                        {"scenario": e.scenario.id, "request": e.scenario.request, "before": e.before, "after": e.after}
                        for e in self.examples(what)
                    ],
                }
                for what, number in self.counts.items()
            },
        }


@contextmanager
def opened(name: str, root: Path) -> Iterator[Knowledge]:
    """The knowledge base of a folder, or of a commit, branch or tag of the repository at ``root``.

    Raises:
        RequestError: it is neither.
        KnowledgeError: it has mistakes.
    """
    if (Path(name) / "knowledge" / "vocabulary.yaml").is_file():
        yield read(Path(name).resolve())
        return
    commit = ""
    if (root / ".git").exists():
        commit = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
    if not commit.strip():
        raise RequestError("BASE or HEAD", name, "is no commit and no folder with knowledge/", "Name one of the two.")
    listed = git(root, "ls-tree", "--name-only", commit.strip()).split()
    wanted = [part for part in ("knowledge", MATRIX) if part in listed]
    if "knowledge" not in wanted:
        raise RequestError("BASE or HEAD", name, "has no knowledge/", "Name a commit of the knowledge base.")
    raw = git_bytes(root, "archive", "--format=tar", commit.strip(), *wanted)
    with tempfile.TemporaryDirectory(prefix="mbridge-review-") as folder:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            archive.extractall(folder, filter="data")
        yield read(Path(folder))


def read(root: Path) -> Knowledge:
    """A knowledge base, without leaving a snapshot of it."""
    files = Files.read(root)
    content = read_snapshot(root, files.digest) or check(root, files)
    return assemble(content, files.digest, root)


def review(
    base: str,
    head: str | None,
    root: Path,
    scenarios: Sequence[Scenario] = (),
    progress: Progress = lambda stage, share: None,
    *,
    corpus: bool = True,
) -> Review:
    """Compare two states of the knowledge base.

    Args:
        base, head: a commit, branch or tag of the repository at ``root``, or a folder; no head = ``root`` as it is.
        root: the folder that holds ``knowledge/``.
        scenarios: questions beside the built-in ones.
        progress: called with what is done and the share done.
        corpus: whether to ask the built-in questions, every shipped recipe and the grid of requests.

    Raises:
        RequestError: a name that is no state of the knowledge base.
        KnowledgeError: a state that has mistakes.
    """
    with ExitStack() as stack:
        before = stack.enter_context(opened(base, root))
        after = stack.enter_context(opened(head or str(root), root))
        asked = list(scenarios)
        if corpus:
            asked += [*recipe_scenarios(before, after), *grid_scenarios(after)]
        same = before.digest == after.digest
        effects = [] if same else list(_effects(before, after, asked, progress))
        return Review(
            base,
            head or "work tree",
            (before.version, after.version),
            tuple(_entries(before, after)),
            tuple(_cells(before, after)),
            tuple(effects),
            dict(Counter(s.by for s in asked)),
        )


def recipe_scenarios(*bases: Knowledge) -> list[Scenario]:
    """A ``check`` of every recipe that the vendor ships, each distinct configuration once."""
    from ..intake.recipe import request_of_recipe

    found: dict[str, Scenario] = {}
    for base in bases:
        for path in sorted((Path(base.root) / "knowledge" / "facts" / "recipes").glob("*.yaml")):
            for row in load_recipes(base, path.stem):
                request = request_of_recipe(row, base)
                found.setdefault(json.dumps(request, sort_keys=True), Scenario(f"recipe {row['id']}", "check", request))
    return list(found.values())


def grid_scenarios(base: Knowledge) -> list[Scenario]:
    """``advise`` for models on systems of several sizes, those that the knowledge base has."""
    return [
        Scenario(
            f"{model} on {gpus} {gpu}, {length} tokens",
            "advise",
            {"model": model, "cluster": {"gpu": gpu, "gpus": gpus}, "training": {"seq_length": length}},
        )
        for model in GRID_MODELS
        for gpu, gpus in GRID_SYSTEMS
        for length in GRID_LENGTHS
        if model in base.models and gpu in base.gpus
    ]


def read_scenarios(path: Path) -> list[Scenario]:
    """Scenarios from a file of JSON lines: ``{"id": .., "by": "check" or "advise", "request": {..}}``.

    Raises:
        RequestError: a line isn't one.
    """
    out = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise RequestError("--scenarios", str(path), f"can't be read ({error})", "Give a file of JSON lines.") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            by, request = data.get("by", "check"), data["request"]
            if by not in ("check", "advise") or not isinstance(request, dict):
                raise ValueError("by is check or advise, request an object")
            out.append(Scenario(str(data.get("id", f"line {number}")), by, request))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise RequestError(
                "--scenarios", f"{path}:{number}", f"isn't a scenario ({error})", "Give id, by and request."
            ) from None
    return out


def _entries(before: Knowledge, after: Knowledge) -> Iterator[Entry]:
    for kind in ("rules", "quantities", "terms", "revisions", "gpus", "models", "calibration"):
        old, new = getattr(before, kind), getattr(after, kind)
        for name in dict.fromkeys([*old, *new]):
            if name not in old:
                yield Entry(kind, name, "added", {})
            elif name not in new:
                yield Entry(kind, name, "removed", {})
            else:
                was, now = _plain(old[name]), _plain(new[name])
                fields = {key: (was.get(key), now.get(key)) for key in now | was if was.get(key) != now.get(key)}
                if fields:
                    gone = isinstance(new[name], Rule) and new[name].withdrawn and not old[name].withdrawn
                    yield Entry(kind, name, "withdrawn" if gone else "changed", fields)


def _plain(thing: Any) -> dict[str, Any]:
    data = dict(thing) if isinstance(thing, Mapping) else asdict(thing)
    data.pop("file", None)
    data.pop("line", None)
    plain: dict[str, Any] = json.loads(json.dumps(data, default=str))
    return plain


def _cells(before: Knowledge, after: Knowledge) -> Iterator[tuple[str, str, str, str]]:
    old, new = _words(before), _words(after)
    for key in dict.fromkeys([*old, *new]):
        was, now = old.get(key, "none"), new.get(key, "none")
        if was != now:
            yield (*key, was, now)


def _words(base: Knowledge) -> dict[tuple[str, str], str]:
    evidence = load_evidence(Path(base.root))
    return {
        (row.name, tag): cell.verdict if cell.tag is None else f"{cell.verdict}, {cell.tag}"
        for row in matrix.build(base, evidence)
        for tag, cell in row.cells.items()
    }


def _effects(
    before: Knowledge, after: Knowledge, scenarios: Sequence[Scenario], progress: Progress
) -> Iterator[Effect]:
    for n, scenario in enumerate(scenarios):
        progress(f"{n + 1}/{len(scenarios)} {scenario.id[:40]}", n / len(scenarios))
        was, now = _answer(scenario, before), _answer(scenario, after)
        for what in dict.fromkeys([*was, *now]):
            if what.startswith("tag of") and not (what in was and what in now):
                continue  # it says no more than that the rule fires on one side only
            if not _alike(was.get(what), now.get(what)):
                yield Effect(scenario, what, was.get(what), now.get(what))


def _alike(was: Any, now: Any) -> bool:
    if isinstance(was, float) and isinstance(now, float):
        return abs(was - now) <= NOTICED * max(abs(was), abs(now))
    return bool(was == now)


def _answer(scenario: Scenario, base: Knowledge) -> dict[str, Any]:
    """What counts of an answer, flattened: name -> value."""
    from ..advice.advise import advise
    from ..advice.check import check as check_config

    try:
        if scenario.by == "check":
            report = check_config(scenario.request, knowledge=base)
            return {
                "verdict": report.verdict,
                **{f"rule {f.rule}": f.severity for f in report.findings},
                **{f"tag of {f.rule}": f.status for f in report.findings},
                **{f"not judged: {n.rule}": True for n in report.not_judged},
                **{f"size {q.name}": _value(q.value) for q in report.quantities},
            }
        advice = advise(scenario.request, top=TOP, knowledge=base)
    except AdvisorError as error:
        return {"answer": f"{type(error).__name__}: {error}"}
    grids = [{name: _value(value) for name, value in grid.fields.items()} for grid in advice.grids]
    out: dict[str, Any] = {"top grid": grids[0] if grids else None, f"top {TOP} grids": grids}
    for grid in advice.grids[:1]:
        out |= {
            "memory of the top grid": float(grid.memory.total),
            **{f"rule {s.rule} at the top grid": s.severity for s in (*grid.reasons, *grid.cautions)},
        }
        if grid.throughput is not None:
            out["throughput of the top grid"] = grid.throughput.tokens_per_second_per_gpu
    out |= {f"rule {s.rule} on the request": s.severity for s in advice.statements}
    return out


def _value(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


_LABELS = {
    "title": ("Review of the knowledge base", "知识库变更评审"),
    "none": ("No differences.", "没有差异。"),
    "entries": ("Entries", "条目"),
    "matrix": ("Compatibility matrix", "兼容矩阵"),
    "effect": ("Effect on answers", "对结论的影响"),
    "asked": ("scenarios asked of both sides", "个场景在两侧均已提问"),
    "same": ("All answers are the same.", "所有结论均未改变。"),
    "scenarios": ("scenarios", "场景数"),
    "difference": ("difference", "差异"),
    "example": ("example", "示例"),
    "before": ("before", "之前"),
    "after": ("after", "之后"),
    "added": ("added", "新增"),
    "changed": ("changed", "修改"),
    "withdrawn": ("withdrawn", "撤回"),
    "removed": ("removed", "删除"),
    "release": ("release", "版本"),
    "cells": ("cells change", "个单元格改变"),
    "more": ("more", "其余"),
}
_SHOWN = 40  # rows of a table in Markdown; JSON has all


def markdown(result: Review, lang: str = "en") -> str:
    """For a pull request."""
    say = {key: words[lang == "zh"] for key, words in _LABELS.items()}
    lines = [f"## {say['title']}: {result.base} → {result.head} ({result.versions[0]} → {result.versions[1]})", ""]
    if not (result.entries or result.cells or result.effects):
        return "\n".join([*lines, say["none"]])
    lines += [f"### {say['entries']}", ""]
    for change in ("added", "changed", "withdrawn", "removed"):
        for kind in dict.fromkeys(e.kind for e in result.entries):
            chosen = [e for e in result.entries if (e.kind, e.change) == (kind, change)]
            if chosen:
                lines.append(
                    f"- {say[change]}, {kind} ({len(chosen)}): {', '.join(f'`{e.name}`' for e in chosen[:_SHOWN])}"
                )
                lines += [
                    f"  - `{e.name}`.{name}: {_short(was)} → {_short(now)}"
                    for e in chosen[:_SHOWN]
                    for name, (was, now) in e.fields.items()
                ]
    if result.cells:
        moves = Counter((was, now) for _, _, was, now in result.cells)
        lines += ["", f"### {say['matrix']}: {len(result.cells)} {say['cells']}", ""]
        lines += [f"- {was} → {now}: {number}" for (was, now), number in moves.most_common()]
        cells = [(f"`{r}`", t, was, now) for r, t, was, now in result.cells[:_SHOWN]]
        lines += ["", *_table(("", say["release"], say["before"], say["after"]), cells)]
        if len(result.cells) > _SHOWN:
            lines.append(f"\n{say['more']}: {len(result.cells) - _SHOWN}")
    total = sum(result.asked.values())
    lines += ["", f"### {say['effect']}", "", f"{total} {say['asked']}.", ""]
    if not result.effects:
        return "\n".join([*lines, say["same"]])
    rows = []
    for what, number in result.counts.items():
        shown = result.examples(what)[0]
        rows.append((what, str(number), shown.scenario.id, _short(shown.before), _short(shown.after)))
    head = (say["difference"], say["scenarios"], say["example"], say["before"], say["after"])
    lines += _table(head, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        lines.append(f"\n{say['more']}: {len(rows) - _SHOWN}")
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def _short(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value / 1e9:,.2f}e9"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:157] + "..."
