"""Everything that can be checked about a knowledge base, examples included."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from ..errors import ExpressionError, KnowledgeError, Problem
from ..expressions import Conjunction, Expression
from .load import assemble, examine
from .model import Knowledge, Revision, Value
from .schema import validate
from .sources import EAGER, LAZY, Files, paths
from .yaml_reader import Document, read


def lint(root: Path, *, examples: bool = True) -> list[Problem]:
    """All mistakes of a knowledge base: shape, names, types, references, stray files, and examples that don't hold.

    Args:
        root: the folder that holds ``knowledge/``.
        examples: whether to run the examples, which happens only where the rest is right.
    """
    try:
        files = Files.read(root)
    except KnowledgeError as error:
        return list(error.problems)
    content, problems = examine(root, files)
    problems += _lazy(root)
    problems += _stray(root)
    if problems or not examples:
        return problems
    knowledge = assemble(content, files.digest, root)
    documents = {d.file: d for kind, d in files.documents()[0] if kind == "quantities"}
    return [*_programs(knowledge), *_rules(knowledge, files), *_quantities(knowledge, documents)]


def _lazy(root: Path) -> Iterator[Problem]:
    for kind, path in paths(root, LAZY):
        try:
            document = read(path, path.relative_to(root).as_posix())
        except KnowledgeError as error:
            yield from error.problems
            continue
        yield from validate(document, kind)
        key = document.data.get("model_key") if isinstance(document.data, dict) else None
        if kind == "recipes" and key is not None and key != path.stem:
            yield document.problem(("model_key",), f"is {key!r} in a file called {path.name}", path.stem)


def _stray(root: Path) -> Iterator[Problem]:
    known = {path for kinds in (EAGER, LAZY) for _, path in paths(root, kinds)}
    for path in sorted((root / "knowledge").rglob("*")):
        if path.is_file() and path not in known and "evidence" not in path.parts:
            places = ", ".join((*EAGER.values(), *LAZY.values()))
            yield Problem(path.relative_to(root).as_posix(), None, "", "is read by nothing", f"one of {places}")


def _programs(knowledge: Knowledge) -> Iterator[Problem]:
    """Circles and double derivations, at each release."""
    from ..inference import Program  # the one look upwards: what inference refuses is a mistake of knowledge

    found: dict[Problem, None] = {}
    for revision in knowledge.revisions.values():
        try:
            Program.build(knowledge.terms, knowledge.quantities.values(), knowledge.rules.values(), revision)
        except KnowledgeError as error:
            found.update(dict.fromkeys(error.problems))
    yield from found


def _rules(knowledge: Knowledge, files: Files) -> Iterator[Problem]:
    documents = {d.file: d for kind, d in files.documents()[0] if kind == "rules"}
    for document in documents.values():
        for n, data in enumerate(document.data["rules"]):
            rule = knowledge.rules[data["id"]]
            if rule.withdrawn:
                continue
            for key, examples in (("fires", rule.fires), ("quiet", rule.quiet)):
                for i, example in enumerate(examples):
                    revision = _release(knowledge, rule.bridge, example.bridge)
                    here = rule.at(revision)
                    if here is None:
                        continue
                    path = ("rules", n, "examples", key, i)
                    try:
                        verdict = Conjunction(here.when, knowledge.terms).judge(example.facts)
                    except ExpressionError as error:
                        yield document.problem(path, str(error))
                        continue
                    if not isinstance(verdict, bool):
                        names = ", ".join(sorted(verdict))
                        yield document.problem(
                            path, f"{rule.id} can't be judged at {revision.tag} without {names}", names
                        )
                    elif verdict is not (key == "fires"):
                        does = "fires" if verdict else "stays quiet"
                        yield document.problem(
                            path, f"{rule.id} {does} on this at {revision.tag}", f"an example of {key}"
                        )


def _quantities(knowledge: Knowledge, documents: dict[str, Document]) -> Iterator[Problem]:
    for document in documents.values():
        for n, data in enumerate(document.data["quantities"]):
            quantity = knowledge.quantities[data["name"]]
            for i, (given, expected, bridge) in enumerate(quantity.examples):
                revision = _release(knowledge, quantity.bridge, bridge)
                path = ("quantities", n, "examples", i)
                formula = quantity.at(revision)
                try:
                    value = Expression(formula, knowledge.terms).scalar(given) if formula else None
                except ExpressionError as error:
                    yield document.problem(path, str(error))
                    continue
                if not _same(value, expected):
                    yield document.problem(
                        path, f"{quantity.name} is {value} at {revision.tag}", f"{expected}, as stated"
                    )


def _release(knowledge: Knowledge, spec: str, tag: str | None) -> Revision:
    """The release of an example: the stated one, else the newest in range."""
    if tag is not None:
        return knowledge.revisions[tag]
    return max((r for r in knowledge.revisions.values() if r.within(spec)), key=lambda r: r.version)


def _same(value: Value, expected: Value) -> bool:
    if isinstance(value, float) or isinstance(expected, float):
        return isinstance(value, int | float) and isinstance(expected, int | float) and math.isclose(value, expected)
    return type(value) is type(expected) and value == expected
