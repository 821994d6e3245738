"""The worked examples of world sizes: what each must answer, figure by figure."""

from __future__ import annotations

from typing import Any

import pytest
from mbridge_advisor import check
from mbridge_advisor.advice.results import Report


def grid(bridge: str = "v0.6.0", gpus: int | None = None, model: str | None = None, **sizes: Any) -> Report:
    request: dict[str, Any] = {"bridge": bridge, "grid": sizes}
    if gpus is not None:
        request["cluster"] = {"gpus": gpus}
    if model is not None:
        request["model"] = model
    return check(request)


def sizes_of(report: Report) -> dict[str, Any]:
    return {d.name: d.value for d in report.quantities}


def message(report: Report, rule: str, lang: str = "en") -> str:
    (found,) = (f for f in report.findings if f.rule == rule)
    return found.message[lang]


@pytest.mark.parametrize("bridge", ["v0.2.0", "v0.5.1", "v0.6.0"])
def test_with_etp_1_the_smallest_world_is_16_and_the_full_product_is_named_as_wrong(bridge: str) -> None:
    report = grid(bridge, tp=2, pp=2, cp=1, ep=8, etp=1)
    assert sizes_of(report)["min_gpus"] == 16
    assert "32 is wrong" in message(report, "MB-COUNT-002")
    assert "16" in message(report, "MB-COUNT-002")
    assert "32" in message(report, "MB-COUNT-002", "zh")
    assert report.verdict != "error"
    assert not {"MB-ETP-001"} & {f.rule for f in report.findings}


@pytest.mark.parametrize("model", [None, "qwen3-30b-a3b"])
def test_with_etp_unset_the_answer_differs_between_releases_and_says_so(model: str | None) -> None:
    old = grid("v0.5.1", model=model, tp=2, pp=2, cp=1, ep=8)
    new = grid("v0.6.0", model=model, tp=2, pp=2, cp=1, ep=8)
    assert sizes_of(old)["min_gpus"] == 32
    assert sizes_of(old)["etp_effective"] == 2
    assert sizes_of(new)["min_gpus"] == 16
    assert sizes_of(new)["etp_effective"] == 1
    for report in (old, new):
        for lang in ("en", "zh"):
            text = message(report, "MB-ETP-001", lang)
            assert "16" in text
            assert "32" in text
        assert "v0.6.0" in message(old, "MB-ETP-001")
        assert "v0.5.1" in message(new, "MB-ETP-001")
        (found,) = (f for f in report.findings if f.rule == "MB-ETP-001")
        assert found.set == {"expert_tensor_parallel_size": 1}


def test_so_16_gpus_are_refused_at_one_release_and_run_at_the_next() -> None:
    old = grid("v0.5.1", gpus=16, tp=2, pp=2, cp=1, ep=8)
    assert old.verdict == "error"
    assert "smallest world for this grid is 32" in message(old, "MB-WORLD-002")
    assert grid("v0.6.0", gpus=16, tp=2, pp=2, cp=1, ep=8).verdict != "error"
    assert grid("v0.5.1", gpus=16, tp=2, pp=2, cp=1, ep=8, etp=1).verdict != "error"


@pytest.mark.parametrize("bridge", ["v0.2.0", "v0.6.0"])
def test_the_smallest_world_is_the_least_common_multiple(bridge: str) -> None:
    report = grid(bridge, tp=6, cp=1, ep=4, etp=1, pp=1)
    assert sizes_of(report)["min_gpus"] == 12
    assert "12, not 6" in message(report, "MB-COUNT-001")
    for gpus, verdict in ((6, "error"), (12, "warning"), (18, "error"), (24, "warning")):
        found = grid(bridge, gpus=gpus, tp=6, cp=1, ep=4, etp=1, pp=1)
        assert (found.verdict == "error") == (verdict == "error"), gpus


def test_glm_needs_256_gpus_at_one_release_and_128_at_the_next() -> None:
    assert sizes_of(grid("v0.5.1", tp=2, pp=8, ep=16))["min_gpus"] == 256
    assert sizes_of(grid("v0.6.0", tp=2, pp=8, ep=16))["min_gpus"] == 128


def test_ep_is_neither_bounded_by_dp_nor_a_factor_of_the_dense_world() -> None:
    report = grid(gpus=8, tp=8, pp=1, cp=1, ep=8, etp=1)
    assert report.verdict != "error"
    assert sizes_of(report)["dp"] == 1
    assert sizes_of(report)["edp"] == 1
    assert "which is fine" in message(report, "MB-COUNT-003")


def test_sequence_parallelism_nobody_speaks_of_is_said_and_not_refused() -> None:
    open_ = grid(gpus=16, tp=2, pp=2, ep=8, etp=1)
    assert any("sequence_parallel" in note.en for note in open_.notes)
    assert open_.verdict != "error"
    off = grid(gpus=16, tp=2, pp=2, ep=8, etp=1, sequence_parallel=False)
    assert "MB-SP-002" in {f.rule for f in off.findings if f.severity == "error"}
    dense = grid(gpus=16, tp=2, pp=2, model="llama3-8b")
    assert not dense.notes


def test_without_a_grid_what_depends_on_it_is_not_judged() -> None:
    report = check({"model": "llama3-8b", "cluster": {"gpus": 128}, "training": {"gbs": 64, "mbs": 1}})
    assert report.verdict == "ok"
    missing = {n.rule: n.missing for n in report.not_judged}
    assert "tensor_model_parallel_size" in missing["MB-WORLD-001"]
    assert any("parallel sizes" in note.en for note in report.notes)
