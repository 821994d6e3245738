"""A row of the recipe facts as a request: what the vendor ships, in the advisor's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..knowledge.model import Knowledge

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
}
_DEFAULTS = {"distributed_optimizer": True, "optimizer": "adam"}
PRECISIONS = {"fp8mx": "fp8_mx", "fp8cs": "fp8_cs", "fp8sc": "fp8_sc"}


def request_of_recipe(row: Mapping[str, Any], knowledge: Knowledge) -> dict[str, Any]:
    """The request that asks about a recipe as shipped, at its own release.

    The model is the catalogue's that stands for the row's ``model_key``, where there is one; otherwise only what the
    recipe itself says is given. What it leaves open (``num_gpus``) stays unknown.
    """
    request: dict[str, Any] = {"bridge": row["tag"], "training": {}, "grid": {}, "cluster": {}}
    for column, name in _TAKEN.items():
        value = row.get(column, _DEFAULTS.get(column))
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
