"""Signed errors of our figures, in one shape for memory, throughput and whatever follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import memory, throughput


@dataclass(frozen=True)
class Comparison:
    """Predicted against measured, of one row and figure.

    Attributes:
        row: id of the row.
        groups: what it can be grouped by (model, gpu, precision, release ...).
        low, high: ends of the stated range; equal to ``predicted`` where there is none.
    """

    row: str
    groups: Mapping[str, str]
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Summary:
    """Scores of a set of comparisons; errors as fractions.

    Attributes:
        count, median, mean_absolute, bias: rows, median and mean of absolute errors, mean signed error.
        worst: the row with the largest absolute error, and its error.
        within: share of rows within 5, 10 and 20 %.
        covered: share whose measured figure lies in the stated range.
    """

    count: int
    median: float
    mean_absolute: float
    bias: float
    worst: tuple[str, float]
    within: Mapping[int, float]
    covered: float


def summarise(comparisons: Sequence[Comparison]) -> Summary:
    """Scores of at least one comparison."""
    errors = np.array([c.error for c in comparisons])
    worst = comparisons[int(np.argmax(np.abs(errors)))]
    inside = [c.low <= c.measured <= c.high for c in comparisons]
    return Summary(
        len(errors),
        float(np.median(np.abs(errors))),
        float(np.mean(np.abs(errors))),
        float(np.mean(errors)),
        (worst.row, worst.error),
        {p: float(np.mean(np.abs(errors) <= p / 100)) for p in (5, 10, 20)},
        float(np.mean(inside)),
    )


def by(comparisons: Iterable[Comparison], group: str) -> dict[str, list[Comparison]]:
    """The comparisons by one of their groups, sorted by its name."""
    out: dict[str, list[Comparison]] = {}
    for c in comparisons:
        out.setdefault(c.groups[group], []).append(c)
    return dict(sorted(out.items()))


def peak_memory(cases: Iterable[memory.Case], constants: Mapping[str, float] | None = None) -> list[Comparison]:
    """Peak allocated memory of measured runs."""
    return [_memory(c, c.predict(constants).total[0], c.peak) for c in cases]


def end_of_step_memory(cases: Iterable[memory.Case], constants: Mapping[str, float] | None = None) -> list[Comparison]:
    """Memory between two steps, of the runs that printed it."""
    return [_memory(c, c.predict(constants).end_of_step[0], c.end_of_step) for c in cases if c.end_of_step]


def _memory(case: memory.Case, predicted: float, measured: float) -> Comparison:
    gpu = case.gpu.name if case.gpu else "unknown"
    groups = {"model": case.model, "gpu": gpu, "precision": case.settings.precision, "release": "measured"}
    return Comparison(case.name, groups, float(predicted), measured, float(predicted), float(predicted))


def instead(comparison: Comparison, predicted: float) -> Comparison:
    """The same row by another formula, which states no range."""
    return replace(comparison, predicted=predicted, low=predicted, high=predicted)


def tokens_per_second(
    cases: Iterable[throughput.Case],
    constants: Callable[[throughput.Case], Mapping[str, float] | None] = lambda _: None,
) -> list[Comparison]:
    """Tokens/s/GPU of published or measured runs; ``constants`` may differ from case to case (models left out)."""
    out = []
    for c in cases:
        t = c.predict(constants(c))
        groups = {"model": c.model, "gpu": c.gpu.name, "precision": c.settings.precision, "release": c.release}
        out.append(
            Comparison(
                c.id,
                groups,
                float(t.tokens_per_second_per_gpu[0]),
                c.tokens_per_second_per_gpu,
                float(t.low[0]),
                float(t.high[0]),
            )
        )
    return out
