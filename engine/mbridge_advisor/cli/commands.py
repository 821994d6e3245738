"""All commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ..errors import AdvisorError, RequestError
from ..intake.kinds import KINDS

FORMATS: tuple[str, ...] = ("text", "json", "markdown")
Command = Callable[..., Any]


class _Names(click.ParamType[str]):
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


def _answers(function: Callable[..., int | None]) -> Callable[..., None]:
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


def _lang(function: Command) -> Command:
    return click.option("--lang", type=click.Choice(["en", "zh"]), default="en", help="Language of texts.")(function)


def _output(*formats: str) -> Callable[[Command], Command]:
    choice = click.Choice(formats)
    return click.option("--format", "output", type=choice, default=formats[0], help="Form of the answer.")


def _request_options(function: Command) -> Command:
    options = [
        click.option("--model", type=_Names("model"), help="Catalogue name, or path of a Hugging Face config.json."),
        click.option("--recipe", help="Start from a recipe of Megatron Bridge, by its name at the release."),
        click.option("--kind", type=click.Choice(KINDS), help="What the file is, where its content doesn't tell."),
        click.option("--gpu", type=_Names("gpu"), help="GPU system, e.g. H100, B200, GB200."),
        click.option("--gpus", help="Number of GPUs."),
        click.option("--gpus-per-node", help="GPUs of one node, where it isn't the system's usual number."),
        click.option("--interconnect", help="Network between NVLink domains."),
        click.option("--seq-length", help="Sequence length in tokens."),
        click.option("--global-batch-size", help="Sequences of one optimizer step."),
        click.option("--micro-batch-size", help="Sequences of one forward pass."),
        click.option("--task", help="pretrain, sft or lora."),
        click.option("--precision", help="bf16, fp16, fp8_cs, fp8_mx, fp8_delayed, fp8_sc, nvfp4."),
        click.option("--bridge", type=_Names("bridge"), help="Megatron Bridge release; the newest known by default."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            type=_Names("setting"),
            metavar="NAME=VALUE",
            help="Any setting by short name or Bridge field name; may be repeated. `null` means unset.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _request(options: dict[str, Any], start: dict[str, Any] | None = None) -> dict[str, Any]:
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
def _progress(output: str) -> Iterator[Callable[[str, float], None]]:
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


def _emit(result: Any, output: str, lang: str, printer: str) -> None:
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


def _rows(rows: list[dict[str, Any]], output: str) -> None:
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


def _version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from ..advice.common import package_version

        click.echo(f"mbridge-advisor {package_version()}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """Cited, machine-checked advice on parallelising a training run in NVIDIA Megatron Bridge.

    Nothing here launches a job, reaches the network or reads a credential.

    Exit codes: 0 fine, 1 the configuration has errors, 2 bad input, 3 no grid fits.
    """


@cli.command()
@_request_options
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help="Start from a config, launch script or recipe's request: all but the grid, which is looked for.",
)
@click.option("--top", type=click.IntRange(1, 50), default=5, help="How many grids.")
@click.option("--plan", is_flag=True, help="Print the smoke run that would prove the best grid, instead.")
@_lang
@_output(*FORMATS)
@_answers
def advise(output: str, lang: str, top: int, file: Path | None, plan: bool, **options: Any) -> int:
    """Find the best grids for a model on a cluster, with every reason.

    Example: mbridge-advisor advise --model deepseek-v3 --gpu H100 --gpus 256 --seq-length 4096
    """
    from ..advice.advise import advise as run
    from .inputs import start_from, unpinned, with_notes

    start, notes = start_from(file, options)
    if start is not None:
        start, more = unpinned(start)
        notes = (*notes, *more)
    request = _request(options, start)
    with _progress(output) as progress:
        result = with_notes(run(request, top=1 if plan else top, progress=progress), notes)
    if plan and result.grids:
        from ..advice.smoke import plan_of

        _emit(plan_of(request, result.grids[0], recipe=options.get("recipe")), output, lang, "plan")
        return 0
    _emit(result, output, lang, "advice")
    return result.exit_code


@cli.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@_request_options
@_lang
@_output(*FORMATS, "sarif", "github")
@_answers
def check(output: str, lang: str, files: tuple[Path, ...], **options: Any) -> int:
    """Judge configurations: FILEs (run_config.yaml, launch scripts, ... see `read`), --set pairs, or both.

    Example: mbridge-advisor check --set tp=2 --set pp=2 --set ep=8 --set etp=1 --gpus 16
    """
    from .check import check_files

    return check_files(files, options, output, lang)


@cli.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@_request_options
@_lang
@_output(*FORMATS)
@_answers
def estimate(output: str, lang: str, file: Path | None, **options: Any) -> int:
    """Memory and time of one grid.

    Example: mbridge-advisor estimate --model llama3-70b --gpu H100 --gpus 64 --set tp=4 --set pp=4 --set vpp=5
    """
    from ..advice.estimate import estimate as run
    from .inputs import start_from, with_notes

    start, notes = start_from(file, options)
    result = with_notes(run(_request(options, start)), notes)
    _emit(result, output, lang, "estimate")
    return result.exit_code


@cli.command()
@click.argument("name", type=_Names("entry"))
@click.option("--bridge", type=_Names("bridge"), help="Only the wording at this release.")
@_lang
@_output(*FORMATS)
@_answers
def explain(output: str, lang: str, name: str, bridge: str | None) -> None:
    """Explain a rule, quantity, term, model, GPU or release.

    Example: mbridge-advisor explain MB-WORLD-002
    """
    from ..advice.explain import explain as run

    _emit(run(name, bridge=bridge), output, lang, "explanation")


@cli.command()
@click.option("--kind", type=click.Choice(["constraint", "derivation", "sizing", "pitfall"]), help="Only this kind.")
@click.option("--topic", help="Only this topic, the middle of the id, e.g. WORLD.")
@click.option("--severity", type=click.Choice(["error", "override", "warning", "advice"]), help="Only this severity.")
@click.option("--status", type=click.Choice(["code_verified", "doc_only"]), help="Only this status.")
@click.option("--bridge", type=_Names("bridge"), help="Only rules that speak of this release, as they stand there.")
@click.argument("words", nargs=-1)
@_lang
@_output(*FORMATS)
@_answers
def rules(
    output: str,
    lang: str,
    kind: str | None,
    topic: str | None,
    severity: str | None,
    status: str | None,
    bridge: str | None,
    words: tuple[str, ...],
) -> None:
    """List rules; WORDS filter by text."""
    from ..advice.explain import rule_data
    from ..intake.request import find_revision
    from ..knowledge import load

    base = load()
    revision = find_revision(bridge, base)
    rows, whole = [], []
    for rule in base.rules.values():
        here = rule.at(revision) if bridge else rule
        if here is None:
            continue
        text = " ".join([rule.id, rule.title.en, rule.title.zh, *here.when, rule.because.en, rule.because.zh]).lower()
        wanted = (
            (kind is None or rule.kind == kind)
            and (topic is None or rule.topic == topic.upper())
            and (severity is None or here.severity == severity)
            and (status is None or here.status == status)
            and all(w.lower() in text for w in words)
        )
        if wanted:
            whole.append(rule_data(rule, base))
            rows.append(
                {
                    "id": rule.id,
                    "kind": rule.kind,
                    "severity": here.severity,
                    "status": here.status,
                    "bridge": rule.bridge,
                    "title": rule.title[lang],
                }
            )
    _rows(whole if output == "json" else rows, output)


@cli.command()
@click.argument("words", nargs=-1)
@_lang
@_output(*FORMATS)
@_answers
def models(output: str, lang: str, words: tuple[str, ...]) -> None:
    """List the models of the catalogue; WORDS filter by name."""
    from ..advice.explain import explain as run
    from ..knowledge import load
    from ..memory.parameters import active_parameters, total_parameters

    base = load()
    chosen = [
        m for m in base.models.values() if all(w.lower() in f"{m.name} {m.title} {m.hf_id}".lower() for w in words)
    ]
    if output == "json":
        _rows([run(m.name).to_dict(lang) for m in chosen], output)
        return
    _rows(
        [
            {
                "model": m.name,
                "layers": m.architecture.num_layers,
                "hidden": m.architecture.hidden_size,
                "heads": m.architecture.num_attention_heads,
                "kv groups": m.architecture.query_groups,
                "experts": m.architecture.num_moe_experts,
                "total": f"{total_parameters(m.architecture) / 1e9:.3g}B",
                "active": f"{active_parameters(m.architecture) / 1e9:.3g}B",
                "title": m.title,
            }
            for m in chosen
        ],
        output,
    )


def _tera(rate: float | None) -> str:
    return f"{rate / 1e12:,.0f}" if rate else "–"


@cli.command()
@_lang
@_output(*FORMATS)
@_answers
def gpus(output: str, lang: str) -> None:
    """List the GPU systems."""
    from ..advice.explain import explain as run
    from ..knowledge import load

    base = load()
    if output == "json":
        _rows([run(g.name).to_dict(lang) for g in base.gpus.values()], output)
        return
    _rows(
        [
            {
                "gpu": g.name,
                "memory GB": f"{g.memory_bytes / 1e9:.1f}",
                "HBM TB/s": f"{g.memory_bandwidth / 1e12:.2f}",
                "bf16 TFLOP/s": _tera(g.peak_flops.get("bf16")),
                "fp8": _tera(g.peak_flops.get("fp8")),
                "fp4": _tera(g.peak_flops.get("fp4")),
                "per node": g.gpus_per_node,
                "NVLink domain": g.nvlink_domain,
                "NVLink GB/s": f"{g.nvlink_bandwidth / 1e9:,.0f}",
                "network GB/s": f"{g.network_bandwidth / 1e9:,.0f}",
            }
            for g in base.gpus.values()
        ],
        output,
    )


@cli.group(invoke_without_command=True)
@_lang
@_output(*FORMATS)
@_answers
def revisions(output: str, lang: str) -> None:
    """List the Megatron Bridge releases that the knowledge speaks of."""
    from ..knowledge import load

    base = load()
    if output == "json":
        from ..advice.explain import explain as run

        _rows([run(r.tag).to_dict(lang) for r in base.revisions.values()], output)
        return
    shown = ("pytorch", "transformer_engine", "cuda", "python", "container")
    _rows(
        [
            {
                "release": r.tag,
                "date": r.released,
                "commit": r.commit[:12],
                "Megatron Core": r.core_version,
                **{name: r.environment.get(name) for name in shown},
            }
            for r in base.revisions.values()
        ],
        output,
    )


@cli.group()
def knowledge() -> None:
    """For maintainers: the knowledge base itself."""


@knowledge.command()
@click.option("--root", type=click.Path(path_type=Path), help="Folder that holds knowledge/ and schemas/.")
@_output("text", "json")
@_answers
def lint(output: str, root: Path | None) -> int:
    """Check every file against its schema, every expression, every rule's examples."""
    from ..knowledge.lint import lint as run
    from ..knowledge.locate import find_root

    problems = run(find_root(root))
    if output == "json":
        click.echo(json.dumps([vars(p) for p in problems], ensure_ascii=False, indent=2))
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}")
    return int(bool(problems))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL, e.g. for ~/.bashrc: eval "$(mbridge-advisor completion bash)"."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "mbridge-advisor", "_MBRIDGE_ADVISOR_COMPLETE").source())


from .evidence import register  # noqa: E402  (they use the helpers above)
from .validate import validate  # noqa: E402

register(cli, revisions)
cli.add_command(validate)
