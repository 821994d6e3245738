"""The log of a smoke run is held against the success criteria of its plan."""

from __future__ import annotations

from typing import Any

import pytest
from mbridge_advisor import RequestError, diagnose
from mbridge_advisor.advice.smoke import plan
from mbridge_advisor.diagnosis.results import Diagnosis
from mbridge_advisor.knowledge.schema import mistakes

from .logs import END, oom, start, steps, torchrun

PLAN = plan(
    {
        "model": "llama3-8b",
        "cluster": {"gpu": "H100", "gpus": 64},
        "training": {"seq_length": 4096, "micro_batch_size": 1},
        "grid": {"tp": 2, "pp": 2, "vpp": 2, "sequence_parallel": True},
    }
)
LAYOUT = "Ettttttttttt|tttttttttttt|tttttttttL"
LAID_OUT = plan(
    {
        "model": "llama3-8b",
        "cluster": {"gpu": "H100", "gpus": 64},
        "training": {"seq_length": 4096, "micro_batch_size": 1},
        "grid": {"tp": 1, "pp": 3, "pipeline_model_parallel_layout": LAYOUT},
    }
)
SUCCESS = start(4, 2, 2) + steps(1, 4) + "exit code: 0\n"


def judged(log: str, of: Any = PLAN) -> tuple[Diagnosis, dict[str, bool | None]]:
    """The diagnosis, and what became of each criterion by its first word in the list of names."""
    diagnosis = diagnose(log=log.splitlines(), plan=of.to_dict())
    for lang in ("en", "zh"):
        assert not mistakes(diagnosis.to_dict(lang), "diagnosis")
    assert [c.text for c in diagnosis.criteria] == list(of.success)
    names = ("exit", "groups", *(("layout",) if len(diagnosis.criteria) == 5 else ()), "iterations", "quiet")
    return diagnosis, {name: c.holds for name, c in zip(names, diagnosis.criteria, strict=True)}


def test_a_run_that_succeeds() -> None:
    diagnosis, holds = judged(SUCCESS)
    assert set(holds.values()) == {True}
    assert diagnosis.causes == ()
    assert diagnosis.verdict == "clean"
    assert diagnosis.exit_code == 0


@pytest.mark.parametrize(
    ("log", "broken"),
    [
        (SUCCESS.replace("exit code: 0", "exit code: 1"), {"exit"}),
        (SUCCESS.replace("exit code: 0", "exit code: 124"), {"exit"}),
        (
            start(4, 2, 2).replace("parallel with size 2", "parallel with size 1") + steps(1, 4) + "exit code: 0",
            {"groups"},
        ),
        (start(4, 2, 2) + steps(1, 3) + "exit code: 0", {"iterations"}),
        (start(4, 2, 2) + steps(1, 3) + steps(3, 4, nan=1) + "exit code: 0", {"iterations"}),
        (SUCCESS.replace("skipped iterations:   0", "skipped iterations:   1"), {"iterations"}),
        (
            start(4, 2, 2) + steps(1, 2) + torchrun(oom("2 GiB"), 1) + END + "exit code: 1",
            {"exit", "iterations", "quiet"},
        ),
    ],
)
def test_each_criterion_can_fail(log: str, broken: set[str]) -> None:
    diagnosis, holds = judged(log)
    assert {name for name, held in holds.items() if held is False} == broken
    assert diagnosis.exit_code == 1


def test_what_the_log_does_not_tell_is_unknown() -> None:
    _, holds = judged(steps(1, 4))
    assert holds == {"exit": None, "groups": None, "iterations": True, "quiet": True}


def test_the_layout_line_is_compared() -> None:
    line = f"INFO:megatron.core:Parse pipeline model parallel layout {LAYOUT} to:\n"
    log = start(3, 1, 3) + line + steps(1, 4) + "exit code: 0"
    assert set(judged(log, LAID_OUT)[1].values()) == {True}
    assert judged(log.replace("|ttt", "ttt|"), LAID_OUT)[1]["layout"] is False


def test_the_plan_writes_what_diagnose_reads() -> None:
    assert any('tee -a "$SMOKE_DIR/smoke.log"' in line and "exit code:" in line for line in PLAN.command)


@pytest.mark.parametrize("wrong", [{}, {"request": {}}, {**PLAN.to_dict(), "grid": 3}])
def test_what_is_no_plan_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="isn't a plan"):
        diagnose(log=["nothing"], plan=wrong)
    with pytest.raises(RequestError, match="no log"):
        diagnose(plan=PLAN.to_dict())
