"""Our rules and the real code give the same verdict."""

import os
from pathlib import Path

import yaml
from mbridge_advisor.evidence.oracle import Oracle
from mbridge_advisor.evidence.oracle.cases import SMALLEST
from mbridge_advisor.evidence.oracle.fuzz import Ours, compare, read_cases, render, run
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.model import Revision

BASE = load()
CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "inventory_cases.yaml").read_text("utf-8"))["cases"]
DIRECTED = Path(__file__).parents[1] / "data" / "directed_cases.yaml"
COVERAGE = yaml.safe_load((Path(BASE.root) / "knowledge/evidence/inventory_coverage.yaml").read_text("utf-8"))


def test_on_what_the_inventory_says(real: Oracle, release: Revision) -> None:
    """Each entry has a configuration that breaks it; those that are said not to be modelled are left out."""
    ours, differ, rejected = Ours(BASE, release), [], 0
    for name, case in CASES.items():
        if "not_modelled" in COVERAGE["coverage"][name]:
            continue
        opinion = ours({**SMALLEST, **case})
        verdict = real.judge(opinion.config, opinion.defaults)
        rejected += verdict.verdict == "reject"
        if difference := compare(opinion, verdict):
            differ.append((name, case, difference, opinion.rules, verdict))
    assert differ == []
    assert rejected > 100


def test_on_directed_configurations(real: Oracle, release: Revision) -> None:
    cases = [{**SMALLEST, **case} for case in read_cases(DIRECTED)]
    report = run(BASE, release, real, seed=0, count=0, listed=cases)
    assert not report.disagreements, render(report)


def test_on_random_configurations(real: Oracle, release: Revision) -> None:
    report = run(BASE, release, real, seed=1, count=int(os.environ.get("MBRIDGE_ORACLE_COUNT", "100")))
    assert not report.disagreements, render(report)
    assert min(report.accepted, report.rejected) > report.tried // 10
    assert sum(report.unsupported.values()) <= report.tried // 20
