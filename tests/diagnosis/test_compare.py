"""Two configurations: what changed, what it costs, and what each change costs by itself."""

from __future__ import annotations

from typing import Any

import pytest
from mbridge_advisor import diagnose, estimate
from mbridge_advisor.diagnosis.results import Comparison
from mbridge_advisor.knowledge.schema import mistakes


def config(**settings: Any) -> dict[str, Any]:
    training = {"seq_length": 8192, "micro_batch_size": 1, "global_batch_size": 512}
    grid = {"tp": 1, **settings}
    return {"model": "llama3-8b", "cluster": {"gpu": "H100", "gpus": 64}, "training": training, "grid": grid}


def compared(old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    diagnosis = diagnose(new, before=old)
    assert not mistakes(diagnosis.to_dict(), "diagnosis")
    assert diagnosis.comparison is not None
    return diagnosis.comparison


def speed(request: dict[str, Any]) -> float:
    found = estimate(request).grid.throughput
    assert found is not None
    return found.tokens_per_second_per_gpu


def test_the_ratio_is_that_of_the_estimates() -> None:
    old, new = config(), config(tp=8, sequence_parallel=True)
    found = compared(old, new)
    assert found.speed_ratio == pytest.approx(speed(new) / speed(old))
    assert found.changes == {"tensor_model_parallel_size": (1, 8), "sequence_parallel": (False, True)}


def test_each_change_by_itself() -> None:
    full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    old, new = config(), config(tp=4, **full)
    found = compared(old, new)
    assert found.alone == {
        "tensor_model_parallel_size": pytest.approx(speed(config(tp=4)) / speed(old)),
        "recompute_granularity": pytest.approx(speed(config(**full)) / speed(old)),
    }
    assert all(ratio < 1 for ratio in found.alone.values())


def test_what_is_taken_back_counts_too() -> None:
    found = compared(config(tp=8, cp=2), config(tp=8, pp=2))
    assert set(found.alone) == {"context_parallel_size", "pipeline_model_parallel_size"}
    assert found.alone["context_parallel_size"] > 1


def test_the_same_twice_changes_nothing() -> None:
    found = compared(config(tp=2), config(tp=2))
    assert (found.changes, found.alone, found.speed_ratio) == ({}, {}, 1.0)


def test_a_slower_configuration_is_suspected_and_no_more() -> None:
    diagnosis = diagnose(config(tp=8), before=config())
    assert diagnosis.causes[0].rule == "MB-SPEED-004"
    assert diagnosis.causes[0].certainty == "likely"
    assert diagnosis.exit_code == 0


def test_what_cannot_be_estimated_is_still_compared() -> None:
    found = compared({"grid": {"tp": 2}}, {"grid": {"tp": 4}})
    assert found.changes == {"tensor_model_parallel_size": (2, 4)}
    assert (found.before, found.after, found.speed_ratio, found.alone) == (None, None, None, {})
