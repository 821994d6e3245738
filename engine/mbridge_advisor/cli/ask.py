"""``advise`` and ``estimate``: which grid, and what one costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .common import FORMATS, answers, emit, lang_option, output_option, progress_bar, request_options, to_request


@click.command()
@request_options
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help="Start from a config, launch script or recipe's request: all but the grid, which is looked for.",
)
@click.option("--top", type=click.IntRange(1, 50), default=5, help="How many grids.")
@click.option("--plan", is_flag=True, help="Print the smoke run that would prove the best grid, instead.")
@lang_option
@output_option(*FORMATS)
@answers
def advise(output: str, lang: str, top: int, file: Path | None, plan: bool, **options: Any) -> int:
    """Find the best grids for a model on a cluster, with every reason.

    Example: mbridge-advisor advise --model deepseek-v3 --gpu H100 --gpus 256 --seq-length 4096
    """
    from ..advice.advise import advise as run
    from ..advice.inputs import unpinned, with_notes
    from .inputs import start_from

    start, notes = start_from(file, options)
    if start is not None:
        start, more = unpinned(start)
        notes = (*notes, *more)
    request = to_request(options, start)
    with progress_bar(output) as progress:
        result = with_notes(run(request, top=1 if plan else top, progress=progress), notes)
    if plan and result.grids:
        from ..advice.smoke import plan_of

        emit(plan_of(request, result.grids[0], recipe=options.get("recipe")), output, lang, "plan")
        return 0
    emit(result, output, lang, "advice")
    return result.exit_code


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@request_options
@lang_option
@output_option(*FORMATS)
@answers
def estimate(output: str, lang: str, file: Path | None, **options: Any) -> int:
    """Memory and time of one grid.

    Example: mbridge-advisor estimate --model llama3-70b --gpu H100 --gpus 64 --set tp=4 --set pp=4 --set vpp=5
    """
    from ..advice.estimate import estimate as run
    from ..advice.inputs import with_notes
    from .inputs import start_from

    start, notes = start_from(file, options)
    result = with_notes(run(to_request(options, start)), notes)
    emit(result, output, lang, "estimate")
    return result.exit_code
