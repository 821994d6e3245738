"""Loading the knowledge base."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KnowledgeError, Problem
from . import build, snapshot
from .locate import find_root
from .model import Knowledge
from .sources import LAZY, Files, Plain

if TYPE_CHECKING:
    from .yaml_reader import Document

Row = Mapping[str, Any]


def load(root: Path | None = None) -> Knowledge:
    """The knowledge base, checked; the same object for one root within a process.

    Args:
        root: the folder that holds ``knowledge/``; None = what the environment variable MBRIDGE_ADVISOR_KNOWLEDGE
            names, else the one that came with the package.

    Raises:
        KnowledgeError: there is none, or it has mistakes; all of them at once.
    """
    return _load(find_root(root))


def load_recipes(knowledge: Knowledge, model_key: str) -> tuple[Row, ...]:
    """The grids that the vendor ships for a model, as rows (see ``schemas/recipes.schema.json``); none if unknown.

    A column that a row lacks has its usual value: false, unset, ``adam``, distributed optimizer on.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", model_key):
        return ()
    return _rows(Path(knowledge.root), LAZY["recipes"].replace("*", model_key))


def load_throughput(knowledge: Knowledge) -> tuple[Row, ...]:
    """The published training throughput, as rows (see ``schemas/throughput.schema.json``)."""
    return _rows(Path(knowledge.root), LAZY["throughput"])


@lru_cache(maxsize=32)
def load_mapping(knowledge_root: str, name: str) -> Row:
    """How another program's options map to the vocabulary (see ``schemas/mapping.schema.json``).

    Args:
        knowledge_root: ``Knowledge.root``.
        name: stem of a file in ``knowledge/mappings``.

    Raises:
        KnowledgeError: there is none, or it isn't a mapping.
    """
    from .yaml_reader import read

    file = LAZY["mapping"].replace("*", name)
    document = read(Path(knowledge_root) / "knowledge" / file, f"knowledge/{file}")
    if not isinstance(document.data, dict):
        raise KnowledgeError([document.problem((), "isn't a mapping", "options")])
    return document.data


def load_measured_memory(knowledge: Knowledge, *, large: bool) -> tuple[Row, ...]:
    """Measured memory (see ``schemas/measured_memory.schema.json``): functional tests, or layers of real size."""
    return _rows(Path(knowledge.root), LAZY["measured_memory"].replace("*", "_large" if large else ""))


def load_left_out(knowledge: Knowledge) -> Mapping[str, Mapping[str, float]]:
    """Model key -> constants of the time model fitted without that model's rows."""
    from .yaml_reader import read

    name = LAZY["left_out"]
    path = Path(knowledge.root) / "knowledge" / name
    models: Mapping[str, Mapping[str, float]] = read(path, f"knowledge/{name}").data["models"] if path.is_file() else {}
    return models


@lru_cache(maxsize=64)
def _rows(root: Path, name: str) -> tuple[Row, ...]:
    from .yaml_reader import read

    path = root / "knowledge" / name
    if not path.is_file():
        return ()
    document = read(path, f"knowledge/{name}")
    rows = document.data.get("rows") if isinstance(document.data, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise KnowledgeError([document.problem(("rows",), "aren't a list of mappings", "rows")])
    return tuple(rows)


@lru_cache(maxsize=4)
def _load(root: Path) -> Knowledge:
    files = Files.read(root)
    content = snapshot.read(root, files.digest)
    if content is None:
        content = check(root, files)
        snapshot.remember(root, files.digest, content)
    return assemble(content, files.digest, root)


def check(root: Path, files: Files) -> Plain:
    """The content of the files, after all checks but the running of examples.

    Raises:
        KnowledgeError: mistakes.
    """
    content, problems = examine(root, files)
    if problems:
        raise KnowledgeError(problems)
    return content


def examine(root: Path, files: Files) -> tuple[Plain, list[Problem]]:
    """The content of the files and all mistakes in them."""
    from .checks import check_documents

    documents, problems = files.documents()
    problems += check_documents(root, documents)
    order = {name: n for n, name in enumerate(files.contents)}
    problems.sort(key=lambda p: (order.get(p.file, -1), p.line or 0))
    return {d.file: (kind, d.data, _rule_lines(kind, d) if not problems else ()) for kind, d in documents}, problems


def assemble(content: Plain, digest: str, root: Path) -> Knowledge:
    """The objects for checked content."""
    by_kind: dict[str, list[tuple[str, Any, tuple[int, ...]]]] = defaultdict(list)
    for file, (kind, data, lines) in content.items():
        by_kind[kind].append((file, data, lines))

    def entries(kind: str, key: str) -> list[Any]:
        return [entry for _, data, _ in by_kind[kind] for entry in data[key]]

    ((_, about, _),) = by_kind["knowledge"]
    ((_, vocabulary, _),) = by_kind["vocabulary"]
    return Knowledge(
        version=about["version"],
        digest=digest,
        root=str(root),
        terms={name: build.term(name, data) for name, data in vocabulary["terms"].items()},
        revisions={data["tag"]: build.revision(data) for data in entries("revisions", "revisions")},
        gpus={data["name"]: build.gpu(data) for _, data, _ in by_kind["gpu"]},
        models={data["name"]: build.model(data) for _, data, _ in by_kind["model"]},
        quantities={data["name"]: build.quantity(data) for data in entries("quantities", "quantities")},
        rules={
            data["id"]: build.rule(data, file, line)
            for file, topic, lines in by_kind["rules"]
            for data, line in zip(topic["rules"], lines, strict=True)
        },
        calibration={data["name"]: data for data in entries("calibration", "constants")},
        matrix=next((data for _, data, _ in by_kind["compat_matrix"]), {}),
    )


def _rule_lines(kind: str, document: Document) -> tuple[int, ...]:
    rules = document.data["rules"] if kind == "rules" else ()
    return tuple(document.line(("rules", n)) or 1 for n in range(len(rules)))
