"""Every change of a condition is reported: on small sources here, on the real ones by benchmarks/mutation_check.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from mbridge_advisor.evidence.verify import open_sources, verify_sources
from small_world import World
from test_verify import recorded


@pytest.fixture(scope="module")
def check() -> ModuleType:
    """The benchmark as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / "mutation_check.py"
    spec = importlib.util.spec_from_file_location("mutation_check", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutation_check"] = module
    spec.loader.exec_module(module)
    return module


def test_what_is_changed(check: ModuleType) -> None:
    raw = b"if not a and b.c % 2 == 0:\n    raise X\nassert (d) is not None or e in f\nif z < 1:\n    pass\n"
    changes = {change: text.decode().replace("\n", ";") for text, change in check.mutations(raw, (1, 3))}
    assert set(changes) == {
        *("not  -> nothing", " and  ->  or ", "== -> !=", "2 -> 3", "0 -> 1"),
        *("is not -> is", " or  ->  and ", "in -> not in"),
    }
    assert changes["== -> !="].startswith("if not a and b.c % 2 != 0:")
    assert changes["is not -> is"].split(";")[2] == "assert (d) is None or e in f"


def test_each_change_is_reported(world: World, check: ModuleType) -> None:
    recorded(world)
    sources, revision, _ = open_sources(world.knowledge, world.bridge, world.core, "v0.6.0")
    tried = 0
    for clean in verify_sources(world.knowledge, sources, revision).sightings:
        if clean.place.kind != "code":
            continue
        raw = sources[clean.place.repo].read(clean.path)
        for content, change in check.mutations(raw, clean.found.lines):
            source = check.Overlay(sources[clean.place.repo], clean.path, content)
            result = verify_sources(world.knowledge, {**sources, clean.place.repo: source}, revision)
            (found,) = (s for s in result.sightings if s.place == clean.place)
            assert found.state in ("changed", "missing"), change
            tried += 1
    assert tried >= 4
