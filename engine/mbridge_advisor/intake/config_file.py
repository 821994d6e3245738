"""Read a YAML file with Bridge's own field names (or a request) for ``check`` and ``estimate``.

Two shapes are understood: a request (``bridge``, ``model``, ``cluster``, ``training``, ``grid``, ``environment``), and
Bridge's ``ConfigContainer`` (``model``, ``train``, ``ddp``, ``optimizer``, ``dataset`` ...), whose ``_target_`` keys
are never acted on. A flat file of settings works too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..architecture import FIELD_NAMES
from ..errors import KnowledgeError, RequestError
from ..knowledge import Knowledge, load
from ..knowledge.yaml_reader import read
from .request import SECTIONS

CONTAINER = frozenset(
    {
        "train",
        "ddp",
        "optimizer",
        "dataset",
        "scheduler",
        "checkpoint",
        "logger",
        "tokenizer",
        "dist",
        "rng",
        "comm_overlap",
        "mixed_precision",
        "rerun_state_machine",
        "validation",
        "profiling",
        "peft",
        "ft",
        "nvrx_straggler",
        "straggler",
        "inprocess_restart",
        "tensor_inspect",
    }
)


def read_config(path: Path, knowledge: Knowledge | None = None) -> dict[str, Any]:
    """The file as a request mapping.

    Raises:
        RequestError: unreadable, unsafe or not a mapping.
    """
    try:
        data = read(path.expanduser(), str(path)).data
    except OSError as problem:
        reason = f"can't be read ({problem.strerror or problem})"
        raise RequestError("file", str(path), reason, "Check the path.") from None
    except KnowledgeError as problem:
        first = problem.problems[0]
        where = "" if first.line is None else f"is not usable YAML: line {first.line} "
        way = f"Expected: {first.expected}." if first.expected else "Mend the file."
        raise RequestError("file", str(path), where + first.reason, way) from None
    if not isinstance(data, Mapping):
        raise RequestError("file", str(path), "holds no settings", "Write name: value pairs.")
    if data.keys() <= {"bridge", *SECTIONS} and not _is_container(data):
        return dict(data)
    return _flatten(data, knowledge or load())


def _is_container(data: Mapping[str, Any]) -> bool:
    model = data.get("model")
    settings = isinstance(model, Mapping) and any(
        k.endswith("_parallel_size") or k in ("_target_", "sequence_parallel") for k in map(str, model)
    )
    return bool(CONTAINER & data.keys()) or settings


def _flatten(data: Mapping[str, Any], base: Knowledge) -> dict[str, Any]:
    """Settings wherever they stand, sorted into a request; what the vocabulary doesn't know is left out."""
    request: dict[str, Any] = {}
    model: dict[str, Any] = {}
    for key in ("bridge", "cluster", "environment"):
        if key in data:
            request[key] = data[key]
    if isinstance(data.get("model"), str):
        request["model"] = data["model"]
    for key, value in _walk({k: v for k, v in data.items() if k not in ("bridge", "cluster", "environment")}):
        term = base.by_field.get(key)
        if term is None or term.section == "derived" or isinstance(value, Mapping):
            continue
        if term.section == "model" and term.field in FIELD_NAMES:
            if value is not None:
                model[term.field] = value
            continue
        if term.section == "model":
            continue
        if value is None and not term.nullable:
            continue
        request.setdefault(term.section, {})[term.field] = value
    if model and "model" not in request:
        request["model"] = model
    if _is_container(data):  # a whole configuration: what it leaves out has Bridge's defaults
        request.setdefault("grid", {}).setdefault("tensor_model_parallel_size", 1)
    return request


def _walk(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _walk(value)
        elif not str(key).startswith("_"):
            yield str(key), value
