"""``export``: the knowledge base in forms that other programs take."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from ..knowledge.model import Lang
from .common import Names, answers, lang_option


@click.group()
def export() -> None:
    """Write the knowledge base in a form that other programs take."""


@export.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--bridge", type=Names("bridge"), help="Release to lock the skill to; the newest known by default.")
@lang_option
@answers
def skill(folder: Path, bridge: str | None, lang: str) -> None:
    """Write an agent skill into DIR, a folder of skills (see https://agentskills.io).

    An earlier export of it is replaced; anything else there is left alone, and refused.

    Example: mbridge-advisor export skill --lang en .agents/skills
    """
    from ..export.skill import export_skill

    click.echo(export_skill(folder, lang=cast(Lang, lang), bridge=bridge))
