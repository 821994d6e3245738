"""What is known: ``explain``, ``rules``, ``models``, ``gpus``, ``revisions``."""

from __future__ import annotations

import click

from .common import FORMATS, Names, answers, emit, lang_option, output_option, print_table


@click.command()
@click.argument("name", type=Names("entry"))
@click.option("--bridge", type=Names("bridge"), help="Only the wording at this release.")
@lang_option
@output_option(*FORMATS)
@answers
def explain(output: str, lang: str, name: str, bridge: str | None) -> None:
    """Explain a rule, quantity, term, model, GPU or release.

    Example: mbridge-advisor explain MB-WORLD-002
    """
    from ..advice.explain import explain as run

    emit(run(name, bridge=bridge), output, lang, "explanation")


@click.command()
@click.option("--kind", type=click.Choice(["constraint", "derivation", "sizing", "pitfall"]), help="Only this kind.")
@click.option("--topic", help="Only this topic, the middle of the id, e.g. WORLD.")
@click.option("--severity", type=click.Choice(["error", "override", "warning", "advice"]), help="Only this severity.")
@click.option("--status", type=click.Choice(["code_verified", "doc_only"]), help="Only this status.")
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
    print_table(whole if output == "json" else rows, output)


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
