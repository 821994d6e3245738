"""Answers for a terminal, with rich."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled
from rich.tree import Tree

from ...diagnosis.results import Diagnosis
from ..explain import Explanation
from ..results import Advice, Answer, Derived, Estimate, Grid, Memory, Report, Statement
from ..smoke import SmokePlan
from .diagnosis import lines as diagnosis_lines
from .labels import SHORT, cell, grid_line, not_judged_line, recompute_label, request_line
from .words import size, word

MARKS = {"error": ("✗", "bold red"), "override": ("↺", "yellow"), "warning": ("!", "yellow"), "advice": ("•", "cyan")}


def print_advice(advice: Advice, console: Console, lang: str) -> None:
    """The ranked grids, the first one in full, and everything that the answer rests on."""
    _head("advice_for", advice, console, lang)
    if advice.grids:
        console.print(_grid_table(advice.grids, lang))
        _grid(advice.grids[0], console, lang, title="best")
    elif advice.miss is not None:
        console.print(Styled(word("no_fit", lang), style="bold red"))
        console.print(Padding(advice.miss.reason[lang], (0, 0, 0, 2)))
        if advice.miss.fields:
            console.print(f"\n[bold]{word('closest', lang)}[/bold]  {grid_line(advice.miss.fields)}", highlight=False)
            if advice.miss.memory is not None:
                console.print(_memory(advice.miss.memory, lang))
        _list(word("would_fit", lang), [r[lang] for r in advice.miss.remedies], console)
    # Without a grid, what only guides the choice of one would drown what is wrong.
    said = [s for s in advice.statements if advice.grids or s.kind != "sizing"]
    if said:
        _title(word("request_says", lang), console)
        for s in said:
            console.print(_statement(s, lang))
    _rejected(advice, console, lang)
    if advice.nearest_recipes:
        _title(word("nearest", lang), console)
        console.print(_recipes(advice.nearest_recipes))
    if advice.not_judged:
        _title(word("not_judged", lang), console)
        console.print(Padding(not_judged_line(advice.not_judged, lang), (0, 0, 0, 2)), highlight=False)
    _notes(advice, console, lang)


def print_report(report: Report, console: Console, lang: str) -> None:
    """The verdict, each finding with its numbers, reason, fix and source, and the sizes."""
    _head("report_for", report, console, lang)
    style = {"ok": "bold green", "warning": "bold yellow", "error": "bold red"}[report.verdict]
    console.print(Styled(word(f"verdict_{report.verdict}", lang), style=style))
    for finding in report.findings:
        console.print(_statement(finding, lang, full=True))
    if report.quantities:
        _title(word("quantities", lang), console)
        console.print(_derived(report.quantities))
    if report.not_judged:
        _title(word("not_judged", lang), console)
        console.print(Padding(not_judged_line(report.not_judged, lang), (0, 0, 0, 2)), highlight=False)
    _notes(report, console, lang)


def print_estimate(estimate: Estimate, console: Console, lang: str) -> None:
    """Memory by component, time by part, parameters, and what rules say."""
    _head("estimate_for", estimate, console, lang)
    if estimate.verdict == "error":
        console.print(Styled(word("verdict_error", lang), style="bold red"))
    for finding in estimate.findings:
        console.print(_statement(finding, lang))
    console.print(_grid_table([estimate.grid], lang))
    _grid(estimate.grid, console, lang, title="the_grid")
    _title(word("parameters", lang), console)
    for name, count in estimate.parameters.items():
        console.print(f"  {name:<28} {count:>20,}", highlight=False)
    _notes(estimate, console, lang)


def print_explanation(explanation: Explanation, console: Console, lang: str) -> None:
    """One rule, quantity, term, model, GPU or revision."""
    console.print(f"[bold]{escape(explanation.name)}[/bold]  {escape(explanation.title[lang])}", highlight=False)
    for label, text in explanation.lines(lang):
        console.print(f"[dim]{escape(label)}[/dim]", highlight=False)
        console.print(Padding(Styled(text), (0, 0, 0, 2)))


def print_diagnosis(diagnosis: Diagnosis, console: Console, lang: str) -> None:
    """Causes with evidence and fix, what was observed, what to tell."""
    _head("diagnosis_for", diagnosis, console, lang)
    styles = {"verdict": "bold", "head": "bold", "cause": "bold yellow", "detail": "", "item": ""}
    indents = {"detail": 2, "item": 2}
    for kind, text in diagnosis_lines(diagnosis, lang):
        if kind == "head":
            console.print()
        console.print(Padding(Styled(text, style=styles[kind]), (0, 0, 0, indents.get(kind, 0))))


def print_rows(rows: Iterable[Mapping[str, Any]], console: Console) -> None:
    """Any list of uniform rows as a table."""
    rows = list(rows)
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        number = all(isinstance(r[name], int | float) for r in rows)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *("" if v is None else f"{v:,}" if isinstance(v, int | float) else escape(str(v)) for v in row.values())
        )
    console.print(table)


def print_plan(plan: SmokePlan, console: Console, lang: str) -> None:
    """What the run takes, its command, checklists, and the question."""
    _head("plan_for", plan, console, lang)
    takes = (plan.gpus, plan.nodes, plan.iterations, plan.limit_minutes, plan.gpu_minutes)
    console.print(word("plan_takes", lang, *takes), highlight=False)
    console.print(_memory(plan.memory, lang))
    for name, items in plan.lists():
        mark = "☐ " if name == "preconditions" else ""
        _list(word(name, lang), [mark + item[lang] for item in items], console)
        if name == "preconditions":
            _title(word("plan_command", lang), console)
            for line in plan.command:
                console.print(Styled(f"  {line}"), soft_wrap=True)
    _notes(plan, console, lang)
    _title(word("question", lang), console)
    console.print(Styled(plan.question[lang], style="bold yellow"))


def _head(key: str, answer: Answer, console: Console, lang: str) -> None:
    console.print(f"[bold]{word(key, lang)}[/bold] {escape(request_line(answer.request) or '–')}", highlight=False)
    console.print(f"[dim]{word('judged_at', lang, answer.bridge, answer.knowledge)}[/dim]\n", highlight=False)


def _title(text: str, console: Console) -> None:
    console.print(f"\n[bold]{escape(text)}[/bold]", highlight=False)


def _notes(answer: Answer, console: Console, lang: str) -> None:
    _list(word("notes", lang), [n[lang] for n in answer.notes], console)


def _list(title: str, lines: list[str], console: Console) -> None:
    if not lines:
        return
    _title(title, console)
    for line in lines:
        console.print(Padding(f"• {escape(line)}", (0, 0, 0, 2)), highlight=False)


def _grid_table(grids: Iterable[Grid], lang: str) -> Table:
    table = Table(title=None, box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("#", justify="right", style="dim")
    for label, _ in SHORT:
        table.add_column(label, justify="right", no_wrap=True)
    table.add_column(word("recompute", lang), overflow="fold")
    table.add_column(word("memory", lang), justify="right", no_wrap=True)
    table.add_column(word("speed", lang), justify="right", no_wrap=True)
    table.add_column(word("step", lang), justify="right", no_wrap=True)
    for i, grid in enumerate(grids, 1):
        every = {**grid.fields, **grid.sizes}
        used = size(grid.memory.total)
        if grid.memory.capacity:
            used += f" {grid.memory.total / grid.memory.capacity:4.0%}"
        t = grid.throughput
        speed = f"{t.tokens_per_second_per_gpu:,.0f} ({t.low:,.0f}–{t.high:,.0f})" if t else "–"
        step = f"{t.step_seconds:.2f} {word('seconds', lang)}" if t else "–"
        cells = [cell(every.get(name)) for _, name in SHORT]
        table.add_row(str(i), *cells, recompute_label(every), used, speed, step, style="bold" if i == 1 else None)
    return table


def _grid(grid: Grid, console: Console, lang: str, title: str) -> None:
    _title(word(title, lang), console)
    console.print(Padding(_memory(grid.memory, lang), (0, 0, 0, 2)))
    if grid.throughput is not None:
        console.print(f"\n  [bold]{word('time', lang)}[/bold]", highlight=False)
        total = sum(grid.throughput.components.values()) or 1.0
        rows = sorted(grid.throughput.components.items(), key=lambda kv: -kv[1])
        bars = [(name, value, f"{value:.3f} {word('seconds', lang)}") for name, value in rows if value / total > 0.002]
        console.print(Padding(_bars(bars, total), (0, 0, 0, 2)))
    for key, statements in (("why", grid.reasons), ("cautions", grid.cautions)):
        if statements:
            console.print(f"\n  [bold]{word(key, lang)}[/bold]", highlight=False)
            for s in statements:
                console.print(Padding(_statement(s, lang), (0, 0, 0, 2)))
    console.print(f"\n  [bold]{word('settings', lang)}[/bold]", highlight=False)
    for line in grid.overrides:
        console.print(f"    {line}", highlight=False, markup=False, soft_wrap=True)
    if grid.sizes.get("world_size") or grid.fields:
        console.print(Padding(word("decision", lang, grid.sizes.get("gpus", "?")), (0, 0, 0, 2)), style="dim")


def _memory(memory: Memory, lang: str) -> RenderableType:
    rows = sorted(memory.components.items(), key=lambda kv: -kv[1])
    bars = [(name, float(value), size(value)) for name, value in rows if value > memory.total / 1000]
    if memory.capacity:
        line = word("peak", lang, memory.stage, size(memory.total), size(memory.capacity), memory.moment)
        line += f" {word(memory.decision or 'fits', lang)}."
    else:
        line = word("peak_no_cap", lang, memory.stage, size(memory.total), memory.moment)
    return Group(Styled(line), _bars(bars, float(max(memory.capacity or 0, memory.total))))


def _bars(rows: list[tuple[str, float, str]], whole: float) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(min_width=26)
    table.add_column(justify="right")
    table.add_column()
    for name, value, label in rows:
        length = round(40 * value / whole) if whole else 0
        table.add_row(name, label, Styled("█" * max(length, 1), style="green"))
    return table


def _statement(s: Statement, lang: str, full: bool = False) -> RenderableType:
    mark, style = MARKS.get(s.severity, ("•", ""))
    line = Styled.assemble((f"{mark} ", style), s.message[lang], (f"  [{s.rule} · {s.status}]", "dim"))
    parts: list[RenderableType] = [line]
    if full:
        parts.append(Padding(Styled(f"{word('because', lang)}: {s.because[lang]}", style="dim"), (0, 0, 0, 2)))
    if s.fix is not None and (full or s.severity in ("error", "warning")):
        changes = ", ".join(f"{k}={cell(v)}" for k, v in s.set.items())
        text = f"{word('fix', lang)}: {s.fix[lang]}" + (f"  ({changes})" if changes else "")
        parts.append(Padding(Styled(text), (0, 0, 0, 2)))
    if s.citations:
        cited = "; ".join(map(str, s.citations[: 3 if full else 1]))
        parts.append(Padding(Styled(f"{word('source', lang)}: {cited}", style="dim"), (0, 0, 0, 2)))
    return Group(*parts)


def _rejected(advice: Advice, console: Console, lang: str) -> None:
    if not advice.rejected:
        return
    _title(f"{word('rejected', lang)}  ", console)
    labels = {"memory": word("by_memory", lang)}
    rows = sorted(advice.rejected.items(), key=lambda kv: -kv[1])
    text = ", ".join(f"{labels.get(rule, rule)} {count:,}" for rule, count in rows)
    console.print(
        Padding(f"{word('candidates', lang, f'{advice.candidates:,}')} {text}", (0, 0, 0, 2)), highlight=False
    )


def _recipes(rows: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    columns = (
        "tag",
        "recipe",
        "hardware",
        "num_gpus",
        "tp",
        "pp",
        "vpp",
        "cp",
        "ep",
        "etp",
        "mbs",
        "gbs",
        "seq_length",
    )
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("–" if row.get(c) is None else str(row.get(c)) for c in columns))
    return table


def _derived(quantities: Iterable[Derived]) -> Tree:
    tree = Tree("", hide_root=True, guide_style="dim")
    for d in quantities:
        inputs = ", ".join(f"{k}={cell(v)}" for k, v in d.inputs.items())
        tree.add(Styled.assemble(f"{d.field} = {cell(d.value)}", (f"   from {inputs}" if inputs else "", "dim")))
    return tree
