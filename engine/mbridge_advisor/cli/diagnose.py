"""``diagnose``: why a run failed, hangs or is slow."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import RequestError
from .common import FORMATS, answers, emit, lang_option, output_option, request_options, to_request

if TYPE_CHECKING:
    from ..diagnosis.stream import Log

MAX_PLAN = 1_000_000  # bytes


@click.command("diagnose")
@click.argument("logs", nargs=-1, type=click.Path(path_type=Path, allow_dash=True), metavar="[LOG]...")
@click.option("--symptom", default="", help="What happens, in words, in English or Chinese.")
@click.option("--config", type=click.Path(path_type=Path), help="The run's configuration; any file that `read` takes.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="The configuration before the trouble, or with which the checkpoint was saved: what changed, what it costs.",
)
@click.option(
    "--plan", type=click.Path(path_type=Path), help="Smoke plan (`plan --format json`) of which LOG is the run."
)
@request_options
@lang_option
@output_option(*FORMATS)
@answers
def diagnose(
    output: str,
    lang: str,
    logs: tuple[Path, ...],
    symptom: str,
    config: Path | None,
    against: Path | None,
    plan: Path | None,
    **options: Any,
) -> int:
    """Find out why a run failed, hangs or is slow, from logs, a symptom, a configuration, or all of them.

    LOG is plain or gzip, of any size; - reads it from standard input. Give one log of all ranks, or one a rank.

    Exit code: 1 where a cause is confirmed or a success criterion of the plan doesn't hold, 0 where none is, 2 for bad
    input.

    Example: mbridge-advisor diagnose train.log --config run_config.yaml --gpu H100
    """
    from ..advice.inputs import with_notes
    from ..diagnosis.diagnose import diagnose as run
    from .inputs import start_from

    start, notes = start_from(config, options)
    before = None if against is None else to_request(_cluster(options), start_from(against, options)[0])
    given = start is not None or any(value for name, value in options.items() if name != "kind")
    result = run(
        to_request(dict(options), start) if given else None,
        log=_logs(logs),
        symptom=symptom,
        before=before,
        plan=None if plan is None else _plan(plan),
    )
    emit(with_notes(result, notes), output, lang, "diagnosis")
    return result.exit_code


def _logs(paths: tuple[Path, ...]) -> Log | Mapping[str, Log] | None:
    """One log by itself, several by name; standard input for ``-``."""
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise RequestError("LOG", str(twice), "is given twice", "Give each log once.")
    logs: dict[str, Log] = {str(path): sys.stdin.buffer if str(path) == "-" else path for path in paths}
    return next(iter(logs.values())) if len(logs) == 1 else logs or None


def _plan(path: Path) -> Mapping[str, Any]:
    try:
        with path.expanduser().open("rb") as stream:
            raw = stream.read(MAX_PLAN + 1)
        plan = json.loads(raw) if len(raw) <= MAX_PLAN else None
    except OSError as problem:
        raise RequestError("--plan", str(path), f"can't be read ({problem.strerror})", "Check the path.") from None
    except (ValueError, RecursionError):
        plan = None
    if not isinstance(plan, dict):
        raise RequestError("--plan", str(path), "isn't a plan", "Give the output of `plan --format json`.")
    return plan


def _cluster(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without the settings: both configurations run on the same cluster, with their own settings."""
    return {name: () if name == "settings" else value for name, value in options.items()}
