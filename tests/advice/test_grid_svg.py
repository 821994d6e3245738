"""The groups partition the ranks, and are those of Megatron Core's documentation of its order."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from mbridge_advisor.advice.grid_svg import grid_svg, rank_groups
from mbridge_advisor.cli import cli
from mbridge_advisor.errors import RequestError

SIZE = st.sampled_from([1, 2, 3, 4])


@given(SIZE, SIZE, SIZE, SIZE, SIZE, st.integers(1, 3))
def test_groups_of_a_kind_hold_each_rank_once(tp: int, pp: int, cp: int, ep: int, etp: int, more: int) -> None:
    world = pp * tp * cp * ep * etp * more
    sizes = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp}
    groups = rank_groups(sizes, world)
    dp, edp = world // (tp * pp * cp), world // (etp * ep * pp)
    lengths = {"TP": tp, "CP": cp, "DP": dp, "PP": pp, "ETP": etp, "EP": ep, "EDP": edp}
    assert groups.keys() == lengths.keys()
    for name, found in groups.items():
        assert sorted(rank for group in found for rank in group) == list(range(world))
        assert {len(group) for group in found} == {lengths[name]}
    # A group of one kind and a group of another of the same grid share at most one rank.
    for grid in (("TP", "CP", "DP", "PP"), ("ETP", "EP", "EDP", "PP")):
        for a in grid:
            for b in grid:
                if a < b:
                    assert all(len({*x} & {*y}) <= 1 for x in groups[a][:4] for y in groups[b])


def test_order_is_that_of_megatron_core() -> None:
    groups = rank_groups({"tp": 2, "pp": 2, "cp": 2, "ep": 4, "etp": 1}, 16)
    assert groups["TP"][:2] == [(0, 1), (2, 3)]
    assert groups["CP"][:2] == [(0, 2), (1, 3)]
    assert groups["DP"][:2] == [(0, 4), (1, 5)]
    assert groups["PP"][:2] == [(0, 8), (1, 9)]
    assert groups["EP"][:2] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert groups["EDP"][:2] == [(0, 4), (1, 5)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_drawing_shows_every_rank_once_in_each_grid(lang: str) -> None:
    root = ET.fromstring(grid_svg({"tp": 2, "pp": 2, "ep": 4}, 16, lang))
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [texts.count(str(rank)) for rank in range(16)] == [2] * 16


@pytest.mark.parametrize(
    ("sizes", "world"), [({"tp": 3}, 8), ({"tp": 0}, 8), ({"dp": 2}, 8), ({"tp": 1}, 0), ({"tp": 1}, 1024)]
)
def test_impossible_grids_are_refused(sizes: dict[str, int], world: int) -> None:
    with pytest.raises(RequestError):
        grid_svg(sizes, world)


def test_command(tmp_path: Path) -> None:
    runner = CliRunner()
    file = tmp_path / "grid.svg"
    done = runner.invoke(cli, ["explain", "--grid", "tp=2,pp=2,ep=2", "--gpus", "8", "--svg", str(file)])
    assert done.exit_code == 0, done.output
    assert "[0 1]" in done.output
    ET.parse(file)
    for wrong in (["--grid", "tp=two", "--gpus", "8"], ["--grid", "tp=2"], []):
        assert runner.invoke(cli, ["explain", *wrong]).exit_code == 2
