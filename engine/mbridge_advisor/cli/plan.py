"""``plan``: the smoke run that proves a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .common import FORMATS, answers, emit, lang_option, output_option, request_options, to_request


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@request_options
@lang_option
@output_option(*FORMATS)
@answers
def plan(output: str, lang: str, file: Path | None, **options: Any) -> int:
    """Plan the smallest smoke run that proves that a grid initialises. Nothing is run.

    The grid is that of FILE, --recipe or --set; --gpus is the most that the run may take.

    Example: mbridge-advisor plan --model llama3-70b --gpu H100 --gpus 64 --set tp=4 --set pp=4 --set vpp=5
    """
    from ..advice.inputs import with_notes
    from ..advice.smoke import plan as run
    from .inputs import start_from

    start, notes = start_from(file, options)
    result = run(to_request(options, start), recipe=options.get("recipe"))
    emit(with_notes(result, notes), output, lang, "plan")
    return result.exit_code
