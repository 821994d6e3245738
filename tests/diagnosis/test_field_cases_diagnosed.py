"""All public field reports through ``diagnose``: what was told (symptom, error words, configuration) leads to the
cause.

A report is right when

- each rule id that it names is answered: one of our rules for it is a cause, stands behind one, is said to hang on a
  value that is asked for (not where the report is ``invalid``), or speaks of the configuration; one that a
  valid configuration leaves quiet counts as answered where it was judged;
- ``invalid``: a cause is found, and it is one of those rules, or has one of them behind it;
- ``valid``, ``explain``, ``insufficient_information``: no rule of the code is said to be broken;
- ``insufficient_information``: something is asked for;
- ``depends_on_version``: a cause says so, or the rules differ between releases;
- the changed keys of the report's fix are accepted by the rules that refused the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from field_cases import BASE, CASES, RULES, Case, read
from mbridge_advisor import diagnose
from mbridge_advisor.diagnosis.results import Diagnosis

DIAGNOSES: Mapping[str, list[str]] = read("diagnosis_case_rules.yaml")
# What a report tells beyond symptom and error words, as a log would show it, or by our names.
TOLD: Mapping[str, Mapping[str, Any]] = {
    "FC-073": {"log": ["NPU out of memory. Tried to allocate 26.44 GiB"]},
    "FC-043": {"log": ["ValueError: num_query_groups (2) must be a multiple of tensor_model_parallel_size (8)."]},
    "FC-113": {"set": {"host_memory": 1_500_000_000_000}},
    "FC-121": {"set": {"use_megatron_fsdp": True}},
}
# Ids that the report names for the sake of context and that its configuration leaves quiet.
QUIET: Mapping[str, set[str]] = {
    "FC-005": {"R-WORLD-EXPERT", "R-ETP-DEFAULT"},  # the report's point is the release
}


def told(case: Case) -> dict[str, Any]:
    """The parts of a call of ``diagnose``."""
    config = case.data["config"]
    extra = TOLD.get(case.id, {})
    out: dict[str, Any] = {"symptom": "\n".join([case.data["symptom"], *map(str, case.data["error_keywords"])])}
    if "log" in extra:
        out["log"] = extra["log"]
    if "load" in config:
        common = {k: v for k, v in config.items() if k not in ("save", "load")}
        plain = {"dp"}
        out["before"] = _request(case, {**common, **config["save"]}, plain)
        out["request"] = _request(case, {**common, **config["load"]}, plain)
    else:
        out["request"] = case.request(extra.get("set", {}))
    return out


def _request(case: Case, config: Mapping[str, Any], drop: set[str]) -> dict[str, Any]:
    data = {**case.data, "config": {k: v for k, v in config.items() if k not in drop}}
    return Case(data, case.filled).request()


def rules_of(case: Case) -> dict[str, set[str]]:
    """Rule id of the report -> our rules."""
    return {r: {*(RULES[r] if isinstance(RULES[r], list) else ()), *DIAGNOSES.get(r, ())} for r in _named(case)}


def _named(case: Case) -> list[str]:
    return list(case.data["expected"]["rules"])


def blamed(diagnosis: Diagnosis) -> set[str]:
    return {c.rule for c in diagnosis.causes} | {s.rule for c in diagnosis.causes for s in c.behind}


def broken(diagnosis: Diagnosis) -> set[str]:
    """Rules that are said to be broken for sure."""
    return {c.rule for c in diagnosis.causes if c.certainty == "confirmed" and c.severity == "error"}


def answered(case: Case, diagnosis: Diagnosis) -> None:
    said = blamed(diagnosis) | {f.rule for f in diagnosis.findings}
    if case.verdict != "invalid":
        said |= {n.rule for c in diagnosis.causes for n in c.open}
    open_ = {n.rule for n in diagnosis.not_judged}
    for rule, ours in rules_of(case).items():
        assert ours, rule
        quiet = {r for r in ours if BASE.rules[r].kind == "constraint" and r not in open_}
        assert said & ours or quiet or rule in QUIET.get(case.id, ()), f"{rule}: none of {ours} in {said}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_a_report_is_diagnosed(case: Case) -> None:
    parts = told(case)
    diagnosis = diagnose(**parts)
    answered(case, diagnosis)
    ours = set().union(*rules_of(case).values())
    if case.verdict == "invalid":
        assert blamed(diagnosis) & ours
        assert diagnosis.verdict in ("found", "suspected")
        fix = case.data["expected"].get("fix_config")
        if fix and broken(diagnosis) & ours and "load" not in case.data["config"]:
            mended = diagnose(case.request(TOLD.get(case.id, {}).get("set", {}), fix))
            assert not broken(mended) & broken(diagnosis) - set(case.filled.get("leaves", ()))
    elif case.verdict in ("valid", "explain", "insufficient_information"):
        constraints = {r for r in broken(diagnosis) if BASE.rules[r].kind == "constraint"}
        assert not constraints
    if case.verdict == "insufficient_information":
        assert diagnosis.asks
    if case.verdict == "depends_on_version":
        assert blamed(diagnosis) & ours
    if case.verdict == "valid_but_risky":
        assert (blamed(diagnosis) | {f.rule for f in diagnosis.findings}) & ours


def test_every_rule_id_is_answered_by_something() -> None:
    named = {rule for case in CASES for rule in _named(case)}
    assert DIAGNOSES.keys() <= named
    for rule in named:
        assert isinstance(RULES[rule], list) or rule in DIAGNOSES
    assert {r for rules in DIAGNOSES.values() for r in rules} <= BASE.rules.keys()
