"""Logs of the recognised kinds lead to their cause; on unrelated ones nothing fires."""

from __future__ import annotations

import pytest
from mbridge_advisor import diagnose
from mbridge_advisor.knowledge.schema import mistakes

from .logs import BENIGN, LLAMA, SUMMARY, Log, failing, start

LOGS = list(failing())


def test_there_are_enough() -> None:
    assert len(LOGS) >= 40
    assert len(BENIGN) >= 20
    assert len({log.name for log in LOGS}) == len(LOGS)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_log_leads_to_its_cause(log: Log) -> None:
    diagnosis = diagnose(log.request, log=log.text.splitlines())
    first = diagnosis.causes[0]
    assert first.rule == log.rule, [(c.rule, c.certainty) for c in diagnosis.causes]
    assert first.citations
    if first.evidence:
        lines = log.text.splitlines()
        assert all(e.text[:60] in " ".join(lines[e.line - 1].split()) for e in first.evidence)
        assert first.evidence[0].rank == log.rank
    for name, value in log.observed.items():
        assert diagnosis.observed[name].value == pytest.approx(value) if isinstance(value, float) else value
        assert diagnosis.observed[name].line > 0
    for field, value in log.set.items():
        assert first.set[field] == value
    named = {c.rule for c in diagnosis.causes} | {s.rule for c in diagnosis.causes for s in c.behind}
    assert named >= set(log.also)
    assert not mistakes(diagnosis.to_dict("zh"), "diagnosis")


@pytest.mark.parametrize("name", BENIGN)
def test_nothing_fires_on_an_unrelated_log(name: str) -> None:
    diagnosis = diagnose(log=BENIGN[name].splitlines())
    assert [(c.rule, c.evidence) for c in diagnosis.causes] == []


def test_a_printed_configuration_is_whole() -> None:
    """What Bridge's summary leaves out has Core's default, so that rules that read it are judged."""
    diagnosis = diagnose(log=SUMMARY.splitlines())
    assert diagnosis.request["grid"]["expert_model_parallel_size"] == 64
    assert diagnosis.observed["moe_token_dispatcher_type"].value == "flex"
    assert not any("tensor_model_parallel_size" in row.missing for row in diagnosis.not_judged)


def test_the_log_tells_what_ran() -> None:
    diagnosis = diagnose({**LLAMA, "grid": {"tp": 2}}, log=start(8, 4, 1).splitlines())
    assert diagnosis.request["grid"]["tensor_model_parallel_size"] == 4
    assert any("tensor_model_parallel_size = 2, but line 3" in note.en for note in diagnosis.notes)
    words = diagnose({**LLAMA, "grid": {"tp": 2}}, symptom="it is slow with tp 4")
    assert words.request["grid"]["tensor_model_parallel_size"] == 2


def test_an_unknown_exception_is_shown_but_blames_nobody() -> None:
    diagnosis = diagnose(log=BENIGN["python"].splitlines())
    assert diagnosis.verdict == "unclear"
    assert [e.line for e in diagnosis.unknown] == [3]
    assert diagnosis.asks
