"""The tables of other programs' options speak of names that exist, in values that fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from mbridge_advisor.intake.launch import FORMS
from mbridge_advisor.intake.mappings import table
from mbridge_advisor.intake.notes import fit
from mbridge_advisor.knowledge import load

BASE = load()
NAMES = sorted(path.stem for path in (Path(BASE.root) / "knowledge" / "mappings").glob("*.yaml"))
SPECIAL = {"nodes", "recipe", "model", "window", "hybrid_pattern", "layers_per_virtual_stage", "switch", "ignored"}


@pytest.mark.parametrize("name", NAMES)
def test_every_target_is_a_name_and_every_value_fits(name: str) -> None:
    mapping = table(BASE, name)
    for key, option in mapping.options.items():
        target = option["to"]
        if target in SPECIAL:
            continue
        term = BASE.by_field[target]
        assert term.section != "derived", key
        for value in (option.get("set"), *option.get("values", {}).values()):
            assert value is None or fit(term, value, key) == value
        for other in ("needs", "plus", "times"):
            reference = option.get(other, key)
            assert reference in mapping.options or reference in BASE.by_field, f"{key}: {reference}"
    for field, value in mapping.defaults.items():
        assert field in BASE.by_field
        if isinstance(value, str) and value.startswith("="):
            assert value[1:].strip() in BASE.by_field


def test_every_form_has_a_table_that_can_be_told() -> None:
    for form in FORMS:
        assert table(BASE, form).detect


def test_no_pattern_hides_a_setting_that_rules_read() -> None:
    """A spelling of the vocabulary is taken, whatever the patterns say."""
    mapping = table(BASE, "megatron_lm")
    assert mapping.without_bearing("moe_router_bias_update_rate")
    assert not mapping.without_bearing("tensor_model_parallel_size")
    assert not mapping.without_bearing("pipeline_model_parallel_layout")
