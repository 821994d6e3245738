"""A diagnosis for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.results import Cause, Comparison, Diagnosis
from ...diagnosis.scan import Evidence
from .labels import cell
from .words import size, word


def lines(diagnosis: Diagnosis, lang: str) -> Iterator[tuple[str, str]]:
    """``(kind, text)`` of each line: ``head``, ``verdict``, ``cause``, ``detail`` or ``item``."""
    legal = diagnosis.verdict == "unclear" and diagnosis.configured and not diagnosis.unknown
    yield "verdict", word("diagnosis_legal" if legal else f"diagnosis_{diagnosis.verdict}", lang)
    if diagnosis.criteria:
        yield "head", word("criteria", lang)
        for c in diagnosis.criteria:
            answer = word("untold" if c.holds is None else "holds" if c.holds else "fails", lang)
            yield "item", f"[{answer}] {c.text[lang]} ({c.shown[lang]})"
        yield "head", word("because", lang)
    brief = [c for c in diagnosis.causes if c.general or (c.aftermath and not diagnosis.causes[0].aftermath)]
    quoted: set[Evidence] = set()
    for cause in diagnosis.causes:
        if cause not in brief:
            yield from _cause(cause, [e for e in cause.evidence if e not in quoted], lang)
            quoted.update(cause.evidence)
    if brief:
        yield "head", word("also", lang)
        yield from (("item", _brief(cause, lang)) for cause in brief)
    if diagnosis.unknown:
        yield "head", word("unexplained", lang)
        yield from (("item", _evidence(e, lang)) for e in diagnosis.unknown)
    findings = [f for f in diagnosis.findings if legal or (diagnosis.configured and f.severity != "advice")]
    if findings:
        yield "head", word("config_says", lang)
        yield from (("item", f"{f.message[lang]}  [{f.rule}]") for f in findings)
    if diagnosis.comparison is not None:
        yield from _comparison(diagnosis.comparison, lang)
    if diagnosis.observed:
        yield "head", word("observed", lang)
        places: dict[int, list[str]] = {}
        for o in diagnosis.observed.values():
            places.setdefault(o.line, []).append(o.shown[lang])
        told = (
            f"{word('at_line', lang, line) if line else word('in_words', lang)}: {', '.join(shown)}"
            for line, shown in sorted(places.items())
        )
        yield "item", "; ".join(told)
    if diagnosis.asks:
        yield "head", word("please_tell", lang)
        yield "item", ", ".join(f"{a.field} ({a.title[lang]})" for a in diagnosis.asks)
    if diagnosis.notes:
        yield "head", word("notes", lang)
        yield from (("item", note[lang]) for note in diagnosis.notes)


def _cause(cause: Cause, evidence: list[Evidence], lang: str) -> Iterator[tuple[str, str]]:
    certainty = word(f"certainty_{cause.certainty}", lang)
    tail = f" · {word('aftermath', lang)}" if cause.aftermath else ""
    yield "cause", f"{cause.message[lang]}  [{cause.rule} · {certainty} · {cause.status}{tail}]"
    yield from (("detail", _evidence(e, lang)) for e in evidence[:3])
    if cause.releases:
        yield "detail", word("worded_at", lang, ", ".join(cause.releases))
    for s in cause.behind:
        yield "detail", f"{word('may_be', lang)}: {s.message[lang]}  [{s.rule}]"
    yield "detail", f"{word('because', lang)}: {cause.because[lang]}"
    if cause.fix is not None or cause.set:
        changes = ", ".join(f"{name}={cell(value)}" for name, value in cause.set.items())
        text = cause.fix[lang] if cause.fix else ""
        yield "detail", f"{word('fix', lang)}: {text}" + (f"  ({changes})" if changes else "")
    if cause.confirm is not None:
        yield "detail", f"{word('confirm', lang)}: {cause.confirm[lang]}"
    yield "detail", f"{word('source', lang)}: {'; '.join(map(str, cause.citations[:3]))}"


def _brief(cause: Cause, lang: str) -> str:
    """A cause that adds little to those before it."""
    place = f" ({word('at_line', lang, cause.evidence[0].line)})" if cause.evidence and cause.evidence[0].line else ""
    return f"{cause.message[lang]}  [{cause.rule}]{place}"


def _evidence(e: Evidence, lang: str) -> str:
    if not e.line:
        return f"{word('in_words', lang)}: {e.text}"
    file = f"{e.file}, " if e.file else ""
    rank = f", rank {e.rank}" if e.rank is not None else ""
    times = f", x{e.count:,}" if e.count > 1 else ""
    return f"{file}{word('at_line', lang, e.line)}{rank}{times}: {e.text}"


def _comparison(comparison: Comparison, lang: str) -> Iterator[tuple[str, str]]:
    yield "head", word("changed", lang)
    for name, (before, after) in comparison.changes.items():
        ratio = comparison.alone.get(name)
        alone = "" if ratio is None else f" ({word('alone', lang, _change(ratio))})"
        yield "item", f"{name}: {cell(before)} → {cell(after)}{alone}"
    before_grid, after_grid = comparison.before, comparison.after
    if before_grid is None or after_grid is None:
        return
    yield "item", f"{word('memory', lang)}: {size(before_grid.memory.total)} → {size(after_grid.memory.total)}"
    old, new = before_grid.throughput, after_grid.throughput
    if old is None or new is None:
        return
    whole = comparison.speed_ratio or 0.0
    speeds = f"{old.tokens_per_second_per_gpu:,.0f} → {new.tokens_per_second_per_gpu:,.0f}"
    yield "item", f"tokens/s/GPU: {speeds} ({_change(whole)})"
    # Shares of a step, since the steps may be of different batches.
    shares = [
        (name, old.components.get(name, 0.0) / old.step_seconds, new.components.get(name, 0.0) / new.step_seconds)
        for name in dict.fromkeys((*old.components, *new.components))
    ]
    moved = sorted((row for row in shares if abs(row[1] - row[2]) >= 0.01), key=lambda row: -abs(row[2] - row[1]))
    for name, was, now in moved[:6]:
        yield "item", f"{name}: {was:.0%} → {now:.0%} {word('of_step', lang)}"


def _change(ratio: float) -> str:
    """A ratio as a change in per cent; no sign at nothing."""
    return f"{ratio - 1:+.0%}" if abs(ratio - 1) >= 0.005 else "±0%"
