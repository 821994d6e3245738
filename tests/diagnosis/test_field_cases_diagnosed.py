"""All public field reports through ``diagnose``: what was told (symptom, error words, configuration) leads to the
cause.

A report is right when

- each rule id that it names is answered: one of our rules for it is a cause, stands behind one, is said to hang on a
  value that is asked for (not where the report is ``invalid``), or speaks of the configuration; a constraint that a
  valid configuration leaves quiet counts as answered where it was judged;
- ``invalid``: the first cause is one of those rules, or has one of them behind it, and where the code refuses the
  configuration, the report's own fix is accepted by the rules that refused it;
- ``valid``, ``explain``, ``insufficient_information``: no rule of the code is said to be broken;
- ``insufficient_information``: something is asked for;
- ``depends_on_version``: a cause says so, or the rules differ between releases;
- ``valid_but_risky``: one of the rules is a cause, stands behind one or warns.

Reports that don't come out right are listed, each with the reason, in data/diagnosis_misses.yaml; a test says when one
of them has become right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from field_cases import BASE, CASES, README, RULES, Case, read
from mbridge_advisor import diagnose
from mbridge_advisor.diagnosis.results import Diagnosis

DIAGNOSES: Mapping[str, list[str]] = read("diagnosis_case_rules.yaml")
MISSES: Mapping[str, str] = read("diagnosis_misses.yaml") or {}


def told(case: Case) -> dict[str, Any]:
    """The parts of a call of ``diagnose``."""
    config = case.data["config"]
    out: dict[str, Any] = {"symptom": "\n".join([case.data["symptom"], *map(str, case.data["error_keywords"])])}
    if "load" in config:
        common = {k: v for k, v in config.items() if k not in ("save", "load")}
        plain = {"dp"}
        out["before"] = _request(case, {**common, **config["save"]}, plain)
        out["request"] = _request(case, {**common, **config["load"]}, plain)
    else:
        out["request"] = case.request()
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


def faults(case: Case) -> Iterator[str]:
    """What isn't right about the answer to a report."""
    diagnosis = diagnose(**told(case))
    said = blamed(diagnosis) | {f.rule for f in diagnosis.findings}
    if case.verdict != "invalid":
        said |= {n.rule for c in diagnosis.causes for n in c.open}
    open_ = {n.rule for n in diagnosis.not_judged}
    for rule, ours in rules_of(case).items():
        quiet = {r for r in ours if BASE.rules[r].kind == "constraint" and r not in open_}
        if not said & ours and not quiet:
            yield f"{rule} isn't answered: none of {sorted(ours)} in {sorted(said)}"
    ours = set().union(*rules_of(case).values())
    constraints = {r for r in broken(diagnosis) if BASE.rules[r].kind == "constraint"}
    if case.verdict == "invalid":
        first = diagnosis.causes[:1]
        if not {r for c in first for r in (c.rule, *(s.rule for s in c.behind))} & ours:
            yield f"the first cause is {[c.rule for c in first]}"
        fix = case.data["expected"].get("fix_config")
        if fix and broken(diagnosis) & ours and "load" not in case.data["config"]:
            mended = broken(diagnose(case.request(fix)))
            if left := mended & broken(diagnosis) - set(case.filled.get("leaves", ())):
                yield f"the fix leaves {sorted(left)}"
    elif case.verdict in ("valid", "explain", "insufficient_information") and constraints:
        yield f"{sorted(constraints)} are said to be broken"
    if case.verdict == "insufficient_information" and not diagnosis.asks:
        yield "nothing is asked for"
    if case.verdict == "depends_on_version" and not blamed(diagnosis) & ours:
        yield "no cause says so"
    if case.verdict == "valid_but_risky" and not said & ours:
        yield "nothing warns"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_a_report_is_diagnosed(case: Case) -> None:
    assert bool(list(faults(case))) == (case.id in MISSES), list(faults(case))


def test_the_numbers_that_are_told_are_true() -> None:
    assert MISSES.keys() <= {case.id for case in CASES}
    text = README.read_text(encoding="utf-8")
    assert f"{len(CASES) - len(MISSES)} of {len(CASES)} reports are diagnosed right" in text


def case(name: str) -> Case:
    return next(c for c in CASES if c.id == name)


def test_the_size_of_an_allocation_tells_a_second_copy_of_the_experts() -> None:
    """FC-073: with the message itself the cause is sure, and the fix is the report's."""
    report = case("FC-073")
    diagnosis = diagnose(**told(report), log=["NPU out of memory. Tried to allocate 26.44 GiB"])
    assert diagnosis.causes[0].rule == "MB-OOM-009"
    assert diagnosis.causes[0].set == {"expert_model_parallel_size": report.data["expected"]["fix_config"]["ep"]}


def test_the_memory_of_the_host_decides_about_a_conversion() -> None:
    """FC-113: 480e9 parameters, twice, in two bytes."""
    report = case("FC-113")
    parts = {**told(report), "request": report.request({"host_memory": 1_500_000_000_000})}
    assert diagnose(**parts).causes[0].rule == "MB-OOM-014"
    assert "1,920" in diagnose(**parts).causes[0].message.en
    parts["request"] = report.request({"host_memory": 4_000_000_000_000})
    assert "MB-OOM-014" not in [c.rule for c in diagnose(**parts).causes]


def test_every_rule_id_is_answered_by_something() -> None:
    named = {rule for case in CASES for rule in _named(case)}
    assert DIAGNOSES.keys() <= named
    for rule in named:
        assert isinstance(RULES[rule], list) or rule in DIAGNOSES
    assert {r for rules in DIAGNOSES.values() for r in rules} <= BASE.rules.keys()
