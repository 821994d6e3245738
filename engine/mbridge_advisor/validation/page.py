"""The figures of a validation as Markdown, and as the files that the repository keeps."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import WriteError
from .plot import scatter
from .report import Comparison, by
from .run import GROUPS, Group, Part, Validation, errors, scores, scores_by

FOLDER = Path("docs") / "validation"
PAGE = Path("docs") / "validation.md"
FIGURES = FOLDER / "figures.json"
PLOTS: Mapping[str, tuple[str, str, float, str]] = {
    "peak": ("Peak memory, functional tests", "GB", 1e9, "model"),
    "large": ("Peak memory, real-size layers", "GB", 1e9, "model"),
    "throughput": ("Published pretraining", "tokens/s/GPU", 1.0, "model"),
    "left_out": ("Published pretraining, model left out of the fit", "tokens/s/GPU", 1.0, "model"),
}
SHOWN: Mapping[str, Sequence[Group]] = {"peak": GROUPS[:3], "throughput": GROUPS, "left_out": GROUPS}
"""Parts that the documentation shows by group, and by which."""
INTRO = """# Validation

How far our figures are from measured and published ones. This page is written by `mbridge-advisor validate --write`;
`mbridge-advisor validate` prints the same scores for the knowledge base in use, `--data DIR` for other rows.

Errors are signed: predicted / measured - 1, so a positive memory error is too much, a positive rate error too fast.
*Within* is the share of rows whose absolute error is at most that. Each distinct configuration counts once. Functional
tests are mostly one small model, so the two kinds of memory rows are reported apart. Throughput is fitted to the
published pretraining rows; *left out* predicts each model by constants that never saw it. Only rows of models and
systems in the catalogue count. Published rows that can't have run as printed count as well.
"""
PEERS = (
    "Megatron Bridge's start-up estimator and rules of thumb, re-derived from their published formulas "
    "(engine/mbridge_advisor/validation/peers.py cites them). Of a run's stages they are held to the fullest one, "
    "which is what they speak of."
)
FEASIBLE = (
    "Do the grids that the vendor published fit in memory in our eyes, with the settings of its nearest recipe? "
    "*Tight*: within what fragmentation may take."
)
CHOICE = (
    "Is a grid that the vendor published for the scenario (model, system, GPUs, precision, sequence length, global "
    "batch, task) our first, or among our first 5, with constants fitted without that model? TP, PP, CP, EP and, where "
    "the row gives it, VPP must agree; *grid* leaves VPP aside. Scenarios that the vendor runs with FSDP alone are "
    "apart. *As good*: our first is a published grid, or at least as good by our own estimate, preferences counted. "
    "A published grid is an operating point that its authors tuned, not a proven optimum."
)

DIFFERS = (
    "Rates are our own estimates with constants fitted without the model, preferences counted, each grid with the "
    "settings that our search gives it. Seconds are those by which a step of the published grid takes longer."
)


class Table(NamedTuple):
    """A table for people."""

    title: str
    note: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]


def tables(validation: Validation, group: Group | None = None) -> list[Table]:
    """All scores; with ``group`` by its members too."""
    parts = [part for part in validation.parts if part.comparisons]
    out = [Table("Our figures", "", HEAD, [[part.title.en, *_cells(part.comparisons)] for part in parts])]
    if group is not None:
        out += [_by(part, group) for part in parts]
    lines = [[f"{p.title.en}: {name}", *_cells(rows)] for p in parts for name, rows in p.peers.items()]
    if lines:
        out.append(Table("Other formulas on the same rows", PEERS, HEAD, lines))
    if validation.feasible:
        out.append(_feasible(validation))
    if validation.choices:
        out.append(_choice(validation))
    if validation.choices.get("published"):
        out.append(_differs(validation))
    return out


def markdown(validation: Validation, group: Group | None = None) -> str:
    """The tables of :func:`tables`."""
    return "\n".join(_markdown(table) for table in tables(validation, group))


def _markdown(table: Table, level: str = "##") -> str:
    rows = [table.head, ["---"] * len(table.head), *table.lines]
    text = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    return f"{level} {table.title}\n\n" + (f"{table.note}\n\n" if table.note else "") + text


HEAD = ("rows of", "n", "median", "mean abs.", "bias", "within 5 / 10 / 20 %", "in range", "worst")


def _cells(comparisons: Sequence[Comparison]) -> list[str]:
    s = scores(comparisons)
    within = " / ".join(f"{share:.0%}" for share in s["within"].values())
    covered = f"{s['in_range']:.0%}" if "in_range" in s else ""
    worst = f"{s['worst']['error']:+.1%} {s['worst']['row'][:48]}"
    figures = [f"{s['median']:.1%}", f"{s['mean_absolute']:.1%}", f"{s['bias']:+.1%}"]
    return [str(s["rows"]), *figures, within, covered, worst]


def _by(part: Part, group: Group) -> Table:
    lines = [[name, *_cells(rows)] for name, rows in by(part.comparisons, group).items()]
    return Table(f"{part.title.en}, by {group}", "", (group, *HEAD[1:]), lines)


def _feasible(validation: Validation) -> Table:
    lines, refused = [], []
    for task, found in validation.feasible.items():
        counts = (found.fits, found.tight, len(found.refused))
        lines.append([f"published {task}", str(sum(counts)), *map(str, counts)])
        refused += [f"{row} ({slip or 'no slip known'})" for row, slip in found.refused.items()]
    note = FEASIBLE + (f" Not feasible: {'; '.join(refused)}." if refused else "")
    return Table("Published grids", note, ("rows of", "n", "fits", "tight", "does not fit"), lines)


def _choice(validation: Validation) -> Table:
    lines = []
    refused = set()
    for source, figures in validation.to_dict()["choice"].items():
        refused |= set(figures["refused"])
        for kind, label in (("ddp", source), ("fsdp", f"{source}, FSDP only")):
            if s := figures.get(kind):
                shares = (s["first"], s["top"], s["grid_first"], s["grid_top"], s["defensible"])
                lines.append([label, str(s["count"]), *(f"{share:.0%}" for share in shares)])
    note = CHOICE + (f" Not feasible in our eyes: {'; '.join(sorted(refused))}." if refused else "")
    return Table("Choice", note, ("scenarios", "n", "first", "first 5", "grid first", "grid first 5", "as good"), lines)


def _differs(validation: Validation) -> Table:
    lines = []
    for one in validation.to_dict()["choice"]["published"]["differs"]:
        ours, theirs = (f"{rate:,.0f}" for rate in one["tokens_per_second_per_gpu"])
        reasons = "; ".join(one["reasons"]) or "ties"
        lines.append([one["scenario"], one["ours"], ours, one["theirs"] or "", theirs, reasons])
    head = ("scenario", "ours", "tokens/s/GPU", "best published grid", "tokens/s/GPU", "they take longer for")
    return Table("Where our first grid isn't a published one", DIFFERS, head, lines)


def page(validation: Validation, made_by: Mapping[str, Any]) -> str:
    """The page of the documentation."""
    parts = {part.key: part for part in validation.parts if part.comparisons}
    changed = " with changes" if made_by["changed"] else ""
    out = [INTRO, f"Made by commit {made_by['commit'][:12]}{changed}, knowledge {made_by['knowledge']}.\n"]
    out.append(markdown(validation))
    out.append("## Predicted against measured\n")
    out += [f"![{title}](validation/{key}.svg)\n" for key, (title, *_) in PLOTS.items() if key in parts]
    out.append("## By model, system, precision and release\n")
    for key, groups in SHOWN.items():
        if key in parts:
            out += [_markdown(_by(parts[key], group), "###") for group in groups]
    return "\n".join(out)


def write(validation: Validation, root: Path) -> list[Path]:
    """Keep figures, page and plots in a checkout.

    Raises:
        WriteError: ``root`` isn't a checkout, or can't be written.
    """
    if not (root / "docs").is_dir():
        raise WriteError(f"{root} isn't a checkout of the project: it has no docs folder.")
    made_by = {
        "commit": _git(root, "rev-parse", "HEAD"),
        "changed": bool(_git(root, "status", "--porcelain", "--", ".", ":!docs/validation*")),
    }
    made_by["knowledge"] = validation.knowledge
    grouped = {
        part.key: {group: scores_by(part.comparisons, group) for group in SHOWN[part.key]}
        for part in validation.parts
        if part.key in SHOWN and part.comparisons
    }
    figures = {"made_by": made_by, **validation.to_dict(), "groups": grouped, "errors": errors(validation)}
    files = {FIGURES: json.dumps(figures, indent=1, ensure_ascii=False) + "\n", PAGE: page(validation, made_by)}
    for part in validation.parts:
        if part.comparisons and part.key in PLOTS:
            title, unit, scale, group = PLOTS[part.key]
            files[FOLDER / f"{part.key}.svg"] = scatter(title, unit, scale, part.comparisons, group)
    try:
        (root / FOLDER).mkdir(exist_ok=True)
        for name, text in files.items():
            (root / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{root / FOLDER} can't be written ({error.strerror}).") from error
    return [root / name for name in files]


def _git(root: Path, *words: str) -> str:
    """What git says, or nothing where there is no git."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
