"""``validate``: our figures against measured and published rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import FORMATS, answers, output_option, progress_bar

if TYPE_CHECKING:
    from ..validation.page import Table
    from ..validation.run import Group


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder with other rows: measured_memory.jsonl, measured_memory_large.jsonl, published_throughput.jsonl and "
    "recipe_grids.jsonl, as far as there are.",
)
@click.option("--by", type=click.Choice(["model", "gpu", "precision", "release"]), help="Scores by this group, too.")
@click.option(
    "--choice",
    type=click.Choice(["none", "published", "recipes", "all"]),
    default="published",
    show_default=True,
    help="Scenarios on which the choice of grids is scored: published throughput, performance recipes, or both.",
)
@click.option("--write", is_flag=True, help="Keep figures, page and plots in the checkout (docs/validation).")
@output_option(*FORMATS)
@answers
def validate(data: Path | None, by: Group | None, choice: str, write: bool, output: str) -> None:
    """Signed errors of our figures on every measured and published row, and how often we choose as the vendor did.

    Example: mbridge-advisor validate --by gpu
    """
    from ..knowledge import load
    from ..validation import page
    from ..validation.choice import SOURCES, Source
    from ..validation.run import Rows
    from ..validation.run import validate as run

    base = load()
    sources: tuple[Source, ...] = tuple(s for s in SOURCES if choice in (s, "all"))
    rows = Rows.read(data) if data is not None else None
    with progress_bar(output) as progress:
        found = run(base, rows, sources, progress)
    if write:
        for path in page.write(found, Path(base.root)):
            click.echo(str(path), err=True)
    if output == "json":
        click.echo(json.dumps(found.to_dict(by), ensure_ascii=False, indent=2))
    elif output == "markdown":
        click.echo(page.markdown(found, by), nl=False)
    else:
        _print(page.tables(found, by))


def _print(tables: Sequence[Table]) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console(width=None if sys.stdout.isatty() else 140)
    for table in tables:
        console.print(f"\n[bold]{table.title}[/bold]", highlight=False)
        if table.note:
            console.print(table.note, highlight=False)
        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for n, name in enumerate(table.head):
            grid.add_column(name, justify="left" if n in (0, len(table.head) - 1) else "right", overflow="fold")
        for line in table.lines:
            grid.add_row(*line)
        console.print(grid)
