"""The benign corpus: no constraint may reject a recipe that the vendor ships, except those listed with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from mbridge_advisor.advice.programs import program_for
from mbridge_advisor.inference import infer
from mbridge_advisor.intake.facts import build_facts
from mbridge_advisor.intake.recipe import request_of_recipe
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import load, load_recipes

BASE = load()
HERE = Path(__file__).parent
LISTED = {
    row["id"]: row for row in yaml.safe_load((HERE / "data" / "recipe_exceptions.yaml").read_text())["exceptions"]
}
KEYS = sorted(path.stem for path in (Path(BASE.root) / "knowledge" / "facts" / "recipes").glob("*.yaml"))


def rows() -> Iterator[Mapping[str, Any]]:
    for key in KEYS:
        for row in load_recipes(BASE, key):
            yield {**row, "model_key": key}


def broken(row: Mapping[str, Any]) -> list[str]:
    """Ids of the constraints of severity error that reject a recipe."""
    request = parse_request(request_of_recipe(row, BASE), BASE)
    facts = build_facts(request, BASE)
    needs = LISTED.get(row["id"], {}).get("needs", {})
    # None of the models that need it marks its stages in a hybrid layer pattern.
    values = {**facts.values, **needs, **({"hybrid_override_pattern": None} if needs else {})}
    if row["model_key"].startswith("deepseek_v4") or request.architecture is None:
        # What the facts don't tell of a model outside the catalogue is unknown, not unset.
        values = {k: v for k, v in values.items() if k not in ("mtp_num_layers", "moe_token_dispatcher_type")}
        if row.get("num_experts"):
            values["num_moe_experts"] = row["num_experts"]
    # Columns that the facts don't have are unknown too.
    for name in ("pretrained_checkpoint", "calculate_per_token_loss"):
        values.pop(name, None)
    if row.get("moe_token_dispatcher_type") is None:
        values.pop("moe_token_dispatcher_type", None)
    program = program_for(BASE, request.revision)
    inference = infer(program, values, engine="reference")
    return [firing.rule for firing in inference.firings if program.rules[firing.rule].enforced]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[str]]:
    return {row["id"]: found for row in rows() if (found := broken(row))}


def test_exactly_the_listed_recipes_are_rejected(verdicts: dict[str, list[str]]) -> None:
    unexpected = {row: rules for row, rules in verdicts.items() if row not in LISTED}
    assert not unexpected, Counter(rule for rules in unexpected.values() for rule in rules)
    missed = [row for row in LISTED if row not in verdicts]
    assert not missed


def test_the_corpus_is_the_whole_of_it() -> None:
    assert sum(1 for _ in rows()) > 1800


def test_a_broken_copy_of_a_recipe_is_rejected() -> None:
    """The corpus test can fail: spoil a good recipe and it is rejected."""
    row = next(r for r in load_recipes(BASE, "llama3_70b") if r.get("num_gpus") and r.get("mbs"))
    spoilt = {**row, "model_key": "llama3_70b", "num_gpus": row["num_gpus"] + 1}
    assert "MB-WORLD-001" in broken(spoilt)
