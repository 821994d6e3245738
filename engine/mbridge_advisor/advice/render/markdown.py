"""Answers as Markdown, for issues, pull requests and chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...diagnosis.results import Diagnosis
from ..explain import Explanation
from ..results import Advice, Answer, Estimate, Grid, Report, Statement
from ..smoke import SmokePlan
from .diagnosis import lines as diagnosis_lines
from .labels import SHORT, cell, not_judged_line, recompute_label, request_line
from .words import size, word


def advice(result: Advice, lang: str) -> str:
    """Ranked grids, the first in full, and the rest of the answer."""
    out = _head("advice_for", result, lang)
    if result.grids:
        out += [f"## {word('grids', lang)}", "", _grids(result.grids, lang), "", *_grid(result.grids[0], lang, "best")]
    elif result.miss is not None:
        out += [f"**{word('no_fit', lang)}** {result.miss.reason[lang]}", "", f"### {word('would_fit', lang)}", ""]
        out += [f"- {r[lang]}" for r in result.miss.remedies] + [""]
    if result.statements:
        out += [f"## {word('request_says', lang)}", "", *(_line(s, lang) for s in result.statements), ""]
    if result.rejected:
        rows = [
            {"rule": word("by_memory", lang) if rule == "memory" else rule, "n": count}
            for rule, count in sorted(result.rejected.items(), key=lambda kv: -kv[1])
        ]
        out += [
            f"## {word('rejected', lang)}",
            "",
            word("candidates", lang, f"{result.candidates:,}"),
            "",
            table(rows),
            "",
        ]
    if result.nearest_recipes:
        columns = ("tag", "recipe", "hardware", "num_gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "gbs")
        rows = [{c: r.get(c) for c in columns} for r in result.nearest_recipes]
        out += [f"## {word('nearest', lang)}", "", table(rows), ""]
    return "\n".join([*out, *_notes(result, lang)]).rstrip()


def report(result: Report, lang: str) -> str:
    """Verdict, findings, sizes."""
    out = [*_head("report_for", result, lang), f"**{word(f'verdict_{result.verdict}', lang)}**", ""]
    for s in result.findings:
        out += [_line(s, lang), f"  - {word('because', lang)}: {s.because[lang]}"]
        if s.fix is not None:
            out.append(f"  - {word('fix', lang)}: {s.fix[lang]}")
    out += ["", f"## {word('quantities', lang)}", ""]
    out.append(table([{"field": d.field, "value": cell(d.value)} for d in result.quantities]))
    if result.not_judged:
        out += ["", f"{word('not_judged', lang)}: {not_judged_line(result.not_judged, lang)}"]
    return "\n".join([*out, "", *_notes(result, lang)]).rstrip()


def estimate(result: Estimate, lang: str) -> str:
    """Memory and time of one grid."""
    out = _head("estimate_for", result, lang)
    out += [*(_line(s, lang) for s in result.findings), ""] if result.findings else []
    out += [_grids([result.grid], lang), "", *_grid(result.grid, lang, "the_grid")]
    out += [f"## {word('parameters', lang)}", ""]
    out.append(table([{"": name, "n": f"{count:,}"} for name, count in result.parameters.items()]))
    return "\n".join([*out, "", *_notes(result, lang)]).rstrip()


def diagnosis(result: Diagnosis, lang: str) -> str:
    """Causes with evidence and fix, what was observed, what to tell."""
    forms = {"verdict": "**{}**\n", "head": "\n## {}\n", "cause": "- {}", "detail": "  - {}", "item": "- {}"}
    out = [forms[kind].format(text) for kind, text in diagnosis_lines(result, lang)]
    return "\n".join([*_head("diagnosis_for", result, lang), *out]).rstrip()


def explanation(result: Explanation, lang: str) -> str:
    """One entry of the knowledge base."""
    out = [f"# {result.name}: {result.title[lang]}", ""]
    for label, text in result.lines(lang):
        out += [f"**{label}**", "", *(f"- {line}" for line in text.splitlines()), ""]
    return "\n".join(out).rstrip()


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Uniform rows as a Markdown table."""
    rows = list(rows)
    if not rows:
        return ""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = (f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else cell(v) for v in row.values())
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines)


def plan(result: SmokePlan, lang: str) -> str:
    """A smoke run to be confirmed."""
    takes = (result.gpus, result.nodes, result.iterations, result.limit_minutes, result.gpu_minutes)
    out = [*_head("plan_for", result, lang), word("plan_takes", lang, *takes), ""]
    for name, items in result.lists():
        mark = "- [ ]" if name == "preconditions" else "-"
        out += [f"## {word(name, lang)}", "", *(f"{mark} {item[lang]}" for item in items), ""]
        if name == "preconditions":
            out += [f"## {word('plan_command', lang)}", "", "```bash", *result.command, "```", ""]
    out += [*_notes(result, lang), "", f"**{word('question', lang)}**: {result.question[lang]}"]
    return "\n".join(out)


def _head(key: str, answer: Answer, lang: str) -> list[str]:
    return [
        f"# {word(key, lang)} {request_line(answer.request) or '–'}",
        "",
        word("judged_at", lang, answer.bridge, answer.knowledge),
        "",
    ]


def _notes(answer: Answer, lang: str) -> list[str]:
    return [f"## {word('notes', lang)}", "", *(f"- {n[lang]}" for n in answer.notes)] if answer.notes else []


def _line(s: Statement, lang: str) -> str:
    sources = "; ".join(map(str, s.citations[:2]))
    return f"- **{s.severity}** {s.message[lang]} (`{s.rule}`, {s.status}; {sources})"


def _grids(grids: Iterable[Grid], lang: str) -> str:
    rows = []
    for i, grid in enumerate(grids, 1):
        every = {**grid.fields, **grid.sizes}
        t = grid.throughput
        rows.append(
            {
                "#": i,
                **{label: cell(every.get(name)) for label, name in SHORT},
                word("recompute", lang): recompute_label(every),
                word("memory", lang): size(grid.memory.total),
                word("speed", lang): f"{t.tokens_per_second_per_gpu:,.0f} ({t.low:,.0f}–{t.high:,.0f})" if t else "–",
            }
        )
    return table(rows)


def _grid(grid: Grid, lang: str, title: str) -> list[str]:
    m = grid.memory
    out = [f"## {word(title, lang)}", ""]
    if m.capacity:
        out.append(word("peak", lang, m.stage, size(m.total), size(m.capacity), m.moment))
    else:
        out.append(word("peak_no_cap", lang, m.stage, size(m.total), m.moment))
    rows = sorted(m.components.items(), key=lambda kv: -kv[1])
    out += ["", table([{word("component", lang): name, word("bytes_at_peak", lang): size(v)} for name, v in rows]), ""]
    for key, statements in (("why", grid.reasons), ("cautions", grid.cautions)):
        if statements:
            out += [f"### {word(key, lang)}", "", *(_line(s, lang) for s in statements), ""]
    out += [f"### {word('settings', lang)}", "", "```", *grid.overrides, "```", ""]
    out += [word("decision", lang, grid.sizes.get("gpus", "?")), ""]
    return out
