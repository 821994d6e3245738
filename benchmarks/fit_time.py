"""Fit the constants of the time model to published throughput, and score each model with constants fitted without it.

    python benchmarks/fit_time.py [--data DIR] [--leave-out] [--write]

The fit is a damped Gauss-Newton on the logarithms of the constants: squared errors of log(predicted / published), large
ones counted linearly (Huber), and a pull towards the first guesses. It prints constants and scores; ``--write`` keeps
them in the knowledge base (the residuals that calibration.yaml states are to be renewed by hand from what is printed).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import yaml
from mbridge_advisor.knowledge import Knowledge, load
from mbridge_advisor.validation.run import Rows
from mbridge_advisor.validation.throughput import MEASURED, Case, cases, measured_cases

# name -> (first guess, standard deviation of its pull in logarithms). Launch times start from the functional tests of
# measured_memory.jsonl, which are all launches: a dense layer of the 12-layer model takes about 3.3 ms beyond what a
# step costs anyway, its MoE layer 6 to 7 ms more (dispatched by allgather, which the host waits for).
FITTED = {
    "gemm_efficiency_bf16": (0.7, 0.1),
    "gemm_efficiency_fp8": (0.65, 0.15),
    "gemm_efficiency_fp4": (0.4, 0.2),
    "attention_efficiency": (0.5, 0.2),
    "grouped_gemm_efficiency": (0.85, 0.1),
    "gemm_half_width": (256, 0.5),
    "sustained_hopper": (1.0, 0.15),
    "sustained_blackwell": (0.85, 0.15),
    "memory_efficiency": (0.75, 0.2),
    "scan_efficiency": (0.3, 0.5),
    "nvlink_efficiency": (0.7, 0.2),
    "all_to_all_efficiency": (0.5, 0.3),
    "network_efficiency": (0.8, 0.2),
    "dispatch_token_bytes": (1024, 0.7),
    "tp_exposed": (0.4, 0.4),
    "ep_exposed": (0.3, 0.4),
    "launch_seconds_block": (1.5e-3, 0.3),
    "launch_seconds_router": (6e-3, 0.3),
    "launch_seconds_sync": (2e-3, 0.5),
    "launch_seconds_expert": (1.5e-4, 0.5),
    "cp_exposed": (0.3, 0.5),
    "dp_exposed": (0.1, 0.5),
    "pipeline_pause_seconds": (5e-4, 0.5),
    "host_seconds_per_step": (0.02, 0.5),
}
HUBER = 0.15
NOISE = 0.08


def residuals(sample: Sequence[Case], constants: dict[str, float]) -> np.ndarray:
    """log(predicted / published) of each case, shape (n,)."""
    rates = [case.predict(constants).tokens_per_second_per_gpu[0] / case.tokens_per_second_per_gpu for case in sample]
    return np.log(np.array(rates))


def fit(sample: Sequence[Case], fixed: dict[str, float], rounds: int = 8) -> dict[str, float]:
    """Constants that fit the sample, from the first guesses; ``fixed`` gives those that aren't fitted."""
    names = list(FITTED)
    centre, spread = np.log([FITTED[n][0] for n in names]), np.array([FITTED[n][1] for n in names])
    limit = np.log([1.0 if "efficiency" in n or "sustained" in n else np.inf for n in names])
    x = centre.copy()

    def at(point: np.ndarray) -> dict[str, float]:
        return {**fixed, **dict(zip(names, np.exp(point), strict=True))}

    def loss(r: np.ndarray, point: np.ndarray) -> float:
        a = np.abs(r)
        robust = np.where(a < HUBER, a**2, 2 * HUBER * a - HUBER**2)
        return float(np.sum(robust) / NOISE**2 + np.sum(((point - centre) / spread) ** 2))

    r = residuals(sample, at(x))
    damping = 1.0
    for _ in range(rounds):
        jacobian = np.stack([(residuals(sample, at(x + 0.02 * unit)) - r) / 0.02 for unit in np.eye(len(x))], axis=1)
        weight = np.minimum(1, HUBER / np.maximum(np.abs(r), 1e-9)) / NOISE**2
        hessian = jacobian.T @ (weight[:, None] * jacobian) + np.diag(1 / spread**2)
        slope = jacobian.T @ (weight * r) + (x - centre) / spread**2
        before = loss(r, x)
        for _ in range(6):
            step = np.clip(np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), -slope), -0.5, 0.5)
            there = np.minimum(x + step, limit)
            tried = residuals(sample, at(there))
            if loss(tried, there) < before:
                x, r, damping = there, tried, damping / 4
                break
            damping *= 4
        else:
            break
        if before - loss(r, x) < 1e-3 * before:
            break
    return at(x)


def scores(sample: Sequence[Case], r: np.ndarray) -> str:
    """Median error, share within 20 %, bias by model and system; published rows first, then the measured ones."""
    e = np.exp(r) - 1
    published = np.array([case.release != MEASURED for case in sample])
    lines = []
    for label, mine in (("published", published), ("measured, few layers", ~published)):
        x = e[mine]
        lines.append(
            f"{label}: n {len(x)}  median {np.median(abs(x)):.1%}  within 20 % {np.mean(abs(x) < 0.2):.0%}"
            f"  bias {x.mean():+.1%}  10..90 % of true / predicted {np.quantile(1 / (1 + x), 0.1):.3f} .."
            f" {np.quantile(1 / (1 + x), 0.9):.3f}"
        )
        for group, key in (("model", lambda c: c.model), ("system", lambda c: c.gpu.name)):
            for name in sorted({key(c) for c in sample}):
                x = e[[bool(m) and key(c) == name for c, m in zip(sample, mine, strict=True)]]
                if len(x):
                    lines.append(
                        f"  {group} {name:18s} n {len(x):3d}  median {np.median(abs(x)):5.1%}  bias {x.mean():+6.1%}"
                    )
    return "\n".join(lines)


def keep(knowledge: Knowledge, fitted: dict[str, float], left_out: dict[str, dict[str, float]]) -> None:
    """Write the values into calibration.yaml, and those without each model into left_out.yaml."""
    facts = Path(knowledge.root) / "knowledge" / "facts"
    path = facts / "calibration.yaml"
    text = path.read_text(encoding="utf-8")
    for name in FITTED:
        text, count = re.subn(rf"(- name: {name}\n    value: )\S+", rf"\g<1>{_short(fitted[name])}", text)
        assert count == 1, name
    path.write_text(text, encoding="utf-8")
    content = {
        "method": "benchmarks/fit_time.py: the fit of calibration.yaml, each time without the rows of one model",
        "date": date.today().isoformat(),
        "models": {m: {n: float(_short(v[n])) for n in FITTED} for m, v in left_out.items()},
    }
    head = "# Written by benchmarks/fit_time.py --write; change the fit, not this file.\n"
    out = head + yaml.safe_dump(content, sort_keys=False, width=120)
    (facts / "measurements" / "left_out.yaml").write_text(out, encoding="utf-8")


def _short(value: float) -> str:
    """Three significant digits, as YAML reads a number."""
    return f"{value:.3e}" if abs(value) < 1e-3 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with other rows than the knowledge base's own")
    parser.add_argument("--leave-out", action="store_true", help="also fit without each model in turn")
    parser.add_argument("--write", action="store_true", help="keep the constants; implies --leave-out")
    arguments = parser.parse_args()
    knowledge = load()
    rows = Rows.read(arguments.data) if arguments.data else Rows.of(knowledge)
    sample = cases(rows.published, rows.recipes, knowledge) + measured_cases(rows.large, knowledge)
    fixed = dict(knowledge.calibration_values)
    fitted = fit(sample, fixed)
    for name in FITTED:
        print(f"{name:28s} now {fixed[name]:.4g} fitted {fitted[name]:.4g}")
    print(scores(sample, residuals(sample, fitted)))
    if arguments.leave_out or arguments.write:
        left = np.zeros(len(sample))
        left_out = {}
        for model in sorted({c.model for c in sample}):
            left_out[model] = fit([c for c in sample if c.model != model], fixed)
            here = [i for i, c in enumerate(sample) if c.model == model]
            left[here] = residuals([sample[i] for i in here], left_out[model])
        print("each model by constants fitted without it")
        print(scores(sample, left))
        if arguments.write:
            keep(knowledge, fitted, left_out)


if __name__ == "__main__":
    main()
