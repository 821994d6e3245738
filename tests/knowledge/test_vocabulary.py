"""The vocabulary agrees with the architecture and with itself."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from mbridge_advisor.architecture import FIELD_NAMES, Architecture
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.model import Term

HINTS = get_type_hints(Architecture)
OWN_FIELDS = {  # fields whose Bridge name says too little, or is another term's, without its section
    "lora_rank": "dim",
    "checkpoint_save": "save",
    "checkpoint_load": "load",
    "packed_in_batch": "enable_in_batch_packing",
    "dataset_seq_length": "seq_length",
}
FORMER_FIELDS = {"dataset_seq_length": {"sequence_length"}}  # what older releases call it


def terms() -> dict[str, Term]:
    return dict(load().terms)


@pytest.mark.parametrize("name", sorted(FIELD_NAMES))
def test_every_architecture_field_is_a_term(name: str) -> None:
    term = terms()[name]
    kinds = set(getattr(HINTS[name], "__args__", (HINTS[name],)))
    assert (term.section, term.field) == ("model", name)
    assert term.nullable is (type(None) in kinds)
    plain = {bool: "bool", int: "int", str: "str"}
    expected = "list" if any(getattr(k, "__origin__", None) is tuple for k in kinds) else None
    assert term.type == (expected or next(plain[k] for k in kinds if k in plain))
    assert term.default is None  # a model states its dimensions; without a model they are unknown


def test_paths_are_those_of_bridge() -> None:
    sections = {
        "model",
        "train",
        "ddp",
        "optimizer",
        "dataset",
        "comm_overlap",
        "checkpoint",
        "mixed_precision",
        "dist",
    }
    for term in terms().values():
        for _, path in term.path.cases if term.path else ():
            section, _, field = path.partition(".")
            assert section in {*sections, "validation", "peft", "scheduler", "rerun_state_machine"}, term.name
            assert field in {OWN_FIELDS.get(term.name, term.field), *FORMER_FIELDS.get(term.name, ())}, term.name


def test_environment_names_are_the_variables_in_lower_case() -> None:
    environment = [term for term in terms().values() if term.section == "environment"]
    assert environment
    for term in environment:
        assert term.field.lower() == term.name
        assert term.nullable
        assert term.default is None  # unknown unless given


def test_defaults_that_depend_on_the_release() -> None:
    knowledge = load()
    scope = knowledge.terms["cuda_graph_scope"].default
    assert scope is not None
    assert scope.at(knowledge.revisions["v0.4.2"]) == ("full",)
    assert scope.at(knowledge.revisions["v0.6.0"]) is None


def test_limits() -> None:
    assert terms()["world_size"].max == 1_000_000
    assert all(t.min == 1 and t.default is not None for n, t in terms().items() if n in ("tp", "pp", "cp", "ep"))
