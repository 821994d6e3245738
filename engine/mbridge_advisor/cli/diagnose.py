"""``diagnose``: why a run failed, hangs or is slow."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..errors import RequestError
from .common import FORMATS, answers, emit, lang_option, output_option, request_options, to_request

LOGS = (".log", ".out", ".err", ".gz")


@click.command("diagnose")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--log", type=click.Path(path_type=Path, allow_dash=True), help="Log, plain or gzip; - reads it here.")
@click.option("--symptom", default="", help="What happens, in words, in English or Chinese.")
@request_options
@lang_option
@output_option(*FORMATS)
@answers
def diagnose(output: str, lang: str, files: tuple[Path, ...], log: Path | None, symptom: str, **options: Any) -> int:
    """Find out why a run failed, hangs or is slow, from a log, a symptom, a configuration, or all of them.

    FILE is a configuration (see `read`), or a log by its name (.log, .out, .err, .gz). Two configurations are compared:
    the first is the one before the trouble, or with which the checkpoint was saved.

    Example: mbridge-advisor diagnose --log train.log run_config.yaml --gpu H100
    """
    from ..diagnosis.diagnose import diagnose as run
    from .inputs import start_from, with_notes

    configs = [file for file in files if file.suffix.lower() not in LOGS]
    logs = [*([log] if log else []), *(file for file in files if file.suffix.lower() in LOGS)]
    if len(configs) > 2:
        raise RequestError("FILE", str(configs[2]), "is one configuration too many", "Give one, or before and after.")
    if len(logs) > 1:
        raise RequestError("--log", str(logs[1]), "is one log too many", "Join them: cat *.log | ... --log -")
    before = None
    if len(configs) == 2:
        before = to_request(_cluster(options), start_from(configs[0], options)[0])
    start, notes = start_from(configs[-1] if configs else None, options)
    given = start is not None or any(value for name, value in options.items() if name != "kind")
    source = sys.stdin.buffer if logs and str(logs[0]) == "-" else logs[0] if logs else None
    request = to_request(dict(options), start) if given else None
    result = with_notes(run(request, log=source, symptom=symptom, before=before), notes)
    emit(result, output, lang, "diagnosis")
    return result.exit_code


def _cluster(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without the settings: both configurations run on the same cluster, with their own settings."""
    return {name: () if name == "settings" else value for name, value in options.items()}
