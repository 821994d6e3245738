"""``check`` of any number of files, in every form."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..advice.check import check
from ..advice.inputs import with_notes
from ..advice.results import Report
from ..errors import AdvisorError, RequestError
from .common import FORMATS, answers, emit, lang_option, output_option, request_options, to_request
from .inputs import start_from


def check_files(files: Sequence[Path], options: Mapping[str, Any], output: str, lang: str) -> int:
    """Check each file, or the options alone, and print; 1 where any has an error, 2 where any can't be read.

    Raises:
        RequestError: nothing to check, or the only input can't be understood.
    """
    if not files:
        start, notes = start_from(None, options)
        if start is None and not any(options.values()):
            raise RequestError("check", None, "was given nothing to check", "Give a file or --set name=value.")
        return _print([(None, with_notes(check(to_request(dict(options), start)), notes), notes)], [], output, lang)
    done: list[tuple[Path | None, Report, Any]] = []
    failed: list[tuple[Path, AdvisorError]] = []
    for file in files:
        try:
            start, notes = start_from(file, options)
            report = check(to_request(dict(options), copy.deepcopy(start)))
        except AdvisorError as problem:
            if len(files) == 1 and output not in ("sarif", "github"):
                raise
            failed.append((file, problem))
            continue
        done.append((file, with_notes(report, notes), notes))
    return _print(done, failed, output, lang)


def _print(
    done: list[tuple[Path | None, Report, Any]], failed: list[tuple[Path, AdvisorError]], output: str, lang: str
) -> int:
    if output in ("sarif", "github"):
        from ..advice.render.annotations import Checked, github, sarif

        checked = [Checked.of(file, report, notes) for file, report, notes in done]
        problems = [(str(file), problem) for file, problem in failed]
        if output == "sarif":
            click.echo(json.dumps(sarif(checked, problems, lang), ensure_ascii=False, indent=2))
        else:
            for line in github(checked, problems, lang):
                click.echo(line)
    elif len(done) + len(failed) > 1:
        if output == "json":
            rows = [{"file": str(file), **report.to_dict(lang)} for file, report, _ in done]
            rows += [{"file": str(file), **problem.to_dict()} for file, problem in failed]
            click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        else:
            for file, report, _ in done:
                click.secho(f"{file}", bold=True)
                emit(report, output, lang, "report")
    else:
        for _, report, _ in done:
            emit(report, output, lang, "report")
    if output not in ("sarif", "github"):
        for file, problem in failed:
            click.secho(f"{file}: error: {problem}", fg="red", err=True)
    if failed:
        return 2
    return max((report.exit_code for _, report, _ in done), default=0)


@click.command("check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@request_options
@lang_option
@output_option(*FORMATS, "sarif", "github")
@answers
def check_command(output: str, lang: str, files: tuple[Path, ...], **options: Any) -> int:
    """Judge configurations: FILEs (run_config.yaml, launch scripts, ... see `read`), --set pairs, or both.

    Example: mbridge-advisor check --set tp=2 --set pp=2 --set ep=8 --set etp=1 --gpus 16
    """
    return check_files(files, options, output, lang)
