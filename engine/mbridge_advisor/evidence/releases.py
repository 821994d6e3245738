"""A new release of Megatron Bridge: what it pins, what is unchanged, and what a person must look at."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from ..knowledge.load import assemble, check
from ..knowledge.model import Knowledge
from ..knowledge.sources import Files
from . import matrix
from .source import BRIDGE, CORE, Git, Source, SourceError, git, open_source, version_of
from .store import Evidence, Recorded, flow, load_evidence, write_text
from .verify import Progress, Verification, verify_sources
from .verify import record as record_found

PIN = "3rdparty/Megatron-LM"
_TABLE = "docs/releases/software-versions.md"
_TABLE_ROWS: Mapping[str, tuple[str, ...]] = {
    "pytorch": ("PyTorch",),
    "transformer_engine": ("Transformer Engine",),
    "cuda": ("CUDA",),
    "cudnn": ("cuDNN",),
    "nemo_run": ("NeMo Run",),
    "modelopt": ("Nvidia-ModelOpt", "TRT-ModelOpt"),
    "transformers": ("Transformers",),
}
"""Component -> how the table of container versions names it."""

_LOCKED = {"pytorch_locked": "torch", "transformer_engine_locked": "transformer-engine"}
_LOCKED_ELSE = {"nemo_run": "nemo-run", "transformers": "transformers"}
"""Component -> package in uv.lock; the second where the table has none."""


@dataclass(frozen=True)
class Added:
    """A release that was added.

    Attributes:
        entry: as ``revisions.yaml`` has it.
        unstated: components whose version the release doesn't state.
        verification: what became of every anchor.
        matrix: verdict -> number of rules and quantities at the release.
        written: files.
    """

    entry: Mapping[str, Any]
    unstated: tuple[str, ...]
    verification: Verification
    matrix: Mapping[str, int]
    written: tuple[Path, ...]

    @property
    def exit_code(self) -> int:
        """1 where a person must look at an anchor, else 0."""
        return self.verification.exit_code

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """As data."""
        return {
            "release": dict(self.entry),
            "unstated": list(self.unstated),
            "verification": self.verification.to_dict(lang),
            "matrix": dict(self.matrix),
            "written": [str(path) for path in self.written],
        }


def add(
    root: Path,
    tag: str,
    bridge: Path,
    core: Path | None = None,
    progress: Progress = lambda stage, share: None,
    dry_run: bool = False,
) -> Added:
    """Read a release from git, look all anchors up, and write its entry, its record and the new matrix.

    What is as reviewed at any other release is carried over by that; what isn't stays ``changed`` in the matrix until
    somebody accepts it. Nothing is written unless all of it worked.

    Args:
        root: the folder that holds ``knowledge/``. Its rules may speak of the new release already.
        tag: the release.
        bridge: a git repository of Megatron Bridge that has the tag.
        core: one of Megatron Core that has the pinned commit; None = Bridge's own submodule.
        progress: called with what is done and the share done.
        dry_run: write nothing.

    Raises:
        SourceError: the sources lack the release, its pin, or what the entry needs.
        KnowledgeError: the entry would not be a valid one, or evidence files have mistakes.
        OSError: a file can't be written.
    """
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        raise SourceError(tag, "isn't the tag of a release", "Tags look like v0.6.0.")
    place = root / "knowledge" / "revisions.yaml"
    text = place.read_text(encoding="utf-8")
    if re.search(rf"^  - tag: [\"']?{re.escape(tag)}[\"']?\s*$", text, re.MULTILINE):
        raise SourceError(tag, "is in the knowledge base already", "Remove it first to add it anew.")
    source = open_source(BRIDGE, bridge, tag)
    if not isinstance(source, Git):
        raise SourceError(str(bridge), "isn't a git repository", "A pin can only be read from git.")
    pin = _pin(source)
    core_source = open_source(CORE, core or source.root / PIN, pin)
    entry = describe(source, core_source, tag, pin)
    text = insert(text, tag, entry)
    grown = _load_with(root, text)
    revision = grown.revisions[tag]
    found = verify_sources(grown, {BRIDGE: source, CORE: core_source}, revision, (), progress)
    evidence = load_evidence(root)
    now = _with(evidence, found)
    rows = matrix.build(grown, now)
    counted: dict[str, int] = {v: sum(row.cells[tag].verdict == v for row in rows) for v in matrix.VERDICTS}
    written: tuple[Path, ...] = ()
    if not dry_run:
        record = record_found(grown, found)
        write_text(place, text)
        write_text(root / matrix.FILE, matrix.render(grown, now))
        written = (place, record, root / matrix.FILE)
    unstated = tuple(name for name, version in entry["environment"].items() if version is None)
    return Added(entry, unstated, found, counted, written)


def _with(evidence: Evidence, found: Verification) -> Evidence:
    anchors = {place.key: outcome for place, outcome in found.found.items()}
    recorded = Recorded(found.revision.tag, found.commits, anchors)
    return replace(evidence, recorded={**evidence.recorded, found.revision.tag: recorded})


def _pin(source: Git) -> str:
    line = git(source.root, "ls-tree", source.commit, PIN).split()
    if len(line) < 3 or line[1] != "commit":
        raise SourceError(str(source), f"pins no Megatron Core at {PIN}", "Is it a release of Megatron Bridge?")
    return line[2]


def describe(source: Git, core: Source, tag: str, pin: str) -> dict[str, Any]:
    """The entry of a release for ``revisions.yaml``: what the release itself states, null for what it doesn't."""
    core_version = version_of(core)
    if core_version is None:
        raise SourceError(str(core), "doesn't say its version", "Is it Megatron Core at the pinned commit?")
    lock = _locked(source)
    heading, table = _table(source, tag)
    environment: dict[str, str | None] = {"container": _container(source, tag), "base_image": _base_image(source)}
    for name in ("pytorch", "transformer_engine"):
        environment[name] = table.get(name)
        environment[f"{name}_locked"] = lock.get(_LOCKED[f"{name}_locked"])
    environment["cuda"], environment["cudnn"] = table.get("cuda"), table.get("cudnn")
    environment["python"] = (_text(source, ".python-version") or "").strip() or None
    environment["requires_python"] = _toml(source, "pyproject.toml").get("project", {}).get("requires-python")
    for name in ("nemo_run", "modelopt", "transformers"):
        environment[name] = table.get(name) or lock.get(_LOCKED_ELSE.get(name, ""))

    def data(path: str, locator: str) -> dict[str, Any]:
        return {"data": {"repo": BRIDGE, "path": path, "locator": locator, "at": tag}}

    citations: list[dict[str, Any]] = []
    if heading:
        citations.append({"doc": {"repo": BRIDGE, "path": _TABLE, "heading": heading, "at": tag}})
    if environment["container"]:
        citations.append(data("docs/versions1.json", tag.removeprefix("v")))
    citations.append(data("docker/Dockerfile.ci", "ARG BASE_IMAGE"))
    citations.append(data("pyproject.toml", "requires-python"))
    citations.append(data(".python-version", "whole file"))
    citations.append(data("uv.lock", "torch, transformer-engine, transformers, nemo-run"))
    return {
        "tag": tag,
        "commit": source.commit,
        "core_commit": pin,
        "core_version": core_version,
        "released": _released(source),
        "environment": environment,
        "citations": citations,
    }


def _load_with(root: Path, revisions: str) -> Knowledge:
    """The knowledge base with another ``revisions.yaml``, checked."""
    files = Files.read(root)
    changed = {**files.contents, "knowledge/revisions.yaml": ("revisions", revisions.encode())}
    files = replace(files, contents=changed)
    return assemble(check(root, files), files.digest, root)


def insert(text: str, tag: str, entry: Mapping[str, Any]) -> str:
    """``revisions.yaml`` with an entry more, before the first newer release; the rest stays as it is."""
    lines = [f"  - tag: {tag}"]
    lines += [f"    {name}: {flow(entry[name])}" for name in ("commit", "core_commit", "core_version", "released")]
    lines += ["    environment:", *(f"      {k}: {flow(v)}" for k, v in entry["environment"].items())]
    lines += ["    citations:", *(f"      - {flow(citation)[1:-1]}" for citation in entry["citations"])]
    block = "\n".join(lines) + "\n"
    for match in re.finditer(r"^  - tag: [\"']?v([^\s\"']+).*\n", text, re.MULTILINE):
        if Version(match.group(1)) > Version(tag.removeprefix("v")):
            return text[: match.start()] + block + "\n" + text[match.start() :]
    gap = "" if text.endswith(("\n\n", "revisions:\n")) else "\n"
    return text + gap + block


def _text(source: Source, path: str) -> str | None:
    raw = source.read(path)
    return None if raw is None else raw.decode("utf-8", "replace")


def _toml(source: Source, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(source, path) or "")
    except tomllib.TOMLDecodeError as error:
        raise SourceError(str(source), f"has a {path} that isn't TOML ({error})", "Give an unbroken source.") from None


def _locked(source: Source) -> dict[str, str]:
    packages = _toml(source, "uv.lock").get("package", [])
    return {p["name"]: p["version"] for p in packages if "name" in p and "version" in p}


def _table(source: Source, tag: str) -> tuple[str | None, dict[str, str]]:
    """The table of container versions of the release's series (0.4.0 stands for 0.4.2), with its heading."""
    wanted = Version(tag.removeprefix("v")).release[:2]
    for part in re.split(r"^## ", _text(source, _TABLE) or "", flags=re.MULTILINE)[1:]:
        rows = dict(re.findall(r"^\|\s*([^|]+?)\s*\|\s*([^|]+?)\s*\|", part, re.MULTILINE))
        match = re.match(r"\d+\.\d+", rows.get("Megatron-Bridge", ""))
        if match and Version(match.group()).release == wanted:
            found = {name: rows[label] for name, labels in _TABLE_ROWS.items() for label in labels if label in rows}
            return part.split("\n", 1)[0].strip(), found
    return None, {}


def _container(source: Source, tag: str) -> str | None:
    """The image that the list of documentation versions names beside the release."""
    try:
        listed = json.loads(_text(source, "docs/versions1.json") or "[]")
    except ValueError:
        return None
    for row in listed if isinstance(listed, list) else []:
        if isinstance(row, dict) and row.get("version") == tag.removeprefix("v"):
            match = re.search(r"·\s*(\d\d\.\d\d(?:\.\d\d)?)", str(row.get("name", "")))
            return f"nvcr.io/nvidia/nemo:{match.group(1)}" if match else None
    return None


def _base_image(source: Source) -> str | None:
    match = re.search(r"^(?:ARG BASE_IMAGE=|FROM )(\S+:\S+)", _text(source, "docker/Dockerfile.ci") or "", re.MULTILINE)
    return match.group(1) if match else None


def _released(source: Git) -> str:
    """Day of the tag object, or of the commit where the tag is a plain one."""
    day = git(source.root, "for-each-ref", f"refs/tags/{source.shown}", "--format=%(creatordate:short)").strip()
    return day or git(source.root, "show", "-s", "--format=%cs", source.commit).strip()
