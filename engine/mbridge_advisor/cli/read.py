"""``read``: how an input is understood."""

from __future__ import annotations

import json

import click

from ..intake.kinds import KINDS
from .common import Names, answers, lang_option, output_option


@click.command("read")
@click.argument("source")
@click.option("--kind", type=click.Choice(KINDS), help="What SOURCE is, where its content doesn't tell.")
@click.option("--bridge", type=Names("bridge"), help="Megatron Bridge release to ask about.")
@lang_option
@output_option("text", "json")
@answers
def read(source: str, kind: str | None, bridge: str | None, lang: str, output: str) -> None:
    """Show how a config, launch script or recipe is understood: the request, and a note on every field of SOURCE.

    Example: mbridge-advisor read train.sh
    """
    from ..intake.read import read_input

    request, notes = read_input(source, kind, bridge=bridge)
    if output == "json":
        data = {"request": request, "notes": [note.to_dict(lang) for note in notes]}
        click.echo(json.dumps(data, ensure_ascii=False, indent=2))
        return
    import yaml

    click.echo(yaml.safe_dump(request, sort_keys=False, allow_unicode=True).rstrip())
    click.echo()
    for note in sorted(notes, key=lambda n: not n.matters):
        click.secho(note.text(lang), fg="yellow" if note.matters else None)
