"""Looking every cited place up in a given source, and comparing with what was found and reviewed before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..knowledge.model import Knowledge, Revision, Text
from .anchors import Found, Missing, Module, find_section
from .source import BRIDGE, CORE, Source, SourceError, containing, core_beside, open_source, version_of
from .store import Evidence, Place, all_places, load_evidence, owners, speaks_at, write_recorded

State = Literal["holds", "moved", "changed", "new", "missing", "skipped"]
STATES: tuple[State, ...] = ("holds", "moved", "changed", "new", "missing", "skipped")
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Sighting:
    """What became of one place.

    Attributes:
        place: what was looked for.
        owners: rules and quantities that cite it.
        state: ``holds``: as reviewed. ``moved``: the same at other lines or in another file. ``changed``: there, but
            not as reviewed. ``new``: there, and nobody has reviewed it yet. ``missing``. ``skipped``: the given source
            doesn't hold such files.
        found: lines and fingerprint, or what is missing; None where skipped.
        before: what was recorded for this release, or None.
        path: where it was found, in the repository.
        look: what a reviewer must look at; None where nothing.
    """

    place: Place
    owners: tuple[str, ...]
    state: State
    found: Found | Missing | None
    before: Found | Missing | None
    path: str
    look: Text | None

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """As data, with the advice to reviewers in one language."""
        out: dict[str, Any] = {
            "anchor": self.place.key,
            "kind": self.place.kind,
            **self.place.to_dict(),
            "cited_by": list(self.owners),
            "state": self.state,
        }
        if isinstance(self.found, Found):
            out |= {"found_path": self.path, "lines": list(self.found.lines), "fingerprint": self.found.fingerprint}
        elif isinstance(self.found, Missing):
            out["missing"] = self.found.what
        if isinstance(self.before, Found):
            out["before"] = {"lines": list(self.before.lines), "fingerprint": self.before.fingerprint}
        if self.look is not None:
            out["look"] = self.look[lang]
        return out


@dataclass(frozen=True)
class Verification:
    """What ``verify`` found. ``hints``: places found outside their rule's range with a reviewed fingerprint."""

    revision: Revision
    sources: tuple[str, str | None]
    commits: tuple[str | None, str | None]
    sightings: tuple[Sighting, ...]
    hints: tuple[tuple[str, Place, Found], ...]
    notes: tuple[Text, ...]
    seconds: float

    @property
    def counts(self) -> dict[State, int]:
        """State -> number of places."""
        counted = Counter(s.state for s in self.sightings)
        return {state: counted[state] for state in STATES}

    @property
    def exit_code(self) -> int:
        """1 where a person must look, or a citation must be corrected, else 0."""
        return int(any(s.state in ("changed", "new", "missing") or s.path != s.place.path for s in self.sightings))

    @property
    def found(self) -> dict[Place, Found | Missing]:
        """All places that were looked up. What is in another file by now isn't where the citation says."""
        return {
            s.place: s.found if s.path == s.place.path else Missing("file")
            for s in self.sightings
            if s.found is not None
        }

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """As data."""
        return {
            "revision": self.revision.tag,
            "bridge": {"source": self.sources[0], "commit": self.commits[0]},
            "core": {"source": self.sources[1], "commit": self.commits[1]},
            "counts": self.counts,
            "seconds": round(self.seconds, 2),
            "notes": [note[lang] for note in self.notes],
            "anchors": [s.to_dict(lang) for s in self.sightings],
            "outside_range": [
                {"cited_by": name, "anchor": place.key, **place.to_dict(), "lines": list(found.lines)}
                for name, place, found in self.hints
            ],
        }


def verify(
    knowledge: Knowledge,
    bridge: Path,
    core: Path | None = None,
    tag: str | None = None,
    progress: Progress = lambda stage, share: None,
) -> Verification:
    """Look up every citation of a release in a source. Nothing in the source is executed or changed.

    Args:
        knowledge: the rules, with their evidence under ``knowledge.root``.
        bridge: a checkout or git repository of Megatron Bridge, or the site-packages folder that holds it.
        core: the same for Megatron Core; None = what lies beside Bridge, else Core's places are skipped.
        tag: the release; a git repository is then read at this tag. None = told from the source itself.
        progress: called with what is done and the share done.

    Raises:
        SourceError: a source can't be used.
        KnowledgeError: the evidence files have mistakes.
    """
    sources, revision, notes = open_sources(knowledge, bridge, core, tag)
    return verify_sources(knowledge, sources, revision, notes, progress)


def verify_sources(
    knowledge: Knowledge,
    sources: Mapping[str, Source],
    revision: Revision,
    notes: Sequence[Text] = (),
    progress: Progress = lambda stage, share: None,
) -> Verification:
    """The same for sources that are already open, by repository, as what they are taken for."""
    begun = time.perf_counter()
    notes = list(notes)
    evidence = load_evidence(Path(knowledge.root))
    finder = Finder(sources)
    cited = all_places(knowledge, revision)
    recorded = evidence.recorded.get(revision.tag)
    sightings = []
    for n, (place, names) in enumerate(cited.items()):
        progress(f"{n + 1}/{len(cited)} {place.path.rsplit('/', 1)[-1]}", n / max(1, len(cited)))
        before = recorded.anchors.get(place.key) if recorded else None
        accepted = evidence.accepted.get(place.key, frozenset())
        sightings.append(_sight(place, tuple(names), before, accepted, finder))
    finder.complain()
    hints = tuple(_hints(knowledge, revision, evidence, finder, cited))
    if recorded is None:
        notes.append(
            Text(
                f"Nothing is recorded for {revision.tag} yet: compared with what was reviewed at other releases.",
                f"{revision.tag} 尚无记录：与其他版本已审阅的内容比较。",
            )
        )
    found_core = sources.get(CORE)
    return Verification(
        revision,
        (str(sources[BRIDGE]), str(found_core) if found_core else None),
        (sources[BRIDGE].commit, found_core.commit if found_core else None),
        tuple(sightings),
        hints,
        tuple(notes),
        time.perf_counter() - begun,
    )


def record(knowledge: Knowledge, result: Verification) -> Path:
    """Write what was found at a release to the evidence of the knowledge base.

    Raises:
        SourceError: not everything was looked up.
        OSError: the folder can't be written.
    """
    if result.counts["skipped"]:
        raise SourceError(
            result.sources[0],
            f"doesn't hold {result.counts['skipped']} of the cited places",
            "A record needs the repositories of both Megatron Bridge and Megatron Core.",
        )
    return write_recorded(Path(knowledge.root), result.revision, result.commits, result.found)


def open_sources(
    knowledge: Knowledge, bridge: Path, core: Path | None, tag: str | None
) -> tuple[dict[str, Source], Revision, list[Text]]:
    """The sources to read, the release that they are, and what people should know about them.

    Raises:
        SourceError: a source can't be used, or its release can't be told.
    """
    if tag is not None and tag not in knowledge.revisions:
        known = ", ".join(knowledge.revisions)
        raise SourceError(
            f"--revision {tag}",
            "isn't a release that the knowledge base speaks of",
            f"Known: {known}. Add another one with `revisions add`.",
        )
    source = open_source(BRIDGE, bridge, tag)
    revision = knowledge.revisions[tag] if tag else _release_of(source, knowledge)
    notes = []
    if source.commit and source.commit != revision.commit:
        notes.append(
            Text(
                f"The source is at commit {source.commit[:12]}; {revision.tag} is {revision.commit[:12]}.",
                f"源码位于提交 {source.commit[:12]}，而 {revision.tag} 是 {revision.commit[:12]}。",
            )
        )
    beside = open_source(CORE, core, revision.core_commit if tag else None) if core else core_beside(source)
    if beside is None:
        notes.append(
            Text(
                "No source of Megatron Core was given (--core-source): what it enforces was not looked at.",
                "未提供 Megatron Core 源码（--core-source），因此未检查其中的约束。",
            )
        )
        return {BRIDGE: source}, revision, notes
    if beside.commit and beside.commit != revision.core_commit:
        notes.append(
            Text(
                f"Core is at commit {beside.commit[:12]}; {revision.tag} pins {revision.core_commit[:12]}.",
                f"Core 位于提交 {beside.commit[:12]}，而 {revision.tag} 锁定的是 {revision.core_commit[:12]}。",
            )
        )
    return {BRIDGE: source, CORE: beside}, revision, notes


def _release_of(source: Source, knowledge: Knowledge) -> Revision:
    for revision in knowledge.revisions.values():
        if source.commit == revision.commit:
            return revision
    version = version_of(source)
    if version is not None and f"v{version}" in knowledge.revisions:
        return knowledge.revisions[f"v{version}"]
    says = f"calls itself {version}" if version else "doesn't say its version"
    raise SourceError(
        str(source),
        f"{says}, which is no release that the knowledge base speaks of",
        f"Say which one to compare with: --revision {' | '.join(knowledge.revisions)}.",
    )


class Finder:
    """Finds places in sources; parses each file once.

    Files that don't parse are gathered, so that all can be named at once.
    """

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self._modules: dict[tuple[str, str], Module | bytes | None] = {}
        self._broken: dict[str, str] = {}

    def lacks(self, place: Place) -> Text | None:
        """Why the given sources can't hold a place, or None where they can."""
        source = self.sources.get(place.repo)
        if source is None:
            return Text("No source of that repository was given.", "未提供该仓库的源码。")
        inside = place.path.removeprefix("src/").startswith(("megatron/bridge/", "megatron/core/"))
        if source.layout == "wheel" and not inside:
            return Text("A wheel doesn't hold this file.", "wheel 中不含此文件。")
        return None

    def find(self, place: Place, path: str | None = None) -> Found | Missing:
        """Look a place up, at its own path or at another."""
        path = path or place.path
        module = self._module(place, path)
        if module is None:
            return Missing("file")
        if isinstance(module, bytes):
            return find_section(module, place.name)
        try:
            return module.find(place.name, place.condition)
        except SyntaxError as error:
            self._broken[path] = str(error)
            return Missing("file")

    def search(self, place: Place, fingerprint: str) -> tuple[str, Found] | None:
        """The same thing in another file of the repository, if its fingerprint is there."""
        suffix = ".py" if place.kind == "code" else "." + place.path.rsplit(".", 1)[-1]
        word = place.name.rsplit(".", 1)[-1] if place.kind == "code" else place.name.split()[0]
        for path, _ in containing(self.sources[place.repo], suffix, word):
            if path == place.path or "/tests/" in f"/{path}":
                continue
            try:
                found = self.find(place, path)
            except SyntaxError:
                continue
            if isinstance(found, Found) and found.fingerprint == fingerprint:
                return path, found
        return None

    def complain(self) -> None:
        """Raise for files that don't parse.

        Raises:
            SourceError: names all of them.
        """
        if self._broken:
            listed = "; ".join(f"{path}: {reason}" for path, reason in sorted(self._broken.items()))
            raise SourceError(
                str(next(iter(self.sources.values()))),
                f"has files that don't parse ({listed})",
                "Give an unbroken source, or run this under the Python version that it is written for.",
            )

    def _module(self, place: Place, path: str) -> Module | bytes | None:
        key = (place.repo, path)
        if key not in self._modules:
            raw = self.sources[place.repo].read(path)
            self._modules[key] = raw
            if raw is not None and place.kind == "code":
                try:
                    self._modules[key] = Module(raw)
                except SyntaxError as error:
                    line = f"line {error.lineno}: " if error.lineno else ""
                    self._broken[path] = f"{line}{error.msg or error}"
                    self._modules[key] = None
        return self._modules[key]


def _sight(
    place: Place,
    names: tuple[str, ...],
    before: Found | Missing | None,
    accepted: frozenset[str],
    finder: Finder,
) -> Sighting:
    def seen(state: State, found: Found | Missing | None, look: Text | None, path: str = place.path) -> Sighting:
        return Sighting(place, names, state, found, before, path, look)

    if (why := finder.lacks(place)) is not None:
        return seen("skipped", None, why)
    found = finder.find(place)
    who, zh_who = ", ".join(names), "、".join(names)
    reviewed = {before.fingerprint} & accepted if isinstance(before, Found) else accepted
    if isinstance(found, Missing):
        for fingerprint in sorted(reviewed):
            if found.what in ("file", "symbol") and (other := finder.search(place, fingerprint)) is not None:
                path, there = other
                where = f"{path}:{there.lines[0]}-{there.lines[1]}"
                return seen(
                    "moved",
                    there,
                    Text(f"The same, now in {where}: correct the citation.", f"内容未变，现位于 {where}：请更正引用。"),
                    path,
                )
        return seen("missing", found, _MISSING[found.what](place, who, zh_who))
    lines = f"{found.lines[0]}-{found.lines[1]}"
    if found.fingerprint in reviewed:
        if isinstance(before, Found) and before.lines != found.lines:
            was = f"{before.lines[0]}-{before.lines[1]}"
            return seen(
                "moved", found, Text(f"The same, at lines {lines} (was {was}).", f"内容未变，行号 {was} → {lines}。")
            )
        return seen("holds", found, None)
    if not accepted:
        return seen(
            "new",
            found,
            Text(
                f"Nobody has reviewed it: does {place.path}:{lines} say what {who} says? If so, accept it.",
                f"尚未审阅：{place.path}:{lines} 是否与 {zh_who} 一致？一致则接受。",
            ),
        )
    return seen(
        "changed",
        found,
        Text(
            f"Not as reviewed: does {place.path}:{lines} still say what {who} says? If so, accept it; if not, add a "
            "variant or narrow the range.",
            f"与已审阅的内容不同：{place.path}:{lines} 是否仍与 {zh_who} 一致？"
            "一致则接受；否则添加 variant 或缩小版本范围。",
        ),
    )


def _gone(en: str, zh: str) -> Callable[[Place, str, str], Text]:
    def say(place: Place, who: str, zh_who: str) -> Text:
        tail = f" Where is it now? If nowhere, {who} must end before this release."
        return Text(
            en.format(p=place) + tail, zh.format(p=place) + f"它现在在哪里？若已删除，{zh_who} 应止于此版本之前。"
        )

    return say


_MISSING: Mapping[str, Callable[[Place, str, str], Text]] = {
    "file": _gone("There is no {p.path}.", "不存在 {p.path}。"),
    "symbol": _gone("{p.path} has no {p.name}.", "{p.path} 中没有 {p.name}。"),
    "statement": _gone(
        "No statement of {p.name} has all of: {p.condition}.", "{p.name} 中没有同时包含 {p.condition} 的语句。"
    ),
    "heading": _gone("{p.path} has no section {p.name!r}.", "{p.path} 中没有 {p.name!r} 一节。"),
}


def _hints(
    knowledge: Knowledge, revision: Revision, evidence: Evidence, finder: Finder, cited: Mapping[Place, list[str]]
) -> Iterable[tuple[str, Place, Found]]:
    """Code that is there as reviewed although the rule doesn't speak of this release."""
    for name, owner in owners(knowledge).items():
        for citation in owner.citations:
            place = Place.of(citation)
            if place is None or place.kind != "code" or place in cited or finder.lacks(place):
                continue
            if revision.within(owner.bridge) and speaks_at(citation, revision):
                continue
            found = finder.find(place)
            if isinstance(found, Found) and found.fingerprint in evidence.accepted.get(place.key, frozenset()):
                yield name, place, found
