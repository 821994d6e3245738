"""What has been found and reviewed: the files under ``knowledge/evidence/``.

``anchors/<tag>.yaml``     what a machine found at a release: one entry a place, with lines and fingerprint, or what is
                           missing. Written by ``evidence record`` and ``revisions add``, never by hand.
``reviews.yaml``           which fingerprints a person has read and found to be what the rules say, and verdicts that a
                           person carries over to another release where no machine can tell.
``executions/*.yaml``      runs of the real code, with the rules that they confirmed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import KnowledgeError, RequestError
from ..expressions import Expression
from ..knowledge.model import Citation, Knowledge, Quantity, Revision, Rule
from ..knowledge.schema import validate
from ..knowledge.yaml_reader import read
from .anchors import Found, Missing
from .source import BRIDGE

Owner = Rule | Quantity
FOLDER = Path("knowledge") / "evidence"


@dataclass(frozen=True, order=True)
class Place:
    """Something that can be looked up in a source: what a citation of kind ``code`` or ``doc`` names."""

    kind: str
    repo: str
    path: str
    name: str  # symbol or heading
    condition: str | None = None

    @staticmethod
    def of(citation: Citation) -> Place | None:
        """The place of a citation; None for kinds that can't be looked up."""
        w = citation.where
        if citation.kind == "code":
            words = sorted(set(w.get("condition", "").split()))
            return Place("code", w["repo"], w["path"], w["symbol"], " ".join(words) or None)
        return Place("doc", w["repo"], w["path"], w["heading"]) if citation.kind == "doc" else None

    @property
    def key(self) -> str:
        """A short, stable name: the same place has it at every release."""
        text = "\0".join((self.repo, self.path, self.name, self.condition or ""))
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    def __str__(self) -> str:
        inside = f" [{self.condition}]" if self.condition else ""
        return f"{self.path} {'§ ' if self.kind == 'doc' else ''}{self.name}{inside}"

    def to_dict(self) -> dict[str, str]:
        """The place as a citation writes it, without its kind."""
        out = {"repo": self.repo, "path": self.path, "symbol" if self.kind == "code" else "heading": self.name}
        return {**out, "condition": self.condition} if self.condition else out


def owners(knowledge: Knowledge) -> dict[str, Owner]:
    """Rules that aren't withdrawn, and quantities, by id and name."""
    rules: dict[str, Owner] = {r.id: r for r in knowledge.rules.values() if not r.withdrawn}
    return {**rules, **knowledge.quantities}


def speaks_at(citation: Citation, revision: Revision) -> bool:
    """Whether a citation speaks of a release: always, unless ``at`` says a specifier, a tag or a commit."""
    at = citation.where.get("at")
    if at is None or at in (revision.tag, revision.commit, revision.core_commit):
        return True
    return bool(re.match(r"[<>=!~]", at)) and revision.within(at)


def places_at(owner: Owner, revision: Revision) -> list[Place]:
    """The places that an owner cites at a release; none where it doesn't speak of it."""
    if not revision.within(owner.bridge):
        return []
    found = (Place.of(c) for c in owner.citations if speaks_at(c, revision))
    return list(dict.fromkeys(p for p in found if p is not None))


def all_places(knowledge: Knowledge, revision: Revision) -> dict[Place, list[str]]:
    """Every place cited at a release, with who cites it."""
    out: dict[Place, list[str]] = {}
    for name, owner in owners(knowledge).items():
        for place in places_at(owner, revision):
            out.setdefault(place, []).append(name)
    return dict(sorted(out.items()))


def condition_digest(knowledge: Knowledge, name: str, revision: Revision) -> str | None:
    """A digest of what a rule or quantity says at a release, as far as a run of the real code can bear it out.

    It covers the rule's condition and the formulas of the quantities that it reads, these again with theirs; texts,
    fixes and citations have no part in it.

    Returns:
        16 hexadecimal digits; None where the rule or quantity doesn't speak of the release.
    """
    rule, quantity = knowledge.rules.get(name), knowledge.quantities.get(name)
    at = rule.at(revision) if rule else None
    formula = quantity.at(revision) if quantity else None
    if at is None and formula is None:
        return None
    sources = list(at.when) if at else [str(formula)]
    formulas: dict[str, str] = {}
    waiting = list(sources)
    while waiting:
        for read_name in Expression(waiting.pop(), knowledge.terms).names - formulas.keys():
            inner = knowledge.quantities.get(read_name)
            if inner is not None and (text := inner.at(revision)) is not None:
                formulas[read_name] = text
                waiting.append(text)
    said = json.dumps([sources, sorted(formulas.items())])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Recorded:
    """What was found at one release.

    Attributes:
        commits: of Bridge and Core, as read; None where unknown.
        anchors: key of a place -> what was found there.
    """

    revision: str
    commits: tuple[str | None, str | None]
    anchors: Mapping[str, Found | Missing]


@dataclass(frozen=True)
class Carried:
    """A verdict that a person carries over from another release."""

    rule: str
    revision: str
    source: str
    by: str
    on: str
    reason: str


@dataclass(frozen=True)
class Execution:
    """A run of the real code at one release.

    Attributes:
        rules: id of a rule or name of a quantity -> how often it was tried and the real code agreed.
        conditions: the same -> :func:`condition_digest` of what was tried.
    """

    id: str
    revision: str
    bridge_commit: str
    core_commit: str
    tried: int
    disagreements: int
    rules: Mapping[str, int]
    conditions: Mapping[str, str] = field(default_factory=dict)

    def confirms(self, knowledge: Knowledge, name: str, revision: Revision) -> bool:
        """Whether it bears out a rule or quantity at a release, as that stands today."""
        if not self.speaks_for(revision) or self.rules.get(name, 0) < 1:
            return False
        return self.conditions.get(name) == condition_digest(knowledge, name, revision)

    def speaks_for(self, revision: Revision) -> bool:
        """Whether it ran this release's very commits."""
        return (self.revision, self.bridge_commit, self.core_commit) == (
            revision.tag,
            revision.commit,
            revision.core_commit,
        )


@dataclass(frozen=True)
class Evidence:
    """All of it.

    Attributes:
        recorded: tag -> what was found there.
        accepted: key of a place -> fingerprints that a person has reviewed.
        carried: (rule or quantity, tag) -> verdict carried over.
        executions: all runs.
    """

    recorded: Mapping[str, Recorded] = field(default_factory=dict)
    accepted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    carried: Mapping[tuple[str, str], Carried] = field(default_factory=dict)
    executions: tuple[Execution, ...] = ()


def load_evidence(root: Path) -> Evidence:
    """Read the evidence files of a knowledge base.

    Raises:
        KnowledgeError: a file has mistakes.
    """
    folder = root / FOLDER
    recorded = {}
    for path in sorted((folder / "anchors").glob("*.yaml")):
        data = _read(root, path, "evidence")
        recorded[data["revision"]] = Recorded(
            data["revision"],
            (data["bridge_commit"], data["core_commit"]),
            {key: _outcome(entry) for key, entry in data["anchors"].items()},
        )
    accepted: dict[str, set[str]] = {}
    carried = {}
    if (folder / "reviews.yaml").is_file():
        data = _read(root, folder / "reviews.yaml", "reviews")
        for review in data["reviews"]:
            for key, fingerprints in review["accepts"].items():
                accepted.setdefault(key, set()).update(fingerprints)
        for row in data.get("carried", ()):
            one = Carried(row["rule"], row["revision"], row["from"], row["by"], row["on"], row["reason"])
            carried[one.rule, one.revision] = one
    executions = []
    for path in sorted((folder / "executions").glob("*.yaml")):
        data = _read(root, path, "execution")
        executions.append(Execution(**{name: data[name] for name in Execution.__dataclass_fields__ if name in data}))
    return Evidence(recorded, {key: frozenset(found) for key, found in accepted.items()}, carried, tuple(executions))


def _read(root: Path, path: Path, schema: str) -> Any:
    document = read(path, path.relative_to(root).as_posix())
    if problems := validate(document, schema):
        raise KnowledgeError(problems)
    return document.data


def _outcome(entry: Mapping[str, Any]) -> Found | Missing:
    if "missing" in entry:
        return Missing(entry["missing"])
    first, last = entry["lines"]
    return Found((first, last), entry["fingerprint"])


def write_recorded(
    root: Path, revision: Revision, commits: tuple[str | None, str | None], found: Mapping[Place, Found | Missing]
) -> Path:
    """Write what was found at a release.

    Raises:
        OSError: the folder can't be written.
    """
    lines = [
        "# What a machine found at this release; written by `mbridge-advisor evidence record`.",
        f"revision: {revision.tag}",
        f"bridge_commit: {flow(commits[0])}",
        f"core_commit: {flow(commits[1])}",
        "anchors:" if found else "anchors: {}",
    ]
    for place, outcome in sorted(found.items(), key=lambda pair: pair[0]):
        what: dict[str, Any] = (
            {"missing": outcome.what}
            if isinstance(outcome, Missing)
            else {"lines": list(outcome.lines), "fingerprint": outcome.fingerprint}
        )
        lines.append(f"  {place.key}: {flow({**place.to_dict(), **what})}")
    path = root / FOLDER / "anchors" / f"{revision.tag}.yaml"
    write_text(path, "\n".join(lines) + "\n")
    return path


def accept(root: Path, by: str, on: str, reason: str, accepts: Mapping[str, Iterable[str]]) -> Path:
    """Add a review: a person has read what these fingerprints stand for."""
    path = root / FOLDER / "reviews.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else _REVIEWS
    entry = [f"  - by: {flow(by)}", f"    on: {flow(on)}", f"    reason: {flow(reason)}", "    accepts:"]
    entry += [f"      {key}: {flow(sorted(found))}" for key, found in sorted(accepts.items())]
    head, mark, tail = text.partition("\ncarried:")
    head = head.replace("reviews: []", "reviews:").rstrip("\n")
    write_text(path, "\n".join([head, *entry]) + "\n" + (mark + tail if mark else ""))
    return path


def waiting(
    knowledge: Knowledge, evidence: Evidence, revisions: Iterable[str], names: Collection[str] = ()
) -> dict[str, set[str]]:
    """Fingerprints that were recorded and that nobody has reviewed, by key of their place.

    Args:
        knowledge: says what is cited where.
        evidence: says what was recorded and reviewed.
        revisions: tags to look at.
        names: rules, quantities or keys to look at; none = all.

    Raises:
        RequestError: a release without record, or a name that isn't cited at any of them.
    """
    out: dict[str, set[str]] = {}
    known: set[str] = set()
    for tag in revisions:
        if tag not in evidence.recorded or tag not in knowledge.revisions:
            raise RequestError("--revision", tag, "has no record", "Run `mbridge-advisor evidence record` first.")
        for place, who in all_places(knowledge, knowledge.revisions[tag]).items():
            known.update((place.key, *who))
            found = evidence.recorded[tag].anchors.get(place.key)
            wanted = not names or place.key in names or any(name in names for name in who)
            reviewed = evidence.accepted.get(place.key, frozenset())
            if wanted and isinstance(found, Found) and found.fingerprint not in reviewed:
                out.setdefault(place.key, set()).add(found.fingerprint)
    for name in names:
        if name not in known:
            raise RequestError("NAMES", name, "isn't cited there", "Name a rule, quantity or anchor.")
    return out


_REVIEWS = """\
# Who has read which fingerprints (added by `mbridge-advisor evidence accept`), and verdicts carried over by a person.
reviews: []
"""

_BARE = re.compile(r"[A-Za-z0-9_.](([A-Za-z0-9_./+ -]|:(?=[A-Za-z0-9]))*[A-Za-z0-9_/+])?")
_SPECIAL = re.compile(
    r"null|true|false|yes|no|on|off|\d*\.?\d*(e[-+]?\d+)?|\d{4}-\d\d-\d\d|0[xob].*|[\d:]+", re.IGNORECASE
)


def flow(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _BARE.fullmatch(value) and not _SPECIAL.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=isinstance(value, str) and not value.isprintable())


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def core_needed(place: Place) -> bool:
    """Whether a place lies in Megatron Core rather than in Bridge."""
    return place.repo != BRIDGE
