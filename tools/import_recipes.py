"""Write the recipe and throughput facts from the data folder.

    python tools/import_recipes.py ../shared/data

reads ``recipe_grids.jsonl`` and ``published_throughput.jsonl`` and writes ``knowledge/facts/recipes/<model_key>.yaml``
and ``knowledge/facts/measurements/published_throughput.yaml``. The same data give the same bytes. The columns keep
their names; a value equal to its default below is left out, so ``row.get(column, default)`` restores it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]

# Columns of a recipe row, in output order, with the value that an absent column stands for.
RECIPE_COLUMNS: Mapping[str, Any] = {
    "id": None,
    "tag": None,
    "kind": None,  # library | perf_recipe | perf_config
    "recipe": None,
    "variant": None,
    "task": None,
    "hardware": None,
    "num_gpus": None,
    "num_gpus_source": None,
    "tp": None,
    "pp": None,
    "vpp": None,
    "cp": None,
    "ep": None,
    "etp": None,
    "etp_effective": None,  # MoE only: what the code makes of it at this tag
    "sequence_parallel": False,
    "set_state": {},  # of the sizes that the recipe doesn't set to a value: unset | set_none
    "mbs": None,
    "gbs": None,
    "seq_length": None,
    "precision": None,
    "precision_name": None,
    "recompute": {},  # granularity, modules, method, num_layers
    "cpu_offloading_num_layers": None,
    "fine_grained_activation_offloading": False,
    "fsdp": False,
    "fsdp_sharding_strategy": None,
    "distributed_optimizer": True,
    "optimizer": "adam",
    "precision_aware_optimizer": False,
    "pipeline_layout": None,
    "num_layers_in_first_pipeline_stage": None,
    "num_layers_in_last_pipeline_stage": None,
    "account_for_embedding_in_pipeline_split": False,
    "account_for_loss_in_pipeline_split": False,
    "cuda_graph_impl": "none",
    "cuda_graph_scope": None,  # only where CUDA graphs are on
    "moe_token_dispatcher_type": None,
    "moe_flex_dispatcher_backend": None,
    "comm_overlap": {},
    "mtp_num_layers": None,
    "peft": None,
    "num_experts": None,
    "arch_set": {},
    "path": None,
    "line": None,
}

# Boolean columns whose null means "left at the default", which is false at every tag.
NULL_IS_FALSE = (
    "fine_grained_activation_offloading",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)

# Columns of a throughput row. Absent = null; the rest of the file is derivable from these or always empty.
THROUGHPUT_COLUMNS: Mapping[str, Any] = {
    "id": None,
    "release": None,
    "task": None,
    "model": None,
    "model_note": None,
    "model_key": None,
    "kind": None,
    "system": None,
    "num_gpus": None,
    "precision": None,
    "gbs": None,
    "mbs": None,
    "seq_len": None,
    "fsdp": None,
    "tp": None,
    "pp": None,
    "cp": None,
    "vp": None,
    "ep": None,
    "ga": None,
    "tokens_per_sec_per_gpu": None,
    "model_tflops_per_gpu": None,
    "variant": "primary",
    "tag": None,
    "path": None,
    "line": None,
    "slip": None,
}

REPO = "NVIDIA-NeMo/Megatron-Bridge"
FOLDERS = ("docs", "scripts/performance/configs", "src/megatron/bridge/perf_recipes", "src/megatron/bridge/recipes")
HEADER = "# Written by tools/import_recipes.py; change the data or the tool, not this file.\n"


def select(row: Mapping[str, Any], columns: Mapping[str, Any]) -> Row:
    """The chosen columns of a row, without those at their default."""
    return {name: row.get(name) for name, default in columns.items() if row.get(name) != default}


def recipe_row(raw: Mapping[str, Any]) -> Row:
    """One recipe row, nested columns without their nulls."""
    row = dict(raw)
    for name in ("recompute", "comm_overlap"):
        row[name] = {k: v for k, v in (raw.get(name) or {}).items() if v is not None}
    row["set_state"] = {k: v for k, v in raw["set_state"].items() if v != "set"}
    row["arch_set"] = raw.get("arch_set") or {}
    for name in NULL_IS_FALSE:
        row[name] = bool(raw.get(name))
    if raw.get("cuda_graph_impl") in (None, "none"):
        row["cuda_graph_scope"] = None
    return select(row, RECIPE_COLUMNS)


def render(head: Mapping[str, Any], rows: Iterable[Row], header: str = HEADER) -> str:
    """YAML text: the head in block style, then one row a line in flow style."""

    def dump(value: Any, flow: bool) -> str:
        return str(yaml.safe_dump(value, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=10**9))

    return header + dump(dict(head), False) + "rows:\n" + "".join("- " + dump(row, True) for row in rows)


def read(path: Path) -> list[Row]:
    """All objects of a JSONL file, ordered by id."""
    with path.open(encoding="utf-8") as lines:
        return sorted((json.loads(line) for line in lines if line.strip()), key=lambda row: str(row["id"]))


# Rows that can't have run as printed, and why.
SLIPS: Mapping[str, str] = {
    "pub0164": "PP 1 without FSDP; the shipped preset of that release has PP 4, VPP 5",
    "pub0166": "PP 4 without VPP at micro-batch size 2, with the rate of the shipped preset's VPP 5 at 1",
    "pub0268": "gradient accumulation 16 is printed, the batch sizes give 8; it fits with micro-batch size 1",
}


def facts(data: Path) -> dict[str, str]:
    """Fact files by path under ``knowledge/facts``, as text."""
    recipes: dict[str, list[Row]] = {}
    for raw in read(data / "recipe_grids.jsonl"):
        recipes.setdefault(raw["model_key"], []).append(raw)
    out = {}
    for key, rows in sorted(recipes.items()):
        head = {"model_key": key, "source": source(rows)}
        out[f"recipes/{key}.yaml"] = render(head, map(recipe_row, rows))
    rows = read(data / "published_throughput.jsonl")
    out["measurements/published_throughput.yaml"] = render(
        {"source": source(rows)}, (select({**row, "slip": SLIPS.get(row["id"])}, THROUGHPUT_COLUMNS) for row in rows)
    )
    return out


def source(rows: Iterable[Mapping[str, Any]]) -> Row:
    """Citation of the folders that the rows come from; tag, path and line of a row name its place."""
    rows = list(rows)
    folders = [folder for folder in FOLDERS if any(row["path"].startswith(folder + "/") for row in rows)]
    tags = sorted({row["tag"] for row in rows})
    where = "path and line of the row"
    return {"data": {"repo": REPO, "path": ", ".join(folders), "at": ", ".join(tags), "locator": where}}


def main(argv: list[str] | None = None) -> int:
    """Write the files; files of models that the data no longer have are removed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with recipe_grids.jsonl and published_throughput.jsonl")
    parser.add_argument("--out", type=Path, default=ROOT / "knowledge" / "facts", help="facts folder to write")
    options = parser.parse_args(argv)
    try:
        texts = facts(options.data)
    except FileNotFoundError as missing:
        print(f"{missing.filename}: not found. Name the folder that holds the data files.", file=sys.stderr)
        return 2
    for old in (options.out / "recipes").glob("*.yaml"):
        if f"recipes/{old.name}" not in texts:
            old.unlink()
    for name, text in texts.items():
        path = options.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
