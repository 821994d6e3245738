"""Short labels that the terminal and the Markdown form share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ...knowledge.model import Value
from ..results import NotJudged
from .words import word

SHORT = (
    ("TP", "tensor_model_parallel_size"),
    ("PP", "pipeline_model_parallel_size"),
    ("VPP", "virtual_pipeline_model_parallel_size"),
    ("CP", "context_parallel_size"),
    ("EP", "expert_model_parallel_size"),
    ("ETP", "expert_tensor_parallel_size"),
    ("DP", "data_parallel_size"),
    ("EDP", "expert_data_parallel_size"),
    ("MBS", "micro_batch_size"),
)


def cell(value: Value) -> str:
    """A value in a table; a dash where there is none."""
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def recompute_label(fields: Mapping[str, Value]) -> str:
    """A short word for the recompute settings of a grid."""
    granularity = fields.get("recompute_granularity")
    if granularity is None:
        return "–"
    if granularity == "full":
        return f"full/{fields.get('recompute_method')}/{fields.get('recompute_num_layers')}"
    modules = fields.get("recompute_modules")
    return "+".join(map(str, modules)) if isinstance(modules, tuple | list) else "selective"


def not_judged_line(rows: Iterable[NotJudged], lang: str) -> str:
    """How many rules lack something, and what to give, most wanted first."""
    rows = list(rows)
    wanted = Counter(name for row in rows for name in row.missing)
    names = ", ".join(name for name, _ in wanted.most_common())
    return word("give", lang, len({row.rule for row in rows}), names)


def request_line(request: Mapping[str, Any]) -> str:
    """Model, cluster, grid, sequence length and precision in one line."""
    model = request.get("model")
    cluster, training = request.get("cluster", {}), request.get("training", {})
    parts = [model if isinstance(model, str) else "custom model" if model else ""]
    if cluster.get("gpus"):
        parts.append(f"{cluster['gpus']:,} x {cluster.get('gpu', 'GPU')}")
    if training.get("seq_length"):
        parts.append(f"{training['seq_length']:,} tokens")
    if training.get("precision"):
        parts.append(training["precision"])
    parts.append(grid_line(request.get("grid", {})))
    return " · ".join(p for p in parts if p)


def grid_line(fields: Mapping[str, Value]) -> str:
    """A grid in one line: ``TP 2, PP 4, ...``; what is unset is left out."""
    return ", ".join(f"{label} {fields[name]}" for label, name in SHORT if fields.get(name) is not None)
