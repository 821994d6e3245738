"""A row of the recipe facts as a request: what the vendor ships, in the advisor's terms."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..knowledge import load_recipes
from ..knowledge.model import Knowledge, Text
from .notes import Draft

# Recipe column -> short name, where the value is taken as it is.
_TAKEN = {
    "sequence_parallel": "sequence_parallel",
    "tp": "tp",
    "pp": "pp",
    "vpp": "vpp",
    "cp": "cp",
    "ep": "ep",
    "etp": "etp",
    "pipeline_layout": "pipeline_model_parallel_layout",
    "num_layers_in_first_pipeline_stage": "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage": "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split": "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split": "account_for_loss_in_pipeline_split",
    "mbs": "mbs",
    "gbs": "gbs",
    "seq_length": "seq_length",
    "task": "task",
    "fsdp": "use_megatron_fsdp",
    "distributed_optimizer": "use_distributed_optimizer",
    "precision_aware_optimizer": "use_precision_aware_optimizer",
    "optimizer": "optimizer",
    "fsdp_sharding_strategy": "data_parallel_sharding_strategy",
    "moe_token_dispatcher_type": "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend": "moe_flex_dispatcher_backend",
    "cuda_graph_impl": "cuda_graph_impl",
    "cuda_graph_scope": "cuda_graph_scope",
    "cpu_offloading_num_layers": "cpu_offloading_num_layers",
}
_OVERLAPS = (
    "tp_comm_overlap",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "overlap_grad_reduce",
    "overlap_param_gather",
)
_DEFAULTS = {"distributed_optimizer": True, "optimizer": "adam"}
PRECISIONS = {"fp8mx": "fp8_mx", "fp8cs": "fp8_cs", "fp8sc": "fp8_sc"}


def request_of_recipe(row: Mapping[str, Any], knowledge: Knowledge) -> dict[str, Any]:
    """The request that asks about a recipe as shipped, at its own release.

    The model is the catalogue's that stands for the row's ``model_key``, where there is one; otherwise only what the
    recipe itself says is given. What it leaves open (``num_gpus``) stays unknown.
    """
    request: dict[str, Any] = {"bridge": row["tag"], "training": {}, "grid": {}, "cluster": {}}
    overlap = row.get("comm_overlap") or {}
    # All performance recipes reduce gradients in the parameters' type (set_perf_optimization_overrides and the like).
    performance = {} if row["kind"] == "library" else {"grad_reduce_in_fp32": False}
    columns = {column: row.get(column, _DEFAULTS.get(column)) for column in _TAKEN}
    columns |= {name: overlap.get(name) for name in _OVERLAPS} | performance
    columns["cpu_offloading"] = bool(row.get("cpu_offloading_num_layers")) or None
    for column, value in columns.items():
        name = _TAKEN.get(column, column)
        term = knowledge.terms[name]
        if value is None or (term.type == "list" and not value):
            continue
        section = "training" if term.section == "training" else "grid"
        request[section][term.field] = value
    recompute = row.get("recompute") or {}
    request["training"]["recompute"] = {
        key: recompute.get(key) for key in ("granularity", "method", "num_layers") if recompute.get(key) is not None
    }
    if recompute.get("modules"):
        request["training"]["recompute"]["modules"] = list(recompute["modules"])
    precision = precision_of(row)
    if precision in knowledge.terms["precision"].values:
        request["training"]["precision"] = precision
    if row.get("num_gpus"):
        request["cluster"]["gpus"] = row["num_gpus"]
    if row.get("hardware") in knowledge.gpus:
        request["cluster"]["gpu"] = row["hardware"]
    key = row.get("model_key")
    model = next((m for m in knowledge.models.values() if key in m.recipe_keys), None)
    if model is not None:
        request["model"] = {"name": model.name, "mtp_num_layers": row.get("mtp_num_layers")}
    return request


def precision_of(row: Mapping[str, Any]) -> str:
    """A recipe row's precision as the vocabulary spells it."""
    name = str(row.get("precision_name") or row.get("precision") or "").removesuffix("_mixed").replace("-", "_")
    if name.endswith("current_scaling"):
        return "fp8_cs"
    return PRECISIONS.get(name, name)


def find_recipe(name: str, knowledge: Knowledge, bridge: str | None = None) -> list[Mapping[str, Any]]:
    """Rows of a recipe: all its variants at one release.

    Args:
        name: as the release calls it, in any case; ``name/variant`` or the id of a row, for one variant.
        knowledge: the knowledge base.
        bridge: tag of the release; None = the newest that has it.

    Raises:
        RequestError: no release, or not this one, has it; near names are listed.
    """
    wanted, _, variant = name.strip().lower().partition("/")
    folder = Path(knowledge.root) / "knowledge" / "facts" / "recipes"
    files = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}
    rows: list[Mapping[str, Any]] = [
        {**row, "model_key": key}
        for key, text in files.items()
        if wanted and wanted in text.lower()
        for row in load_recipes(knowledge, key)
        if wanted in (row["recipe"].lower(), row["id"])
    ]
    tags = {row["tag"] for row in rows}
    if not rows:
        known = {n for text in files.values() for n in re.findall(r"recipe: ([^,}]+)", text)}
        by_lower = {n.lower(): n for n in known}
        near = [by_lower[n] for n in difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.6)]
        way = f"Did you mean {' or '.join(near)}?" if near else "See scripts/training/README.md of your release."
        raise RequestError("recipe", name, "is in no release of the knowledge base", way)
    if bridge is not None and bridge not in tags:
        raise RequestError("recipe", name, f"isn't in {bridge}", f"It is in {', '.join(sorted(tags))}.")
    tag = bridge or max(tags, key=lambda t: knowledge.revisions[t].version)
    rows = [row for row in rows if row["tag"] == tag]
    chosen = [row for row in rows if str(row.get("variant", "")).lower() == variant] if variant else rows
    if not chosen:
        variants = ", ".join(str(row.get("variant")) for row in rows)
        raise RequestError("recipe", name, f"has no such variant in {tag}", f"There are: {variants}.")
    return chosen


def take_recipe(name: str, draft: Draft, *, strict: bool = True) -> None:
    """Start a draft from a recipe as shipped.

    Args:
        name: see :func:`find_recipe`; the draft's ``bridge`` names the release.
        draft: is filled; what it already has stays.
        strict: whether several variants, or an unknown name, are an error; else they are noted.

    Raises:
        RequestError: see ``strict``.
    """
    knowledge = draft.knowledge
    try:
        rows = find_recipe(name, knowledge, draft.request.get("bridge"))
    except RequestError as problem:
        if strict:
            raise
        draft.note("recipe", "unknown", Text(f"{problem.reason}. {problem.way_out}", problem.way_out), value=name)
        return
    request = request_of_recipe(rows[0], knowledge)
    others = [row for row in rows[1:] if request_of_recipe(row, knowledge) != request]
    if others:
        names = ", ".join(f"{row['recipe']}/{row.get('variant', row['id'])}" for row in rows)
        if strict:
            raise RequestError("recipe", name, "has several variants", f"Name one: {names}.")
        draft.note(
            "recipe",
            "unresolved",
            Text(f"the first of {names} is read", f"读取以下变体中的第一个：{names}"),
            value=name,
        )
    place = f"{rows[0]['tag']} {rows[0]['path']}:{rows[0]['line']}"
    for section, part in request.items():
        if isinstance(part, dict) and isinstance(draft.request.get(section, {}), dict):
            draft.request[section] = {**part, **draft.request.get(section, {})}
        else:
            draft.request.setdefault(section, part)
    draft.note("recipe", "taken", Text(place, place), name="recipe", value=rows[0]["recipe"])
