"""What is known: ``explain``, ``rules``, ``models``, ``gpus``, ``revisions``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..errors import RequestError
from .common import FORMATS, Names, answers, emit, lang_option, output_option, print_table


@click.command()
@click.argument("name", type=Names("entry"), required=False)
@click.option("--bridge", type=Names("bridge"), help="Only the wording at this release.")
@click.option("--grid", help="Instead of NAME: which ranks form which group, e.g. tp=2,pp=2,ep=4.")
@click.option("--gpus", type=int, help="With --grid: how many GPUs.")
@click.option(
    "--svg", type=click.Path(path_type=Path, dir_okay=False), help="With --grid: write a drawing to this file."
)
@lang_option
@output_option(*FORMATS)
@answers
def explain(
    output: str, lang: str, name: str | None, bridge: str | None, grid: str | None, gpus: int | None, svg: Path | None
) -> None:
    """Explain a rule, quantity, term, model, GPU or release, or a process grid.

    Example: mbridge-advisor explain MB-WORLD-002
    """
    from ..advice.explain import explain as run

    if (name is None) == (grid is None):
        raise RequestError(
            "NAME", name, "or --grid is needed, not both", "E.g. `mbridge-advisor explain MB-WORLD-002`."
        )
    if grid is not None:
        _explain_grid(grid, gpus, svg, output, lang)
        return
    emit(run(str(name), bridge=bridge), output, lang, "explanation")


def _explain_grid(grid: str, gpus: int | None, svg: Path | None, output: str, lang: str) -> None:
    from ..advice.grid_svg import grid_svg, rank_groups

    sizes: dict[str, int] = {}
    for pair in grid.split(","):
        size, _, value = pair.partition("=")
        if not value.strip().isdecimal():
            raise RequestError("--grid", grid, "isn't a list of sizes", "Write e.g. tp=2,pp=2,cp=1,ep=4.")
        sizes[size.strip()] = int(value)
    if gpus is None:
        raise RequestError("--gpus", None, "is needed with --grid", "Give the number of GPUs.")
    groups = rank_groups(sizes, gpus)
    if svg is not None:
        text = grid_svg(sizes, gpus, lang)
        try:
            svg.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise RequestError(
                "--svg", str(svg), f"can't be written ({error.strerror})", "Name another file."
            ) from None
    if output == "json":
        click.echo(json.dumps(groups))
        return
    rows = [
        {"group": kind, "ranks": " ".join(f"[{' '.join(map(str, g))}]" for g in found)}
        for kind, found in groups.items()
    ]
    print_table(rows, output)


@click.command()
@click.option(
    "--kind", type=click.Choice(["constraint", "derivation", "sizing", "pitfall", "diagnosis"]), help="Only this kind."
)
@click.option("--topic", help="Only this topic, the middle of the id, e.g. WORLD.")
@click.option("--severity", type=click.Choice(["error", "override", "warning", "advice"]), help="Only this severity.")
@click.option("--status", type=click.Choice(["code_verified", "doc_only"]), help="Only rules that have earned this.")
@click.option("--bridge", type=Names("bridge"), help="Only rules that speak of this release, as they stand there.")
@click.argument("words", nargs=-1)
@lang_option
@output_option(*FORMATS)
@answers
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
    from ..advice.explain import earned, rule_data, tags_of
    from ..advice.listing import find_rules
    from ..intake.request import find_revision
    from ..knowledge import load

    base = load()
    found = find_rules(base, kind=kind, topic=topic, severity=severity, status=status, bridge=bridge, words=words)
    if output == "json":
        print_table([rule_data(rule, base) for rule, _ in found], output)
        return
    asked = [find_revision(bridge, base)] if bridge else list(base.revisions.values())
    rows = [
        {
            "id": rule.id,
            "kind": rule.kind,
            "severity": here.severity,
            "status": earned(tags_of(base, rule.id, [r for r in asked if rule.at(r)])).replace("\n", "; "),
            "bridge": rule.bridge,
            "title": rule.title[lang],
        }
        for rule, here in found
    ]
    print_table(rows, output)


@click.command()
@click.argument("words", nargs=-1)
@lang_option
@output_option(*FORMATS)
@answers
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
        print_table([run(m.name).to_dict(lang) for m in chosen], output)
        return
    print_table(
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


@click.command()
@lang_option
@output_option(*FORMATS)
@answers
def gpus(output: str, lang: str) -> None:
    """List the GPU systems."""
    from ..advice.explain import explain as run
    from ..knowledge import load

    base = load()
    if output == "json":
        print_table([run(g.name).to_dict(lang) for g in base.gpus.values()], output)
        return
    print_table(
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


@click.group(invoke_without_command=True)
@lang_option
@output_option(*FORMATS)
@answers
def revisions(output: str, lang: str) -> None:
    """List the Megatron Bridge releases that the knowledge speaks of."""
    from ..knowledge import load

    base = load()
    if output == "json":
        from ..advice.explain import explain as run

        print_table([run(r.tag).to_dict(lang) for r in base.revisions.values()], output)
        return
    shown = ("pytorch", "transformer_engine", "cuda", "python", "container")
    print_table(
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
