"""Findings at their place in the file: SARIF 2.1.0, and workflow commands of GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import AdvisorError
from ...intake.notes import Note
from ...knowledge import load
from ..results import Report, Statement

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "override": "warning", "warning": "warning", "advice": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
UNREADABLE = "input"


@dataclass(frozen=True)
class Checked:
    """A report and where its settings stand.

    Attributes:
        file: path as given, or None where options alone were checked.
        report: the verdict.
        lines: request field -> 1-based line.
    """

    file: str | None
    report: Report
    lines: dict[str, int]

    @staticmethod
    def of(file: Path | None, report: Report, notes: Iterable[Note]) -> Checked:
        """Find the line of each setting in the file's text."""
        if file is None:
            return Checked(None, report, {})
        try:
            text = file.read_text(encoding="utf-8", errors="replace")[: 4 * 2**20]
        except OSError:
            text = ""
        keys = {note.field: note.key for note in notes if note.field}
        fields = {**{field: field for field in _fields(report)}, **keys}
        return Checked(str(file), report, {f: n for f, key in fields.items() if (n := _line(text, key)) is not None})

    def line(self, finding: Statement) -> int:
        """The line of the first setting that the finding read, or 1."""
        terms = load().terms
        names = [terms[name].field for name in finding.facts if name in terms]
        return next((self.lines[name] for name in (*finding.set, *names) if name in self.lines), 1)


def _fields(report: Report) -> Iterator[str]:
    for part in report.request.values():
        if isinstance(part, dict):
            yield from part


def _line(text: str, key: str) -> int | None:
    """The line of a key, or of an option, by its last name."""
    name = re.escape(key.rpartition(".")[2]).replace("_", "[-_]")
    match = re.search(rf"(?<![\w-])(?:--)?{name}(?![\w-])", text)
    return text.count("\n", 0, match.start()) + 1 if match else None


def sarif(checked: Sequence[Checked], failed: Sequence[tuple[str, AdvisorError]], lang: str = "en") -> dict[str, Any]:
    """One SARIF log with one run.

    Args:
        checked: the reports.
        failed: files that couldn't be read, and why.
        lang: of the texts.
    """
    base = load()
    used = sorted({finding.rule for c in checked for finding in c.report.findings})
    rules: list[dict[str, Any]] = [
        {
            "id": rule,
            "shortDescription": {"text": base.rules[rule].title[lang]},
            "fullDescription": {"text": base.rules[rule].because[lang]},
            "defaultConfiguration": {"level": LEVELS[base.rules[rule].severity]},
            "properties": {"kind": base.rules[rule].kind, "status": base.rules[rule].status},
        }
        for rule in used
    ]
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": used.index(finding.rule),
            "level": LEVELS[finding.severity],
            "message": {"text": _sentence(finding, lang)},
            "locations": _place(c.file, c.line(finding)),
            "partialFingerprints": {"finding/v1": f"{finding.rule}:{c.file or ''}"},
            "properties": {
                "facts": {k: list(v) if isinstance(v, tuple) else v for k, v in finding.facts.items()},
                "fix": {k: list(v) if isinstance(v, tuple) else v for k, v in finding.set.items()},
                "citations": [str(citation) for citation in finding.citations],
            },
        }
        for c in checked
        for finding in c.report.findings
    ]
    if failed:
        rules.append({"id": UNREADABLE, "shortDescription": {"text": "The input can't be understood"}})
        results += [
            {
                "ruleId": UNREADABLE,
                "ruleIndex": len(used),
                "level": "error",
                "message": {"text": str(problem)},
                "locations": _place(file, 1),
            }
            for file, problem in failed
        ]
    driver = {
        "name": "mbridge-advisor",
        "semanticVersion": next((c.report.package.replace("+unknown", ".0.0") for c in checked), "0.0.0"),
        "rules": rules,
        "properties": {"knowledge": base.version},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _place(file: str | None, line: int) -> list[dict[str, Any]]:
    if file is None:
        return []
    from urllib.parse import quote

    uri = quote(Path(file).as_posix())
    uri = f"file://{uri}" if Path(file).is_absolute() else uri
    return [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}}]


def _sentence(finding: Statement, lang: str) -> str:
    return " ".join(filter(None, (finding.message[lang], finding.fix[lang] if finding.fix else "")))


def github(checked: Sequence[Checked], failed: Sequence[tuple[str, AdvisorError]], lang: str = "en") -> Iterator[str]:
    """A workflow command for each finding; GitHub shows it at the line."""
    for c in checked:
        for finding in c.report.findings:
            place = {"file": c.file, "line": str(c.line(finding))} if c.file else {}
            command = _COMMANDS[LEVELS[finding.severity]]
            yield _command(command, {**place, "title": finding.rule}, _sentence(finding, lang))
    for file, problem in failed:
        yield _command("error", {"file": file, "title": UNREADABLE}, str(problem))


def _command(name: str, properties: dict[str, str | None], message: str) -> str:
    def escaped(text: str, more: bool) -> str:
        text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        return text.replace(":", "%3A").replace(",", "%2C") if more else text

    shown = ",".join(f"{key}={escaped(value, True)}" for key, value in properties.items() if value)
    return f"::{name} {shown}::{escaped(message, False)}"
