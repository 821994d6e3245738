"""Which files make up a knowledge base, and reading them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KnowledgeError, Problem

if TYPE_CHECKING:
    from .yaml_reader import Document

EAGER: Mapping[str, str] = {
    "knowledge": "knowledge.yaml",
    "vocabulary": "vocabulary.yaml",
    "revisions": "revisions.yaml",
    "gpu": "facts/gpus/*.yaml",
    "model": "facts/models/*.yaml",
    "calibration": "facts/calibration.yaml",
    "quantities": "quantities/*.yaml",
    "rules": "rules/**/*.yaml",
}
"""Kind of file (the name of its schema) -> where it lies under ``knowledge/``; read by ``load``."""

LAZY: Mapping[str, str] = {
    "recipes": "facts/recipes/*.yaml",
    "mapping": "mappings/*.yaml",
    "throughput": "facts/measurements/published_throughput.yaml",
    "measured_memory": "facts/measurements/measured_memory*.yaml",
    "left_out": "facts/measurements/left_out.yaml",
    "evidence": "evidence/anchors/*.yaml",
    "reviews": "evidence/reviews.yaml",
    "execution": "evidence/executions/*.yaml",
    "guide": "audit/guide.yaml",
    "guide_found": "audit/found.yaml",
}
"""The same for files that are read when asked for."""

MATRIX = "compat_matrix.yaml"
"""What the rules have earned at each release; beside ``knowledge/``, computed from it, and missing in a new base."""


def paths(root: Path, kinds: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """The files of some kinds, each with its kind, in a fixed order."""
    for kind, pattern in kinds.items():
        for path in sorted((root / "knowledge").glob(pattern)):
            yield kind, path


@dataclass(frozen=True)
class Files:
    """The bytes of all files that ``load`` reads.

    Attributes:
        contents: name relative to the root -> (kind, bytes).
        digest: SHA-256 over names and bytes, hexadecimal.
    """

    contents: Mapping[str, tuple[str, bytes]]
    digest: str

    @staticmethod
    def read(root: Path) -> Files:
        """Read them.

        Raises:
            KnowledgeError: files that can't be read.
        """
        contents: dict[str, tuple[str, bytes]] = {}
        problems = []
        digest = hashlib.sha256()
        matrix = [("compat_matrix", root / MATRIX)] if (root / MATRIX).is_file() else []
        for kind, path in (*paths(root, EAGER), *matrix):
            name = path.relative_to(root).as_posix()
            try:
                raw = path.read_bytes()
            except OSError as error:
                problems.append(Problem(name, None, "", f"can't be read ({error.strerror})", "a readable file"))
                continue
            contents[name] = (kind, raw)
            digest.update(f"{name}\0{len(raw)}\0".encode())
            digest.update(raw)
        if problems:
            raise KnowledgeError(problems)
        return Files(contents, digest.hexdigest())

    def documents(self) -> tuple[list[tuple[str, Document]], list[Problem]]:
        """The documents with their kinds, and what kept others from being read."""
        from .yaml_reader import parse  # not needed where a snapshot serves

        documents: list[tuple[str, Document]] = []
        problems: list[Problem] = []
        for name, (kind, raw) in self.contents.items():
            try:
                documents.append((kind, parse(raw, name)))
            except KnowledgeError as error:
                problems.extend(error.problems)
        return documents, problems


Plain = Mapping[str, tuple[str, Any, tuple[int, ...]]]
"""Checked content: file name -> (kind, data, line of each rule)."""
