"""What the commands share: options, the request that they make, errors and exit codes, and printing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from ..errors import AdvisorError, RequestError
from ..intake.kinds import KINDS

FORMATS: tuple[str, ...] = ("text", "json", "markdown")
Command = Callable[..., Any]


class Names(click.ParamType[str]):
    """A free word that the shell can complete from the knowledge base; checked later, with better messages."""

    name = "name"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        from ..knowledge import load

        try:
            base = load()
        except AdvisorError:
            return []
        pool: dict[str, list[str]] = {
            "model": list(base.models),
            "gpu": list(base.gpus),
            "bridge": list(base.revisions),
            "setting": [f"{t.field}=" for t in base.terms.values() if t.section in ("grid", "training", "environment")],
            "entry": [*base.rules, *base.terms, *base.models, *base.gpus, *base.revisions],
        }
        low = incomplete.lower()
        return [CompletionItem(word) for word in pool[self.kind] if word.lower().startswith(low)]


def answers(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn errors into one clear message and exit code 2, and the return value into the exit code."""

    @wraps(function)
    def run(**options: Any) -> None:
        context = click.get_current_context(silent=True)
        if context is not None and context.invoked_subcommand:
            return  # a group that does something by itself, too
        try:
            code = function(**options)
        except AdvisorError as error:
            if options.get("output") == "json":
                click.echo(json.dumps(error.to_dict(), ensure_ascii=False, indent=2))
            click.secho(f"error: {error}", fg="red", err=True)
            sys.exit(2)
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(141)
        sys.exit(code or 0)

    return run


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lang_option(function: Command) -> Command:
    return click.option("--lang", type=click.Choice(["en", "zh"]), default="en", help="Language of texts.")(function)


def output_option(*formats: str) -> Callable[[Command], Command]:
    choice = click.Choice(formats)
    return click.option("--format", "output", type=choice, default=formats[0], help="Form of the answer.")


def request_options(function: Command) -> Command:
    options = [
        click.option("--model", type=Names("model"), help="Catalogue name, or path of a Hugging Face config.json."),
        click.option("--recipe", help="Start from a recipe of Megatron Bridge, by its name at the release."),
        click.option("--kind", type=click.Choice(KINDS), help="What the file is, where its content doesn't tell."),
        click.option("--gpu", type=Names("gpu"), help="GPU system, e.g. H100, B200, GB200."),
        click.option("--gpus", help="Number of GPUs."),
        click.option("--gpus-per-node", help="GPUs of one node, where it isn't the system's usual number."),
        click.option("--interconnect", help="Network between NVLink domains."),
        click.option("--seq-length", help="Sequence length in tokens."),
        click.option("--global-batch-size", help="Sequences of one optimizer step."),
        click.option("--micro-batch-size", help="Sequences of one forward pass."),
        click.option("--task", help="pretrain, sft or lora."),
        click.option("--precision", help="bf16, fp16, fp8_cs, fp8_mx, fp8_delayed, fp8_sc, nvfp4."),
        click.option("--bridge", type=Names("bridge"), help="Megatron Bridge release; the newest known by default."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            type=Names("setting"),
            metavar="NAME=VALUE",
            help="Any setting by short name or Bridge field name; may be repeated. `null` means unset.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def to_request(options: dict[str, Any], start: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options (and an already read file) as a request mapping."""
    from ..intake.request import parse_pair, parse_word
    from ..knowledge import load

    request: dict[str, Any] = start or {}
    for name, section in (
        ("gpu", "cluster"),
        ("gpus", "cluster"),
        ("gpus_per_node", "cluster"),
        ("interconnect", "cluster"),
        ("seq_length", "training"),
        ("global_batch_size", "training"),
        ("micro_batch_size", "training"),
        ("task", "training"),
        ("precision", "training"),
    ):
        word = options.get(name)
        if word is not None:
            value = word if name in ("gpu", "interconnect", "task", "precision") else parse_word(word)
            request.setdefault(section, {})[name] = value
    for name in ("model", "bridge"):
        if options.get(name) is not None:
            request[name] = options[name]
    if not options.get("settings"):
        return request
    base = load()
    for text in options["settings"]:
        name, value = parse_pair(text)
        term = base.by_field.get(name)
        section = term.section if term is not None and term.section != "derived" else "grid"
        if section == "model":
            current = request.get("model")
            if isinstance(current, str) and current.endswith(".json"):
                raise RequestError(f"--set {name}", value, "changes a config.json", "Edit the file instead.")
            dims = {"name": current} if isinstance(current, str) else dict(current or {})
            request["model"] = {**dims, term.field if term else name: value}
            continue
        part = request.setdefault(section, {})
        if term is not None:
            for spelling in (term.name, term.field, *term.aliases):
                part.pop(spelling, None)
        part[term.field if term else name] = value
    return request


@contextmanager
def progress_bar(output: str) -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error, only for people at a terminal, and only once the work has taken half a second."""
    if output != "text" or not sys.stderr.isatty():
        yield lambda stage, share: None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    begun = time.monotonic()
    bar = Progress(TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task("search", total=1.0)

    def report(stage: str, share: float) -> None:
        if not bar.live.is_started and time.monotonic() - begun > 0.5:
            bar.start()
        bar.update(task, description=stage, completed=share)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def emit(result: Any, output: str, lang: str, printer: str) -> None:
    if output == "json":
        click.echo(json.dumps(result.to_dict(lang), ensure_ascii=False, indent=2))
        return
    if output == "markdown":
        from ..advice.render import markdown

        click.echo(getattr(markdown, printer)(result, lang))
        return
    from rich.console import Console

    from ..advice.render import text

    width = None if sys.stdout.isatty() else 140
    getattr(text, f"print_{printer}")(result, Console(width=width), lang)


def print_table(rows: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    if output == "markdown":
        from ..advice.render.markdown import table

        click.echo(table(rows))
        return
    if not rows:
        click.echo("nothing found", err=True)
        return
    from rich.console import Console

    from ..advice.render.text import print_rows

    print_rows(rows, Console(width=None if sys.stdout.isatty() else 140))
