"""The recipe and throughput facts equal their data and fit the other facts; the broken recipes are known."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "knowledge" / "facts"
DATA = ROOT.parent / "shared" / "data"
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
UNKNOWN_HARDWARE = {"R100"}  # one-GPU development boards of Rubin: Bridge has presets, no public figures exist


@cache
def importer() -> ModuleType:
    """The maintainers' script as a module."""
    spec = importlib.util.spec_from_file_location("import_recipes", ROOT / "tools" / "import_recipes.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader)


@cache
def recipes() -> dict[str, list[dict[str, Any]]]:
    """Rows by model key."""
    return {file["model_key"]: file["rows"] for file in map(load, sorted((FACTS / "recipes").glob("*.yaml")))}


def rows() -> Iterator[dict[str, Any]]:
    for of_model in recipes().values():
        yield from of_model


@cache
def throughput() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load(FACTS / "measurements" / "published_throughput.yaml")["rows"]
    return found


@cache
def architectures() -> dict[str, dict[str, Any]]:
    """Catalogued dimensions by model key."""
    models = map(load, sorted((FACTS / "models").glob("*.yaml")))
    return {key: model["architecture"] for model in models for key in model.get("recipe_keys", [])}


def gpu_names() -> set[str]:
    return {load(path)["name"] for path in (FACTS / "gpus").glob("*.yaml")}


@pytest.mark.skipif(not (DATA / "recipe_grids.jsonl").exists(), reason="the data folder isn't beside this checkout")
def test_facts_equal_a_fresh_import() -> None:
    fresh = importer().facts(DATA)
    stored = {path.relative_to(FACTS).as_posix() for path in (FACTS / "recipes").glob("*.yaml")}
    assert stored == {name for name in fresh if name.startswith("recipes/")}
    for name, text in fresh.items():
        assert (FACTS / name).read_text(encoding="utf-8") == text, f"{name}: run tools/import_recipes.py"


@pytest.mark.skipif(not (DATA / "recipe_grids.jsonl").exists(), reason="the data folder isn't beside this checkout")
def test_dropped_defaults_can_be_restored() -> None:
    tool = importer()
    stored = {row["id"]: row for row in rows()}
    nested = {"recompute", "comm_overlap", "set_state", "arch_set", "cuda_graph_scope", *tool.NULL_IS_FALSE}
    for raw in tool.read(DATA / "recipe_grids.jsonl"):
        row = stored.pop(raw["id"])
        for name, default in tool.RECIPE_COLUMNS.items():
            if name not in nested:
                assert row.get(name, default) == raw[name], (raw["id"], name)
        states = {name: row.get("set_state", {}).get(name, "set") for name in raw["set_state"]}
        assert states == raw["set_state"], raw["id"]
    assert not stored


def test_import_names_a_missing_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert importer().main([str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "recipe_grids.jsonl: not found" in capsys.readouterr().err


def test_hardware_is_known() -> None:
    known = gpu_names()
    assert {row["hardware"] for row in rows() if "hardware" in row} - known == UNKNOWN_HARDWARE
    assert {row["system"] for row in throughput()} <= known


def test_every_model_key_is_catalogued_or_listed() -> None:
    catalogued = set(architectures())
    reasons: dict[str, list[str]] = load(Path(__file__).with_name("uncatalogued.yaml"))
    listed = [key for keys in reasons.values() for key in keys]
    keys = set(recipes()) | {row["model_key"] for row in throughput()}
    assert len(listed) == len(set(listed))
    assert keys - catalogued - set(listed) == set(), "neither in the catalogue nor in uncatalogued.yaml"
    assert catalogued & set(listed) == set(), "in the catalogue: remove from uncatalogued.yaml"
    assert set(listed) - keys == set(), "no recipe has this key"


def test_ids_are_unique() -> None:
    ids = [row["id"] for row in rows()] + [row["id"] for row in throughput()]
    assert len(ids) == len(set(ids))


def layout_entries(text: str) -> list[str]:
    """Entries of a pipeline layout such as ``Et*4|(t*4|)*14tmL``, every layer written out."""

    def repeat(match: re.Match[str]) -> str:
        return (match[1] or match[2]) * int(match[3])

    while "*" in text:
        text = re.sub(r"(?:\(([^()*]*)\)|([A-Za-z]))\*(\d+)", repeat, text)
    return text.split("|")


def broken_rules(row: dict[str, Any], model: dict[str, Any]) -> set[str]:
    """What a recipe breaks, by plain arithmetic on the row: an oracle that shares nothing with the rules."""
    num_layers, heads = model.get("num_layers"), model.get("num_attention_heads", row["tp"])
    groups = model.get("num_query_groups", heads)
    tp, pp, cp, ep = row["tp"], row["pp"], row["cp"], row["ep"]
    vpp, world, broken = row.get("vpp"), row.get("num_gpus"), set()
    etp = row.get("etp_effective", 1 if ep == 1 else None)
    if world:
        if world % (tp * pp * cp):
            broken.add("R-WORLD-DENSE")
        elif row["gbs"] % (row["mbs"] * (world // (tp * pp * cp))):
            broken.add("R-GBS-DIV")
        if etp and ep > 1 and world % (pp * ep * etp):
            broken.add("R-WORLD-EXPERT")
    layout = row.get("pipeline_layout")
    if layout:
        entries = layout_entries(layout)
        if len(entries) % pp or (vpp and len(entries) != pp * vpp):
            broken.add("R-LAYOUT-SYNC")
        if num_layers and "".join(entries).count("t") != num_layers:
            broken.add("R-LAYOUT-SYNC")
    elif num_layers and not any(f"num_layers_in_{end}_pipeline_stage" in row for end in ("first", "last")):
        if num_layers % pp:
            broken.add("R-PP-LAYERS")
        elif num_layers // pp % (vpp or 1):
            broken.add("R-VPP-LAYERS")
    if heads % tp:
        broken.add("R-TP-HEADS")
    if groups % tp and (tp % groups or row["tag"] == "v0.2.0"):
        broken.add("R-TP-KV")
    if row.get("num_experts", ep) % ep:
        broken.add("R-EP-EXPERTS")
    if cp > 1 and row["seq_length"] % (2 * cp):
        broken.add("R-SEQ-DIV")
    return broken


def test_layout_entries() -> None:
    assert layout_entries("Et|tt|tmL") == ["Et", "tt", "tmL"]
    assert layout_entries("Et*2|(t*2|)*2tmL") == ["Ett", "tt", "tt", "tmL"]


def test_exactly_the_listed_recipes_are_broken() -> None:
    listed = {row["id"]: row for row in load(ROOT / "tests" / "data" / "recipe_exceptions.yaml")["exceptions"]}
    found = {}
    for key, of_model in recipes().items():
        for row in of_model:
            if "tp" not in row:  # diffusion models without a model provider
                continue
            needs = listed.get(row["id"], {}).get("needs", {})
            assert not (needs and key in architectures()), f"{row['id']}: the catalogue has what it needs"
            broken = broken_rules(row, {**architectures().get(key, {}), **row.get("arch_set", {}), **needs})
            if broken:
                found[row["id"]] = broken
    arithmetic = {key: row for key, row in listed.items() if "R-DISPATCHER" not in row["rules"]}
    assert found == {key: set(row["rules"]) for key, row in arithmetic.items()}
    for row in listed.values():
        assert re.search(r"\.py:\d+$", row["reason"]), row["id"]


def test_gpu_facts_are_plausible() -> None:
    """Peaks halve from one precision to the next wider one, sizes are in bytes, every figure has its source."""
    for path in (FACTS / "gpus").glob("*.yaml"):
        gpu = load(path)
        name, peak = gpu["name"], gpu["peak_flops"]
        assert 30 * 2**30 < gpu["memory_bytes"] < 300 * 2**30, name
        assert 5e11 < gpu["memory_bandwidth"] < 3e13, name
        assert gpu["nvlink_domain"] % gpu["gpus_per_node"] == 0 or gpu["nvlink_domain"] == 1, name
        assert gpu["network_bandwidth"] < gpu["memory_bandwidth"], name
        if "bf16" in peak:
            assert peak["bf16"] == peak["fp16"], name
        if "fp8" in peak:
            assert peak["fp8"] >= 1.99 * peak["bf16"], name
        if "fp4" in peak:
            assert peak["fp4"] >= 1.99 * peak["fp8"], name
        if "tf32" in peak:
            assert math.isclose(peak["tf32"], peak["bf16"] / 2, rel_tol=0.02), name
        figures = {key for key, value in gpu.items() if isinstance(value, int | float | dict) and key != "note"}
        assert figures - {"citations"} == set(gpu["citations"]), name


def test_revisions_are_in_order() -> None:
    revisions = load(ROOT / "knowledge" / "revisions.yaml")["revisions"]
    assert [r["tag"] for r in revisions] == ["v0.2.0", "v0.2.2", "v0.3.1", "v0.4.2", "v0.5.1", "v0.6.0"]
    assert [r["released"] for r in revisions] == sorted(r["released"] for r in revisions)
    assert {row["tag"] for row in rows()} <= {r["tag"] for r in revisions}
    for revision in revisions:
        assert re.fullmatch("[0-9a-f]{40}", revision["commit"])
        assert re.fullmatch("[0-9a-f]{40}", revision["core_commit"])
        assert all(value is None or isinstance(value, str) for value in revision["environment"].values())
