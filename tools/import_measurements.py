"""Write the measured memory facts from the data folder.

    python tools/import_measurements.py ../shared/data

reads ``measured_memory.jsonl`` and ``measured_memory_large.jsonl`` and writes
``knowledge/facts/measurements/measured_memory.yaml`` and ``measured_memory_large.yaml``: each distinct configuration
once, with what the models read. The same data give the same bytes. An absent column is null.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mbridge_advisor.validation import memory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from import_recipes import render  # noqa: E402  (a script beside this one)

Row = dict[str, Any]
HEADER = "# Written by tools/import_measurements.py; change the data or the tool, not this file.\n"
FAMILIES = ("gpt", "moe", "hybrid")
SMALL = (
    "case",
    "citation",
    "family",
    "tier",
    "gpu",
    "world_size",
    "num_microbatches",
    "mem_config_key",
    "golden_recorded_date",
)
FIGURES = ("mem_max_allocated_bytes", "mem_allocated_bytes_median")
RAW = (
    "--no-bias-gelu-fusion",
    "--use-transformer-engine-op-fuser",
    "--attention-softmax-in-fp32",
    "--wgrad-deferral-limit",
    "--use-fused-weighted-squared-relu",
    "--hybrid-override-pattern",
    "--mamba-state-dim",
    "--mamba-head-dim",
    "--mamba-num-groups",
    "--mamba-num-heads",
)
ENVIRONMENT = ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "CUBLAS_WORKSPACE_CONFIG")
SOURCES = {
    "measured_memory.yaml": {
        "repo": "NVIDIA/Megatron-LM",
        "path": "tests/functional_tests/test_cases",
        "at": "d98e8a64ddf34856e74b24714e3bedb2f5a39553",
        "locator": "citation of the row",
    },
    "measured_memory_large.yaml": {
        "repo": "MooreThreads/SimuMax, NVIDIA-NeMo/Megatron-Bridge",
        "path": "docs/b200, skills",
        "at": "4dcaae513ba7679d56c116a17cd4a691ec41e252, 067f987df03b8355b03192d88d70f1709fedf51a",
        "locator": "source of the row",
    },
}


def without_nulls(value: Any) -> Any:
    """The same without keys whose value is null."""
    if isinstance(value, Mapping):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


def small(row: memory.Row) -> Row:
    """A row of measured_memory.jsonl with what the models read."""
    return {
        **{k: row[k] for k in SMALL},
        "measured": {k: row["measured"][k] for k in FIGURES},
        "args": row["args"],
        "raw_args": {k: v for k, v in row["raw_args"].items() if k in RAW},
        "raw_env": {k: v for k, v in row["raw_env"].items() if k in ENVIRONMENT},
    }


def large(row: memory.Row) -> Row:
    """A row of measured_memory_large.jsonl without its provenance by field and its notes."""
    return {k: v for k, v in row.items() if k not in ("provenance", "software", "notes")}


def facts(data: Path) -> dict[str, str]:
    """Fact files by name, as text."""
    rows: dict[str, Iterable[Row]] = {
        "measured_memory.yaml": map(small, memory.usable(memory.read_rows(data / "measured_memory.jsonl"), FAMILIES)),
        "measured_memory_large.yaml": map(large, memory.read_rows(data / "measured_memory_large.jsonl")),
    }
    return {name: render({"source": {"data": SOURCES[name]}}, map(without_nulls, rows[name]), HEADER) for name in rows}


def main(argv: list[str] | None = None) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with the two files")
    out = ROOT / "knowledge" / "facts" / "measurements"
    parser.add_argument("--out", type=Path, default=out, help="folder to write")
    options = parser.parse_args(argv)
    try:
        texts = facts(options.data)
    except FileNotFoundError as missing:
        print(f"{missing.filename}: not found. Name the folder that holds the data files.", file=sys.stderr)
        return 2
    for name, text in texts.items():
        (options.out / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
