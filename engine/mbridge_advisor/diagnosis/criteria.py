"""Did a smoke run do what its plan asks for?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..advice.smoke import success
from ..errors import RequestError
from ..knowledge.model import Knowledge, Text
from ..knowledge.schema import mistakes
from .results import Criterion
from .scan import Scan

_UNTOLD = Text("the log doesn't tell", "日志中没有")


def configuration(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The request of the run that a plan describes.

    Raises:
        RequestError: it isn't a plan.
    """
    wrong = mistakes(dict(plan), "plan")
    if wrong:
        raise RequestError("plan", None, f"isn't a plan ({wrong[0]})", "Give the output of `plan --format json`.")
    return dict(plan["request"])


def judged(plan: Mapping[str, Any], seen: Scan, knowledge: Knowledge) -> tuple[Criterion, ...]:
    """Each success criterion of a plan, held against the log of its run.

    Raises:
        RequestError: it isn't a plan.
    """
    configuration(plan)
    found = dict(_found(plan, seen, knowledge))
    return tuple(
        Criterion(text, *found.get(name, (None, _UNTOLD)))
        for name, text in success(plan["grid"], plan["iterations"]).items()
    )


def _found(plan: Mapping[str, Any], seen: Scan, knowledge: Knowledge) -> Iterator[tuple[str, tuple[bool, Text]]]:
    """Name of the criterion, whether it holds, and what the log shows; nothing where the log doesn't tell."""
    codes = seen.measured.get("exit_code")
    if codes is not None:
        worst = int(codes.low if codes.low < 0 else codes.high)
        yield "exit_code", (worst == 0, Text(f"exit code {worst}", f"退出码 {worst}"))
    grid = {name: seen.values[name] for name in ("tp", "pp") if name in seen.values}
    if len(grid) == 2:
        same = all(value == (plan["grid"].get(knowledge.terms[name].field) or 1) for name, value in grid.items())
        shown = ", ".join(f"{name.upper()} {value}" for name, value in grid.items())
        yield "groups", (same, Text(shown, shown))
    layout = seen.values.get("pipeline_model_parallel_layout")
    if layout is not None:
        yield "layout", (layout == plan["grid"].get("pipeline_model_parallel_layout"), Text(str(layout), str(layout)))
    losses = seen.measured.get("log_loss")
    bad = {name: int(float(str(seen.values.get(name, 0)))) for name in ("log_nan_steps", "log_skipped_steps")}
    if losses is not None or any(bad.values()):
        count = losses.count if losses is not None else 0
        finite = losses is None or losses.finite
        span = f", {losses.low:.4g} … {losses.high:.4g}" if losses is not None and losses.low <= losses.high else ""
        nan, skipped = bad.values()
        yield (
            "iterations",
            (
                count >= plan["iterations"] and finite and not nan and not skipped,
                Text(
                    f"{count} lines with a loss{span}; {nan} steps with NaN, {skipped} skipped",
                    f"{count} 行带损失的日志{span.replace(', ', '，')}；NaN 步数 {nan}，跳过 {skipped}",
                ),
            ),
        )
    if seen.reading.lines:
        errors = [h for h in seen.hits if knowledge.rules[h.rule].severity == "error"]
        if errors:
            line = f"{errors[0].evidence.text[:120]}"
            number = errors[0].evidence.line
            yield "quiet", (False, Text(f"line {number}: {line}", f"第 {number} 行：{line}"))
        else:
            yield "quiet", (True, Text("none", "没有"))
