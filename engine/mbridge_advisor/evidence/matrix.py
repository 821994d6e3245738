"""The compatibility matrix: what each rule and quantity has earned at each release.

It is computed from the rules and the evidence alone; ``compat_matrix.yaml`` keeps it, so that a change is seen.

A cell's verdict is ``absent`` where the rule doesn't speak of the release; ``changed`` where a place that the rule
rests on isn't there as reviewed; ``holds`` where it is, or where a run of the real code agreed; else ``untested``.
Documentation counts for a rule that claims no more than documentation; for one that claims ``code_verified``, code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import KnowledgeError
from ..knowledge.model import Knowledge, Revision, Rule, Status
from ..knowledge.schema import validate
from ..knowledge.yaml_reader import read
from .anchors import Found
from .store import Carried, Evidence, Owner, Place, flow, load_evidence, owners, places_at, write_text
from .tags import tag_of

__all__ = ["Cell", "Complaint", "Row", "build", "check", "counts", "render", "select", "tag_of", "write"]

FILE = "compat_matrix.yaml"
Verdict = Literal["holds", "absent", "changed", "untested"]
VERDICTS: tuple[Verdict, ...] = ("holds", "changed", "untested", "absent")


@dataclass(frozen=True)
class Cell:
    """One rule or quantity at one release.

    Attributes:
        verdict: see the module.
        tag: what it has earned; None where absent.
        evidence: keys of places found as reviewed, and ids of runs.
        lacking: keys of places that are changed, missing or never looked up.
        carried: the verdict is a person's, taken over from another release.
    """

    verdict: Verdict
    tag: Status | None = None
    evidence: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    carried: Carried | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the file has it."""
        out: dict[str, Any] = {"verdict": self.verdict}
        if self.tag is not None:
            out["tag"] = self.tag
        if self.evidence:
            out["evidence"] = list(self.evidence)
        if self.lacking:
            out["lacking"] = list(self.lacking)
        if self.carried is not None:
            c = self.carried
            out["carried_from"] = {"revision": c.source, "reason": c.reason, "reviewer": c.by}
        return out


@dataclass(frozen=True)
class Row:
    """A rule or quantity with its cells, by release."""

    owner: Owner
    cells: Mapping[str, Cell]

    @property
    def name(self) -> str:
        return self.owner.id if isinstance(self.owner, Rule) else self.owner.name

    @property
    def kind(self) -> str:
        return self.owner.kind if isinstance(self.owner, Rule) else "quantity"


def build(knowledge: Knowledge, evidence: Evidence) -> list[Row]:
    """The matrix, in the order of the knowledge base."""
    return [
        Row(owner, {r.tag: _cell(knowledge, name, owner, r, evidence) for r in knowledge.revisions.values()})
        for name, owner in owners(knowledge).items()
    ]


def _cell(knowledge: Knowledge, name: str, owner: Owner, revision: Revision, evidence: Evidence) -> Cell:
    if not revision.within(owner.bridge):
        return Cell("absent")
    claims = owner.status == "code_verified"
    places = places_at(owner, revision)
    decisive = [p for p in places if p.kind == "code"] if claims else places
    held = [p.key for p in decisive if _held(p, revision, evidence)]
    lacking = [p.key for p in decisive if p.key not in held]
    looked = evidence.recorded.get(revision.tag)
    fault = looked is not None and any(key in looked.anchors for key in lacking)
    runs = [x.id for x in evidence.executions if x.confirms(knowledge, name, revision)]
    carried = evidence.carried.get((name, revision.tag))
    verdict: Verdict = "holds" if runs or (held and not lacking) else "changed" if fault else "untested"
    if verdict != "holds" and carried is not None:
        return Cell("holds", "doc_only", (*held, *runs), tuple(lacking), carried)
    earned = claims and (bool(runs) or (verdict == "holds" and bool(held)))
    return Cell(verdict, "code_verified" if earned else "doc_only", (*held, *runs), tuple(lacking))


def _held(place: Place, revision: Revision, evidence: Evidence) -> bool:
    looked = evidence.recorded.get(revision.tag)
    found = looked.anchors.get(place.key) if looked else None
    return isinstance(found, Found) and found.fingerprint in evidence.accepted.get(place.key, frozenset())


def render(knowledge: Knowledge, evidence: Evidence) -> str:
    """The text of ``compat_matrix.yaml``."""
    lines = [
        "# What each rule and quantity has earned at each release of Megatron Bridge.",
        "# Computed by `mbridge-advisor matrix build` from the rules and knowledge/evidence/; never edited by hand.",
        "# evidence: keys of places in knowledge/evidence/anchors/<release>.yaml and ids of runs in executions/.",
        "format: 1",
        "revisions:",
    ]
    for revision in knowledge.revisions.values():
        lines.append(f"  {revision.tag}:")
        lines.append(f"    bridge_commit: {flow(revision.commit)}")
        lines.append(f"    core_commit: {flow(revision.core_commit)}")
        lines.append(f"    core_version: {flow(revision.core_version)}")
        lines.append(f"    environment: {flow(dict(revision.environment))}")
        if runs := [x.id for x in evidence.executions if x.speaks_for(revision)]:
            lines.append(f"    executions: {flow(runs)}")
    rows = build(knowledge, evidence)
    for part, wanted in (("rules", False), ("quantities", True)):
        chosen = [row for row in rows if (row.kind == "quantity") is wanted]
        lines.append(f"{part}:" if chosen else f"{part}: {{}}")
        for row in chosen:
            lines.append(f"  {row.name}:")
            lines += [f"    {tag}: {flow(cell.to_dict())}" for tag, cell in row.cells.items()]
    return "\n".join(lines) + "\n"


def write(knowledge: Knowledge) -> tuple[Path, bool]:
    """Compute and write the matrix; says whether it differs from what was there.

    Raises:
        KnowledgeError: the evidence has mistakes.
        OSError: the file can't be written.
    """
    root = Path(knowledge.root)
    text = render(knowledge, load_evidence(root))
    path = root / FILE
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return path, False
    write_text(path, text)
    return path, True


@dataclass(frozen=True)
class Complaint:
    """Why ``matrix check`` fails: ``stale``, ``overclaims`` or ``evidence``, about what, and in words."""

    kind: Literal["stale", "overclaims", "evidence"]
    name: str
    revision: str | None
    message: str

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


def check(knowledge: Knowledge) -> list[Complaint]:
    """What is wrong with the matrix or with what the rules claim; nothing where all is well."""
    root = Path(knowledge.root)
    try:
        evidence = load_evidence(root)
    except KnowledgeError as error:
        return [Complaint("evidence", p.file, None, str(p)) for p in error.problems]
    return [*_stale(knowledge, evidence, root), *_overclaims(knowledge, evidence), *_dangling(knowledge, evidence)]


def _stale(knowledge: Knowledge, evidence: Evidence, root: Path) -> Iterator[Complaint]:
    path = root / FILE
    if not path.is_file():
        yield Complaint("stale", FILE, None, "doesn't exist. Run `mbridge-advisor matrix build`.")
        return
    try:
        document = read(path, FILE)
    except KnowledgeError as error:
        yield from (Complaint("evidence", FILE, None, str(p)) for p in error.problems)
        return
    if problems := validate(document, "compat_matrix"):
        yield from (Complaint("evidence", FILE, None, str(p)) for p in problems)
        return
    if path.read_text(encoding="utf-8") == render(knowledge, evidence):
        return
    kept = {**document.data["rules"], **document.data["quantities"]}
    changes = 0
    for row in build(knowledge, evidence):
        for tag, cell in row.cells.items():
            old = kept.get(row.name, {}).get(tag)
            if old != cell.to_dict():
                changes += 1
                outdated = _outdated(row.name, old, cell, evidence)
                yield Complaint(
                    "stale",
                    row.name,
                    tag,
                    f"is {_short(old)} in the file, {_short(cell.to_dict())} by evidence."
                    + (f" What it says has changed since {', '.join(outdated)}." if outdated else ""),
                )
        kept.pop(row.name, None)
    for name in kept:
        changes += 1
        yield Complaint("stale", name, None, "is in the file, but no rule or quantity of the knowledge base.")
    if not changes:
        yield Complaint("stale", FILE, None, "differs in its head or layout. Run `mbridge-advisor matrix build`.")


def _outdated(name: str, old: Mapping[str, Any] | None, cell: Cell, evidence: Evidence) -> list[str]:
    """Ids of runs that stand in the file for a rule and tried another condition than it has today."""
    gone = set(old["evidence"] if old and "evidence" in old else ()).difference(cell.evidence)
    return [x.id for x in evidence.executions if x.id in gone and x.rules.get(name, 0) > 0]


def _short(cell: Mapping[str, Any] | None) -> str:
    return f"{cell['verdict']} ({cell['tag']})" if cell and "tag" in cell else cell["verdict"] if cell else "absent"


def _overclaims(knowledge: Knowledge, evidence: Evidence) -> Iterator[Complaint]:
    for row in build(knowledge, evidence):
        if row.owner.status != "code_verified":
            continue
        for tag, cell in row.cells.items():
            if cell.verdict == "absent" or cell.tag == "code_verified" or cell.carried is not None:
                continue
            why = f"{', '.join(cell.lacking)} not found as reviewed" if cell.lacking else "no code or run is cited"
            yield Complaint("overclaims", row.name, tag, f"claims code_verified, but is {cell.verdict}: {why}.")


def _dangling(knowledge: Knowledge, evidence: Evidence) -> Iterator[Complaint]:
    known = owners(knowledge)
    for (name, tag), carried in evidence.carried.items():
        if name not in known or not {tag, carried.source} <= knowledge.revisions.keys():
            yield Complaint("evidence", name, tag, "is carried over, but there is no such rule or release.")
    for tag in evidence.recorded:
        if tag not in knowledge.revisions:
            yield Complaint("evidence", f"anchors/{tag}.yaml", tag, "is of a release that the knowledge doesn't have.")


def counts(rows: Sequence[Row], tag: str) -> dict[str, dict[str, int]]:
    """Kind -> verdict or tag -> number, at one release; absent ones aren't counted under a tag."""
    out: dict[str, Counter[str]] = {}
    for row in rows:
        cell = row.cells[tag]
        counter = out.setdefault(row.kind, Counter())
        counter[cell.verdict] += 1
        if cell.tag is not None:
            counter[cell.tag] += 1
    return {kind: dict(counter) for kind, counter in out.items()}


def select(
    rows: Iterable[Row],
    *,
    kind: str | None = None,
    tag: str | None = None,
    revision: str | None = None,
    verdict: str | None = None,
    names: Sequence[str] = (),
) -> list[Row]:
    """Rows with any cell that fits, with the cells of the asked release only."""
    out = []
    for row in rows:
        cells = {t: c for t, c in row.cells.items() if revision is None or t == revision}
        fits = any((tag is None or c.tag == tag) and (verdict is None or c.verdict == verdict) for c in cells.values())
        named = not names or any(row.name.lower().startswith(n.lower()) for n in names)
        if fits and named and (kind is None or row.kind == kind):
            out.append(Row(row.owner, cells))
    return out
