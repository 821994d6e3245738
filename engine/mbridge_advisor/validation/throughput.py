"""Published throughput rows: the settings that the vendor's recipe of that release had, predicted against published.

The tables print sizes only; recompute, pipeline layout, CUDA graphs and dispatcher come from the recipe of the same
model, system and precision whose release and grid are nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..architecture import Architecture
from ..errors import RequestError
from ..knowledge.load import load_recipes, load_throughput
from ..knowledge.model import Gpu, Knowledge
from ..memory import Grids, Recompute, Settings, StageLayout
from ..timing import TimeEstimate, estimate
from .memory import large_cases

Row = Mapping[str, Any]
TAGS = {
    "25.09": "v0.2.0",
    "25.11": "v0.2.0",
    "26.02": "v0.3.1",
    "26.04": "v0.4.2",
    "26.06": "v0.5.1",
    "26.08": "v0.6.0",
}
"""Container release -> Bridge release whose recipes it ran."""
MEASURED = "measured"
"""Release of rows that come from measured runs instead of published tables."""
PRECISIONS = {
    "BF16": "bf16",
    "FP8": "fp8_cs",
    "FP8-CS": "fp8_cs",
    "FP8-MX": "fp8_mx",
    "MXFP8": "fp8_mx",
    "NVFP4": "nvfp4",
}


@dataclass(frozen=True)
class Case:
    """One published row as arguments of the time estimate.

    Attributes:
        id, model, release: of the row.
        recipe: id of the recipe that gave the settings, None where none was found.
        tokens_per_second_per_gpu: as published.
        slip: why the row can't have run as printed, None where nothing is known against it.
    """

    id: str
    model: str
    release: str
    architecture: Architecture
    settings: Settings
    grids: Grids
    gpu: Gpu
    recipe: Any
    tokens_per_second_per_gpu: float
    slip: str | None

    def predict(self, calibration: Mapping[str, float] | None = None) -> TimeEstimate:
        """The estimate for the row."""
        return estimate(self.architecture, self.settings, self.grids, self.gpu, calibration)


def precision_of(row: Row) -> str:
    """Bridge's name of a row's precision; 25.09 doesn't state it: FP8, current scaling, in brackets MXFP8."""
    if row.get("precision"):
        return PRECISIONS[row["precision"]]
    blackwell = not str(row["system"]).startswith(("H100", "H200", "A100"))
    return "fp8_mx" if row.get("variant") == "parenthesised" and blackwell else "fp8_cs"


def nearest_recipe(row: Row, recipes: Sequence[Row]) -> Row | None:
    """The performance recipe that fits a row best: same model, task, system and precision; then release, then grid."""
    precision = precision_of(row)
    tag = TAGS[row["release"][:5]]
    grid = {"tp": row.get("tp"), "pp": row.get("pp"), "vpp": row.get("vp"), "cp": row.get("cp"), "ep": row.get("ep")}

    def score(recipe: Row) -> float:
        same = sum((recipe.get(name) or 1) == (value or 1) for name, value in grid.items())
        batch = (recipe.get("mbs") == row["mbs"]) + 0.5 * (recipe.get("gbs") == row["gbs"])
        gpus = recipe.get("num_gpus") == row["num_gpus"]
        named = recipe.get("precision_name") == precision
        return float(3 * (recipe["tag"] == tag) + 2 * same + batch + 2 * gpus + named)

    fitting = [
        r
        for r in recipes
        if r["kind"] in ("perf_recipe", "perf_config")
        and r.get("model_key", row["model_key"]) == row["model_key"]
        and r["task"] == row["task"]
        and r.get("hardware") == row["system"]
        and _family(str(r.get("precision_name"))) == _family(precision)
    ]
    return max(fitting, key=score, default=None)


def _family(precision: str) -> str:
    """Precision without underscores: recipes spell ``fp8mx`` and ``fp8_mx``."""
    return precision.replace("_", "")


def settings_of(row: Row, recipe: Row | None) -> Settings:
    """Settings of a performance run: the recipe's, with what all of them set (``_benchmark_common``)."""
    recipe = recipe or {}
    overlap = recipe.get("comm_overlap") or {}
    fsdp = bool(recipe.get("fsdp") if row.get("fsdp") is None else row["fsdp"])
    return Settings.of(
        {
            "seq_length": row["seq_len"],
            "global_batch_size": row["gbs"],
            "precision": precision_of(row),
            "task": row["task"],
            "grad_reduce_in_fp32": False,
            "use_precision_aware_optimizer": bool(recipe.get("precision_aware_optimizer")),
            "use_megatron_fsdp": fsdp,
            "tp_comm_overlap": bool(overlap.get("tp_comm_overlap")),
            "overlap_moe_expert_parallel_comm": bool(overlap.get("overlap_moe_expert_parallel_comm")),
            "delay_wgrad_compute": bool(overlap.get("delay_wgrad_compute")),
            "moe_token_dispatcher_type": recipe.get("moe_token_dispatcher_type") or "alltoall",
            "moe_flex_dispatcher_backend": recipe.get("moe_flex_dispatcher_backend"),
            "cuda_graph_impl": recipe.get("cuda_graph_impl") or "none",
            "cuda_graph_scope": _modules(recipe.get("cuda_graph_scope")),
            "cpu_offloading_num_layers": recipe.get("cpu_offloading_num_layers") if fsdp else None,
            # The vendor's launcher sets it for performance runs.
            "pytorch_cuda_alloc_conf": "expandable_segments:True",
            "fine_grained_activation_offloading": recipe.get("fine_grained_activation_offloading"),
        }
    )


def _modules(scope: Any) -> list[str]:
    return [scope] if isinstance(scope, str) else list(scope or ())


def case_of(row: Row, recipes: Sequence[Row], architecture: Architecture, gpu: Gpu) -> Case:
    """A row as a case."""
    recipe = nearest_recipe(row, recipes)
    depth = (recipe or {}).get("mtp_num_layers") or architecture.mtp_num_layers
    if "w/o MTP" in (row.get("model_note") or "") or not (recipe or {}).get("mtp_num_layers"):
        depth = None
    pp, vpp = row.get("pp") or 1, row.get("vp") or 1
    layout = None
    if text := (recipe or {}).get("pipeline_layout"):
        try:
            layout = StageLayout.parse(text)
        except RequestError:
            layout = None
        if layout is not None and len(layout.layers) != pp * vpp:
            layout = None
        if layout is not None and not depth:
            layout = replace(layout, mtp=(0,) * len(layout.mtp))
    r = (recipe or {}).get("recompute") or {}
    modules = tuple(r.get("modules") or ())
    selective = r.get("granularity") == "selective"
    recompute = (
        Recompute()
        if selective and not modules
        else Recompute(r.get("granularity"), r.get("method"), r.get("num_layers"), modules)
    )
    grids = Grids.of(
        world_size=row["num_gpus"],
        global_batch_size=row["gbs"],
        tp=row.get("tp") or 1,
        pp=pp,
        vpp=vpp,
        cp=row.get("cp") or 1,
        ep=row.get("ep") or 1,
        mbs=row["mbs"],
        recompute=recompute,
        layout=layout,
    )
    return Case(
        row["id"],
        row["model_key"],
        row["release"],
        replace(architecture, mtp_num_layers=depth),
        settings_of(row, recipe),
        grids,
        gpu,
        recipe["id"] if recipe else None,
        float(row["tokens_per_sec_per_gpu"]),
        row.get("slip"),
    )


def cases(rows: Sequence[Row], recipes: Sequence[Row], knowledge: Knowledge, task: str = "pretrain") -> list[Case]:
    """All rows of a task whose model and system the knowledge base has, with a token rate."""
    models = {key: m for m in knowledge.models.values() for key in (m.name, *m.recipe_keys)}
    return [
        case_of(row, recipes, models[row["model_key"]].architecture, knowledge.gpus[row["system"]])
        for row in rows
        if row["task"] == task
        and row.get("tokens_per_sec_per_gpu")
        and row["model_key"] in models
        and row["system"] in knowledge.gpus
    ]


def published_cases(knowledge: Knowledge, task: str = "pretrain") -> list[Case]:
    """All rows of a task that the knowledge base itself has."""
    rows = load_throughput(knowledge)
    recipes = [
        {**recipe, "model_key": key}
        for key in {row["model_key"] for row in rows}
        for recipe in load_recipes(knowledge, key)
    ]
    return cases(rows, recipes, knowledge, task)


def measured_cases(rows: Sequence[Row], knowledge: Knowledge) -> list[Case]:
    """Rows of ``measured_memory_large.jsonl`` with a step time, as cases (bf16, no overlap, few layers)."""
    out = []
    for row in rows:
        milliseconds = row["measured"].get("step_ms")
        if not milliseconds or row["gpu"] not in knowledge.gpus:
            continue
        case = large_cases(row, knowledge.gpus)[0]
        batch = row["batch"]
        rate = batch["global_batch_size"] * batch["seq_length"] / (milliseconds / 1000) / row["world_size"]
        model = {"llama3-70b": "llama3_70b", "deepseekv2": "deepseek_v2"}.get(row["model"], row["model"])
        out.append(
            Case(
                str(row["id"]),
                str(model),
                MEASURED,
                case.architecture,
                case.settings,
                case.grids,
                knowledge.gpus[row["gpu"]],
                None,
                rate,
                None,
            )
        )
    return out
