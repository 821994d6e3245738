"""Commands for maintainers: evidence from the source, the matrix, new releases, review of a change."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import WriteError
from .common import FORMATS, Command, answers, lang_option, output_option, print_table, progress_bar

if TYPE_CHECKING:
    from ..evidence.verify import Verification
    from ..knowledge import Knowledge


def _sources(function: Command) -> Command:
    core = click.option(
        "--core-source",
        type=click.Path(path_type=Path),
        help="The same for Megatron Core; by default what lies beside Bridge.",
    )
    bridge = click.option(
        "--bridge-source",
        required=True,
        type=click.Path(path_type=Path),
        help="A checkout or git repository of Megatron Bridge, or the site-packages folder that holds it.",
    )
    return bridge(core(function))


def _verified(
    base: Knowledge, bridge_source: Path, core_source: Path | None, revision: str | None, output: str
) -> Verification:
    from ..evidence.verify import verify as run

    with progress_bar(output) as progress:
        return run(base, bridge_source, core_source, revision, progress)


@click.command()
@_sources
@click.option("--revision", help="Release to compare with; a git repository is read at this tag.")
@click.option(
    "--execute", "executed", is_flag=True, help="Also RUN the sources' own validation code, in a process of its own."
)
@click.option("--python", default="python3", help="With --execute: an interpreter that has torch.")
@click.option(
    "--cases", type=click.IntRange(1, 100000), default=100, help="With --execute: how many configurations to ask about."
)
@lang_option
@output_option("text", "json")
@answers
def verify(
    bridge_source: Path,
    core_source: Path | None,
    revision: str | None,
    executed: bool,
    python: str,
    cases: int,
    lang: str,
    output: str,
) -> int:
    """Look every cited place up in a source of Megatron Bridge. Nothing in it is changed, or run without --execute.

    Exit codes: 0 all is as reviewed, 1 a person must look, 2 the source can't be used.

    Example: mbridge-advisor verify --bridge-source Megatron-Bridge --core-source Megatron-LM --revision v0.6.0
    """
    from ..knowledge import load

    base = load()
    result = _verified(base, bridge_source, core_source, revision, output)
    report = None
    if executed:
        from ..evidence.execute import execute
        from ..evidence.verify import open_sources

        sources, release, _ = open_sources(base, bridge_source, core_source, revision)
        with progress_bar(output) as progress:
            report = execute(base, sources, release, python, cases, lambda text: click.echo(text, err=True), progress)
    if output == "json":
        data = result.to_dict(lang)
        if report is not None:
            data["execution"] = report.to_dict()
        click.echo(json.dumps(data, ensure_ascii=False, indent=2, default=str))
    else:
        _print_verification(result, lang)
        if report is not None:
            from ..evidence.oracle.fuzz import render

            click.echo(render(report))
    return max(result.exit_code, int(report is not None and bool(report.disagreements)))


_STATE_WORDS = {
    "holds": ("holds", "一致"),
    "moved": ("moved", "已移动"),
    "changed": ("changed", "已改变"),
    "new": ("not reviewed", "未审阅"),
    "missing": ("missing", "缺失"),
    "skipped": ("not looked at", "未检查"),
}


def _print_verification(result: Verification, lang: str) -> None:
    zh = lang == "zh"
    core = f" + {result.sources[1]}" if result.sources[1] else ""
    click.echo(f"{result.revision.tag}: {result.sources[0]}{core}")
    for note in result.notes:
        click.echo(f"  {note[lang]}")
    for sighting in result.sightings:
        if sighting.state in ("holds", "skipped"):
            continue
        word = _STATE_WORDS[sighting.state][zh]
        color = "yellow" if sighting.state == "moved" else "red"
        click.secho(f"{word}: {sighting.place}", fg=color)
        click.echo(f"    {sighting.place.key} · {', '.join(sighting.owners)}")
        if sighting.look is not None:
            click.echo(f"    {sighting.look[lang]}")
    if result.hints:
        click.echo("版本范围之外也找到的内容：" if zh else "Found as reviewed outside the rule's range:")
        for name, place, found in result.hints:
            click.echo(f"  {name}: {place}, {found.lines[0]}-{found.lines[1]}")
    counted = ", ".join(f"{n} {_STATE_WORDS[state][zh]}" for state, n in result.counts.items() if n)
    click.echo(f"{counted or 0}; {result.seconds:.1f} s")


@click.group()
def evidence() -> None:
    """For maintainers: record what is found in a source, and accept what has been reviewed."""


@evidence.command()
@_sources
@click.option("--revision", multiple=True, help="Release; may be repeated. All known ones by default.")
@output_option("text", "json")
@answers
def record(bridge_source: Path, core_source: Path | None, revision: tuple[str, ...], output: str) -> int:
    """Write what is found at releases to knowledge/evidence/anchors/; what isn't reviewed stays to be accepted."""
    from ..evidence.verify import record as run
    from ..knowledge import load

    base = load()
    code, rows = 0, []
    for tag in revision or tuple(base.revisions):
        result = _verified(base, bridge_source, core_source, tag, output)
        path = _writing(lambda result=result: run(base, result))
        code = max(code, result.exit_code)
        rows.append({"written": str(path), "revision": tag, "counts": result.counts})
        if output == "text":
            click.echo(f"{path}: " + ", ".join(f"{n} {state}" for state, n in result.counts.items() if n))
    if output == "json":
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    return code


@evidence.command()
@click.option("--revision", multiple=True, help="Release at which it was read; may be repeated. All by default.")
@click.option("--by", "reviewer", required=True, help="Who has read it.")
@click.option("--reason", required=True, help="What was looked at, and why it is right.")
@click.option("--on", "day", default=None, help="Day, e.g. 2026-12-02; today by default.")
@click.option("--all", "everything", is_flag=True, help="Everything that was found and isn't accepted yet.")
@click.argument("names", nargs=-1)
@output_option("text", "json")
@answers
def accept(
    revision: tuple[str, ...],
    reviewer: str,
    reason: str,
    day: str | None,
    everything: bool,
    names: tuple[str, ...],
    output: str,
) -> int:
    """Accept what was recorded for the rules, quantities or anchors NAMES: a person has read it."""
    from ..errors import RequestError
    from ..evidence.store import accept as run
    from ..evidence.store import load_evidence, waiting
    from ..knowledge import load

    base = load()
    if not names and not everything:
        raise RequestError("NAMES", None, "are needed", "Name rules, quantities or anchors, or give --all.")
    accepts = waiting(base, load_evidence(Path(base.root)), revision or tuple(base.revisions), names)
    if accepts:
        _writing(lambda: run(Path(base.root), reviewer, day or date.today().isoformat(), reason, accepts))
    if output == "json":
        click.echo(json.dumps({"accepted": {key: sorted(found) for key, found in accepts.items()}}, indent=2))
    else:
        click.echo(f"{sum(map(len, accepts.values()))} accepted")
    return 0


def _writing(write: Any) -> Any:
    try:
        return write()
    except OSError as error:
        raise WriteError(f"{error.filename}: can't be written ({error.strerror}).") from None


@click.group()
def matrix() -> None:
    """Rule x release: what each rule has earned where."""


@matrix.command()
@output_option("text", "json")
@answers
def build(output: str) -> int:
    """Compute compat_matrix.yaml from the rules and the evidence."""
    from ..evidence.matrix import write
    from ..knowledge import load

    base = load()
    path, changed = _writing(lambda: write(base))
    if output == "json":
        click.echo(json.dumps({"path": str(path), "changed": changed}))
    else:
        click.echo(f"{path}: {'written' if changed else 'as it was'}")
    return 0


@matrix.command()
@output_option("text", "json")
@answers
def check(output: str) -> int:
    """Fail (exit 1) where the matrix is stale, or a rule claims more than its evidence."""
    from ..evidence.matrix import check as run
    from ..knowledge import load

    complaints = run(load())
    if output == "json":
        click.echo(json.dumps([c.to_dict() for c in complaints], ensure_ascii=False, indent=2))
    else:
        for c in complaints:
            click.echo(f"{c.kind}: {c.name}{' at ' + c.revision if c.revision else ''} {c.message}")
        click.echo(f"{len(complaints)} problem{'s' if len(complaints) != 1 else ''}")
    return int(bool(complaints))


@matrix.command()
@click.option(
    "--kind", type=click.Choice(["constraint", "derivation", "sizing", "pitfall", "quantity"]), help="Only this kind."
)
@click.option("--tag", type=click.Choice(["code_verified", "doc_only"]), help="Only rows with a cell of this tag.")
@click.option(
    "--verdict", type=click.Choice(["holds", "changed", "untested", "absent"]), help="Only rows with such a cell."
)
@click.option("--revision", help="Only this release.")
@click.option("--counts", "counted", is_flag=True, help="Numbers by kind instead of rows.")
@click.argument("names", nargs=-1)
@lang_option
@output_option(*FORMATS)
@answers
def show(
    kind: str | None,
    tag: str | None,
    verdict: str | None,
    revision: str | None,
    counted: bool,
    names: tuple[str, ...],
    lang: str,
    output: str,
) -> int:
    """Print the matrix as the evidence gives it; NAMES are beginnings of rule ids or quantity names."""
    from ..errors import RequestError
    from ..evidence.matrix import build as run
    from ..evidence.matrix import counts, select
    from ..evidence.store import load_evidence
    from ..knowledge import load

    base = load()
    if revision is not None and revision not in base.revisions:
        raise RequestError("--revision", revision, "is unknown", f"Known: {', '.join(base.revisions)}.")
    rows = select(
        run(base, load_evidence(Path(base.root))), kind=kind, tag=tag, verdict=verdict, revision=revision, names=names
    )
    tags = [revision] if revision else list(base.revisions)
    if counted:
        columns = ("code_verified", "doc_only", "holds", "changed", "untested", "absent")
        table = [
            {"release": t, "kind": k, **{c: by.get(c, 0) for c in columns}}
            for t in tags
            for k, by in counts(rows, t).items()
        ]
        print_table(table, output)
    elif output == "json":
        click.echo(
            json.dumps(
                [{"name": r.name, "kind": r.kind, "cells": {t: c.to_dict() for t, c in r.cells.items()}} for r in rows],
                ensure_ascii=False,
                indent=2,
            )
        )
    else:
        print_table(
            [{"rule": r.name, "kind": r.kind, **{t: _cell(r.cells[t], lang) for t in tags}} for r in rows], output
        )
    return 0


_CELL_WORDS = {
    "holds": ("holds", "成立"),
    "absent": ("–", "–"),
    "changed": ("changed", "已改变"),
    "untested": ("untested", "未检验"),
}


def _cell(cell: Any, lang: str) -> str:
    word = _CELL_WORDS[cell.verdict][lang == "zh"]
    if cell.verdict == "absent":
        return word
    mark = ("code", "代码") if cell.tag == "code_verified" else ("doc", "文档")
    carried = ("", "") if cell.carried is None else (f" ← {cell.carried.source}",) * 2
    return f"{word} · {mark[lang == 'zh']}{carried[lang == 'zh']}"


@click.command("add")
@click.argument("tag")
@_sources
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@lang_option
@output_option("text", "json")
@answers
def add_release(tag: str, bridge_source: Path, core_source: Path | None, dry_run: bool, lang: str, output: str) -> int:
    """Add a release: read its pins and versions, look all anchors up, say what a person must look at.

    Writes knowledge/revisions.yaml, the record of the release and compat_matrix.yaml. What is as reviewed at another
    release needs no further look. Exit codes: 0 nothing to look at, 1 a person must look, 2 bad input.

    Example: mbridge-advisor revisions add v0.6.0 --bridge-source Megatron-Bridge --core-source Megatron-LM
    """
    from ..evidence.releases import add
    from ..knowledge.locate import find_root

    root = find_root()
    with progress_bar(output) as progress:
        result = _writing(lambda: add(root, tag, bridge_source, core_source, progress, dry_run))
    if output == "json":
        click.echo(json.dumps(result.to_dict(lang), ensure_ascii=False, indent=2))
        return int(result.exit_code)
    for name in ("commit", "core_commit", "core_version", "released"):
        click.echo(f"{name}: {result.entry[name]}")
    for name, version in result.entry["environment"].items():
        click.echo(f"  {name}: {version or '–'}")
    _print_verification(result.verification, lang)
    counted = ", ".join(f"{n} {_CELL_WORDS[v][lang == 'zh']}" for v, n in result.matrix.items() if v != "absent")
    click.echo(counted)
    for path in result.written:
        click.echo(str(path))
    return int(result.exit_code)


@click.command()
@click.argument("base")
@click.argument("head", required=False)
@click.option("--scenarios", type=click.Path(path_type=Path), help="More questions: a file of JSON lines.")
@click.option("--no-corpus", is_flag=True, help="Without the shipped recipes and the grid of requests.")
@lang_option
@output_option("markdown", "json")
@answers
def review(base: str, head: str | None, scenarios: Path | None, no_corpus: bool, lang: str, output: str) -> int:
    """What a change of the knowledge base does: BASE and HEAD are commits or folders; HEAD is the work tree by default.

    Lists entries, cells of the matrix, and what changes in the answers to every shipped recipe and a grid of requests.
    Exit codes: 0 no verdict and no recommended grid changes, 1 some do, or something earned is lost, 2 bad input.

    Example: mbridge-advisor review main
    """
    from ..evidence.review import markdown, read_scenarios
    from ..evidence.review import review as run
    from ..knowledge.locate import find_root

    more = read_scenarios(scenarios) if scenarios else []
    with progress_bar("json" if output == "json" else "text") as progress:
        result = run(base, head, find_root(), more, progress, corpus=not no_corpus)
    if output == "json":
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=2))
    else:
        click.echo(markdown(result, lang))
    return result.exit_code


@click.group()
def knowledge() -> None:
    """For maintainers: the knowledge base itself."""


@knowledge.command()
@click.option("--root", type=click.Path(path_type=Path), help="Folder that holds knowledge/ and schemas/.")
@output_option("text", "json")
@answers
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


@click.command()
@click.option(
    "--bridge-source", type=click.Path(path_type=Path), help="Look up anew: a git repository of Megatron Bridge."
)
@click.option("--core-source", type=click.Path(path_type=Path), help="With it: a git repository of Megatron Core.")
@click.option("--record", "recorded", is_flag=True, help="With --bridge-source: keep what was found.")
@click.option("--write", "written", is_flag=True, help="Write docs/audit.md and docs/audit.json.")
@lang_option
@output_option(*FORMATS)
@answers
def audit(
    bridge_source: Path | None, core_source: Path | None, recorded: bool, written: bool, lang: str, output: str
) -> int:
    """Judge the claims of the usual guide at every release, by rules, examples, places and shipped recipes.

    Exit codes: 0 all verdicts are as reviewed, 1 a person must look, 2 the source can't be used.
    """
    from ..errors import RequestError
    from ..evidence import audit as run
    from ..evidence import audit_page as page
    from ..evidence.store import write_text
    from ..knowledge import load

    base = load()
    root = Path(base.root)
    looked = None
    if bridge_source is None and (recorded or core_source is not None):
        raise RequestError("--bridge-source", None, "is needed", "Name a git repository of Megatron Bridge.")
    with progress_bar(output) as progress:
        if bridge_source is not None:
            looked = run.look(base, bridge_source, core_source, progress)
            if recorded:
                _writing(lambda: run.write(root, run.Guide.load(root), looked))
        result = run.audit(base, looked, progress)
    data = json.dumps(page.to_dict(result, base.version), ensure_ascii=False, indent=1)
    if written:
        _writing(lambda: write_text(root / page.PAGE, page.markdown(result)))
        _writing(lambda: write_text(root / page.DATA, data + "\n"))
    if output == "json":
        click.echo(data)
    elif output == "markdown":
        click.echo(page.markdown(result, lang), nl=False)
    else:
        for line in page.text(result, lang):
            click.echo(line)
    return result.exit_code
