"""``validate``: scores, other data, the kept figures, and the page."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.errors import RequestError, WriteError
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.load import load_left_out
from mbridge_advisor.validation import page, peers, plot, report, throughput
from mbridge_advisor.validation.run import Rows, Validation, errors, scores, validate

BASE = load()
FOUND: Validation = validate(BASE, sources=())
PARTS = {part.key: part for part in FOUND.parts}


def row(name: str, predicted: float, measured: float, model: str = "m") -> report.Comparison:
    return report.Comparison(name, {"model": model}, predicted, measured, predicted, predicted)


def test_scores_of_known_errors() -> None:
    s = report.summarise([row("a", 109, 100), row("b", 80, 100), row("c", 101, 100), row("d", 100, 100)])
    assert s.count == 4
    assert s.median == pytest.approx(0.05)
    assert s.mean_absolute == pytest.approx(0.075)
    assert s.bias == pytest.approx(-0.025)
    assert s.worst == ("b", pytest.approx(-0.2))
    assert s.within == {5: 0.5, 10: 0.75, 20: 1.0}


def test_every_part_has_rows_and_the_groups_cover_them() -> None:
    for part in FOUND.parts:
        assert part.comparisons, part.key
        for group in ("model", "gpu", "precision", "release"):
            assert sum(len(rows) for rows in report.by(part.comparisons, group).values()) == len(part.comparisons)
        names = [c.row for c in part.comparisons]
        assert len(set(names)) == len(names)


def test_a_model_left_out_is_predicted_by_other_constants() -> None:
    left_out = load_left_out(BASE)
    assert {c.model for c in throughput.published_cases(BASE)} <= left_out.keys()
    assert all(constants.keys() <= BASE.calibration.keys() for constants in left_out.values())
    fitted, held = (errors(FOUND)[key] for key in ("throughput", "left_out"))
    assert fitted.keys() == held.keys()
    assert fitted != held
    assert scores(PARTS["left_out"].comparisons)["median"] > scores(PARTS["throughput"].comparisons)["median"]


def test_rows_that_do_not_fit_are_named_with_what_is_known_of_them() -> None:
    found = FOUND.feasible["pretraining"]
    assert found.fits + found.tight + len(found.refused) == len(PARTS["throughput"].comparisons)
    table = next(t for t in page.tables(FOUND) if t.title == "Published grids")
    assert all(f"{row} ({slip})" in table.note for row, slip in found.refused.items())


def test_ours_is_nearer_than_the_other_formulas() -> None:
    compared = [(part, name, rows) for part in FOUND.parts for name, rows in part.peers.items()]
    assert len({name for _, name, _ in compared}) == len(peers.MEMORY) + len(peers.THROUGHPUT)
    for part, name, rows in compared:
        assert report.summarise(part.comparisons).median < report.summarise(rows).median, (part.key, name)


def test_the_estimators_arithmetic_on_a_plain_model() -> None:
    """By hand: Llama 3 8B on TP 1, PP 1, optimizer sharded over 8 ranks."""
    case = next(c for c in throughput.published_cases(BASE) if c.model == "llama3_8b" and c.gpu.name == "B200")
    a, g = case.architecture, case.grids
    assert (int(g.tp[0]), int(g.pp[0]), int(g.dp[0])) == (1, 1, 8)
    h, f, v, n = 4096, 14336, 128256, 32
    attention = 2 * h * (1 + 8 / 32) * 128 * 32
    state = (n * (attention + 4 * h + 3 * h * f) + 2 * h + 2 * h * v) * (6 + 12 / 8)
    tokens = 8192 * int(g.mbs[0])
    activation = n * tokens * h * (18 + 4 * f / h) + tokens * (8 + h) + 4 * tokens * (h + v)
    assert a.num_layers == n
    assert peers.bridge_estimator(case) == pytest.approx(state + activation)  # type: ignore[arg-type]


def test_other_data(tmp_path: Path) -> None:
    kept = Rows.of(BASE)
    one = dict(next(r for r in kept.published if r["model_key"] == "llama3_8b"), tokens_per_sec_per_gpu=1000)
    (tmp_path / "published_throughput.jsonl").write_text(json.dumps(one) + "\n")
    found = {part.key: part for part in validate(BASE, Rows.read(tmp_path), sources=()).parts}
    (only,) = found["throughput"].comparisons
    assert only.measured == 1000
    assert only.error > 1
    assert not found["peak"].comparisons
    result = CliRunner().invoke(cli, ["validate", "--data", str(tmp_path), "--choice", "none", "--format", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["parts"]["throughput"]["rows"] == 1


@pytest.mark.parametrize("content", [None, "no json\n"])
def test_data_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "measured_memory.jsonl").write_text(content)
    with pytest.raises(RequestError):
        Rows.read(tmp_path)
    result = CliRunner().invoke(cli, ["validate", "--data", str(tmp_path), "--choice", "none"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("output", ["text", "markdown"])
def test_tables_name_every_member(output: str) -> None:
    words = ["validate", "--choice", "none", "--by", "gpu", "--format", output]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    for name in report.by(PARTS["throughput"].comparisons, "gpu"):
        assert name in result.output


def test_a_plot_holds_every_point() -> None:
    rows = [row(str(i), i, i * 1.1, f"m{i % 3}") for i in range(1, 30)]
    tree = ET.fromstring(plot.scatter("a < b & c", "GB", 1.0, rows, "model"))
    circles = [e for e in tree.iter() if e.tag.endswith("circle")]
    assert len(circles) == len(rows) + 3  # and one a name
    assert {e.text for e in tree.iter() if e.tag.endswith("text")} >= {"m0", "m1", "m2", "predicted, GB"}


def test_what_write_keeps(tmp_path: Path) -> None:
    with pytest.raises(WriteError):
        page.write(FOUND, tmp_path)
    (tmp_path / "docs").mkdir()
    written = {path.relative_to(tmp_path).as_posix() for path in page.write(FOUND, tmp_path)}
    figures: dict[str, Any] = json.loads((tmp_path / page.FIGURES).read_text())
    assert figures["errors"] == errors(FOUND)
    assert figures["groups"].keys() == page.SHOWN.keys()
    assert figures["groups"]["peak"]["model"].keys() == report.by(PARTS["peak"].comparisons, "model").keys()
    text = (tmp_path / page.PAGE).read_text()
    shown = re.findall(r"\]\((validation/\w+\.svg)\)", text)
    assert len(shown) == len(page.PLOTS)
    assert {f"docs/{name}" for name in shown} <= written


def test_the_kept_page_was_made_with_the_choice() -> None:
    kept = json.loads((Path(BASE.root) / page.FIGURES).read_text())
    assert re.fullmatch("[0-9a-f]{40}", kept["made_by"]["commit"])
    assert kept["choice"].keys() == {"published", "recipes"}
    assert "Predicted against measured" in (Path(BASE.root) / page.PAGE).read_text()
