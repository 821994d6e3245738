"""Signed errors of the memory and time models against measured and published rows.

    python benchmarks/accuracy.py DATA_DIR [--rows] [--write]

DATA_DIR holds measured_memory.jsonl, measured_memory_large.jsonl, published_throughput.jsonl and recipe_grids.jsonl.
``--rows`` prints each row. ``--write`` renews tests/data: the measured rows cut down to what the models read, and
accuracy_baseline.json with every row's error, against which a test watches for rows that get lost.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mbridge_advisor.knowledge.load import load
from mbridge_advisor.validation import memory, report, throughput

OUT = Path(__file__).resolve().parents[1] / "tests" / "data"
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
FAMILIES = ("gpt", "moe", "hybrid")
ENV = ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "CUBLAS_WORKSPACE_CONFIG")


def small(row: memory.Row) -> dict[str, Any]:
    """A row of measured_memory.jsonl with what the models read."""
    keep = (
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
    figures = ("mem_max_allocated_bytes", "mem_allocated_bytes_median")
    return {
        **{k: row[k] for k in keep},
        "measured": {k: row["measured"][k] for k in figures},
        "args": row["args"],
        "raw_args": {k: v for k, v in row["raw_args"].items() if k in RAW},
        "raw_env": {k: v for k, v in row["raw_env"].items() if k in ENV},
    }


def large(row: memory.Row) -> dict[str, Any]:
    """A row of measured_memory_large.jsonl without its provenance and notes."""
    return {k: v for k, v in row.items() if k not in ("provenance", "software", "notes")}


def show(title: str, comparisons: Sequence[report.Comparison], groups: Sequence[str], rows: bool) -> None:
    """Print scores, by group too."""

    def line(name: str, s: report.Summary) -> None:
        print(
            f"  {name:26s} n {s.count:3d}  median {s.median:6.1%}  mean {s.mean_absolute:6.1%}  bias {s.bias:+6.1%}"
            f"  within 5/10/20 % {s.within[5]:.0%}/{s.within[10]:.0%}/{s.within[20]:.0%}"
            f"  worst {s.worst[1]:+.1%} {s.worst[0][:60]}"
        )

    print(title)
    total = report.summarise(comparisons)
    line("all", total)
    if comparisons[0].low < comparisons[0].high:
        print(f"  measured figure in the stated range: {total.covered:.0%}")
    for group in groups:
        for name, members in report.by(comparisons, group).items():
            line(f"{group} {name}", report.summarise(members))
    if rows:
        for c in comparisons:
            print(f"    {c.error:+7.1%}  {c.predicted:16,.0f}  {c.measured:16,.0f}  {c.row}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--write", action="store_true")
    a = parser.parse_args()
    knowledge = load()
    small_path, large_path = a.data / "measured_memory.jsonl", a.data / "measured_memory_large.jsonl"
    small_cases, large_cases = (
        read(path, knowledge.gpus)
        for read, path in ((memory.measured_small, small_path), (memory.measured_large, large_path))
    )
    simulated = [c for c in large_cases if c.stage is not None]
    tables = [c for c in large_cases if c.stage is None]
    rows = memory.read_rows(a.data / "published_throughput.jsonl")
    recipes = memory.read_rows(a.data / "recipe_grids.jsonl")
    published = throughput.cases(rows, recipes, knowledge)
    tuned = [case for task in ("sft", "lora") for case in throughput.cases(rows, recipes, knowledge, task)]
    timed = throughput.measured_cases(memory.read_rows(large_path), knowledge)
    parts = {
        "peak": ("peak memory, functional tests", report.peak_memory(small_cases), ("model", "precision")),
        "end_of_step": ("memory between steps, functional tests", report.end_of_step_memory(small_cases), ("model",)),
        "hybrid": (
            "peak memory, functional tests of hybrid models",
            report.peak_memory(memory.measured_small(small_path, knowledge.gpus, ("hybrid",))),
            (),
        ),
        "large": ("peak memory, real-size layers, each stage", report.peak_memory(simulated), ("model",)),
        "tables": ("peak memory, tables without ranks (tier B)", report.peak_memory(tables), ("model",)),
        "throughput": (
            "tokens/s/GPU, published",
            report.tokens_per_second(published),
            ("model", "gpu", "precision", "release"),
        ),
        "fine_tuning": ("tokens/s/GPU, published fine-tuning (not fitted)", report.tokens_per_second(tuned), ("gpu",)),
        "step_time": ("tokens/s/GPU, real-size layers", report.tokens_per_second(timed), ("model",)),
    }
    for title, comparisons, groups in parts.values():
        show(title, comparisons, groups, a.rows)
    if a.write:
        kept = {
            "measured_memory.jsonl": [small(r) for r in memory.usable(memory.read_rows(small_path), FAMILIES)],
            "measured_memory_large.jsonl": [large(r) for r in memory.read_rows(large_path)],
        }
        for name, lines in kept.items():
            (OUT / name).write_text("".join(json.dumps(r) + "\n" for r in lines), encoding="utf-8")
        baseline = {
            name: {c.row: round(c.error, 4) for c in comparisons} for name, (_, comparisons, _) in parts.items()
        }
        (OUT / "accuracy_baseline.json").write_text(json.dumps(baseline, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
