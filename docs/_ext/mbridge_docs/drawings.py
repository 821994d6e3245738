"""Drawings as SVG: memory by component, the decision path, process grids."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import lcm
from typing import Any

from mbridge_advisor import advise, estimate
from mbridge_advisor.advice.grid_svg import grid_svg
from mbridge_advisor.advice.plan import find
from mbridge_advisor.advice.render.words import size
from mbridge_advisor.advice.results import Memory
from mbridge_advisor.errors import AdvisorError, RequestError
from mbridge_advisor.inference.program import Step
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import Knowledge
from mbridge_advisor.knowledge.load import load_recipes
from mbridge_advisor.knowledge.model import Model, Text, Value

from .site import Site

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#a6611a", "#737373", "#1b9e77",
           "#bcbddc", "#fdae6b")  # fmt: skip
MAX_DRAWN = 64  # GPUs
COMPONENTS: Mapping[str, Text] = {
    "weights": Text("weights", "权重"),
    "gradients": Text("gradients", "梯度"),
    "main_params": Text("FP32 weights", "FP32 主权重"),
    "optimizer_states": Text("optimizer states", "优化器状态"),
    "activations_norm": Text("activations: norms", "激活：归一化"),
    "activations_attention": Text("activations: attention", "激活：注意力"),
    "activations_mlp": Text("activations: MLP", "激活：MLP"),
    "activations_moe": Text("activations: experts", "激活：专家"),
    "activations_mamba": Text("activations: Mamba", "激活：Mamba"),
    "embedding": Text("embedding", "嵌入"),
    "logits_loss": Text("logits and loss", "logits 与损失"),
    "temporaries": Text("temporaries", "临时缓冲"),
    "workspace": Text("workspace", "工作区"),
    "outside_allocator": Text("outside PyTorch", "PyTorch 之外"),
    "fragmentation": Text("fragmentation", "碎片"),
}


def grid_of(facts: Mapping[str, Value], lang: str) -> str | None:
    """The grid of an example that gives at least two sizes, with a caption; None where it can't be drawn.

    Where the example gives no world, it is the smallest that holds the sizes.
    """
    sizes = {n: v for n in ("tp", "pp", "cp", "ep", "etp") if isinstance(v := facts.get(n), int)}
    tp, pp, cp, ep = (max(1, sizes.get(n, 1)) for n in ("tp", "pp", "cp", "ep"))
    dp = facts.get("dp")
    least = pp * lcm(tp * cp * (dp if isinstance(dp, int) else 1), ep * max(1, sizes.get("etp", tp)))
    world = facts.get("world_size", least)
    if not isinstance(world, int) or not 1 < world <= MAX_DRAWN or len(sizes) < 2:
        return None
    try:
        svg = grid_svg(sizes, world, lang)
    except RequestError:
        return None  # such a grid is what the example is about
    if "world_size" in facts:
        return svg
    few = (
        f"{world} 张 GPU，容纳这些并行度的最少卡数"
        if lang == "zh"
        else f"{world} GPUs, the fewest that hold these sizes"
    )
    return f"{svg}<figcaption>{few}</figcaption>"


def memory_of(base: Knowledge, model: Model, lang: str) -> tuple[str, str] | None:
    """A caption and a chart of a model's memory, at the newest shipped grid that is estimated to fit, else advised."""
    head: dict[str, Any] = {"model": model.name, "cluster": {"gpu": "H100", "gpus": 8}}
    rows = [r for key in model.recipe_keys for r in load_recipes(base, key) if r.get("task") == "pretrain"]
    for row in reversed(rows):
        grid = {base.terms[n].field: row[n] for n in ("tp", "pp", "vpp", "cp", "ep", "etp") if row.get(n)}
        if row.get("hardware") not in base.gpus or not row.get("num_gpus") or row.get("pipeline_layout"):
            continue
        request = {
            **head,
            "bridge": row["tag"],
            "cluster": {"gpu": row["hardware"], "gpus": row["num_gpus"]},
            "grid": grid,
            "training": {"seq_length": row.get("seq_length") or 4096},
        }
        try:
            answer = estimate(request, knowledge=base)
        except AdvisorError:
            continue
        if answer.verdict != "error" and answer.grid.memory.decision == "fits":
            text = " ".join(f"{n.upper()} {row[n]}" for n in ("tp", "pp", "vpp", "cp", "ep", "etp") if row.get(n))
            caption = f"{row['num_gpus']} × {row['hardware']}, {text}, {row['tag']}"
            return caption, memory_svg(answer.grid.memory, lang)
    gpus = 8
    while gpus <= 1024:
        request = parse_request({**head, "cluster": {"gpu": "H100", "gpus": gpus}}, base)
        try:
            fits = find(request, base, 1).fits  # `advise` would go on to look for what fits instead
            advice = advise(request, knowledge=base, top=1) if fits else None
        except AdvisorError:
            return None
        if advice is not None and advice.grids:
            fields = advice.grids[0].fields
            short = {base.by_field[k].name: v for k, v in fields.items() if k in base.by_field}
            text = " ".join(f"{n.upper()} {short[n]}" for n in ("tp", "pp", "vpp", "cp", "ep", "etp") if short.get(n))
            return f"{gpus} × H100, {text}, {advice.bridge}", memory_svg(advice.grids[0].memory, lang)
        gpus *= 4
    return None


def memory_svg(memory: Memory, lang: str) -> str:
    """Horizontal bars, one a component, with the sum and the device's memory in the title."""
    parts = [(k, v) for k, v in sorted(memory.components.items(), key=lambda kv: -kv[1]) if v >= memory.total / 500]
    top = max(v for _, v in parts)
    of = f" / {size(memory.capacity)}" if memory.capacity else ""
    title = f"{'每卡峰值显存' if lang == 'zh' else 'Peak memory per GPU'}: {size(memory.total)}{of}"
    height = 30 + 22 * len(parts)
    out = [
        f'<svg class="mb-svg" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 350 {height}" width="525" role="img"'
        f' aria-label="{escape(title)}"><text x="4" y="18" font-weight="bold">{escape(title)}</text>'
    ]
    for n, (name, value) in enumerate(parts):
        y = 30 + 22 * n
        label = COMPONENTS[name][lang]
        out.append(
            f'<text x="132" y="{y + 14}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="138" y="{y + 2}" width="{150 * value / top:.1f}" height="16" fill="{COLOURS[n % 12]}"/>'
            f'<text x="{143 + 150 * value / top:.1f}" y="{y + 14}">{size(value)}</text>'
        )
    return "".join(out) + "</svg>"


def path_svg(site: Site, lang: str, prefix: str, steps: Mapping[str, Step]) -> str:
    """How some rules chain: names that they read, rules, and what they conclude, in the order of inference.

    Columns are the strata of the program: a rule stands right of everything that it reads. Given names are left out;
    every rule's own page lists them.
    """
    base, program = site.base, site.program
    names = {d for s in steps.values() for d, _ in s.derives}
    columns: dict[int, list[str]] = {}
    for name in sorted(names, key=lambda x: (program.levels.get(x, 0), x)):
        columns.setdefault(program.levels.get(name, 0), []).append(name)
    order = sorted(columns)
    at: dict[str, tuple[int, int]] = {}
    width, row, gap = 220, 34, 70
    for x, level in enumerate(order):
        for y, name in enumerate(columns[level]):
            at[name] = (20 + x * (width + gap), 40 + y * row)
    edges = {(a, d): s.id for s in steps.values() for d, _ in s.derives for a in s.inputs if a in at and a != d}
    total_w = 20 + len(order) * (width + gap)
    total_h = 60 + row * max(map(len, columns.values()))
    label = "规则如何衔接" if lang == "zh" else "How the rules chain"
    out = [
        f'<svg class="mb-svg mb-path" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_w} {total_h}"'
        f' width="{total_w}" role="group" aria-label="{label}">'
    ]
    for x, _ in enumerate(order):
        word = f"第 {x + 1} 步" if lang == "zh" else f"Step {x + 1}"
        out.append(f'<text x="{20 + x * (width + gap)}" y="22" font-weight="bold">{word}</text>')
    for (a, d), rule in sorted(edges.items()):
        (x1, y1), (x2, y2) = at[a], at[d]
        out.append(
            f'<path class="mb-edge" d="M{x1 + width} {y1 + 13}C{x1 + width + 40} {y1 + 13} {x2 - 40} {y2 + 13}'
            f' {x2} {y2 + 13}"><title>{rule}: {a} → {d}</title></path>'
        )
    for name, (x, y) in at.items():
        where = f"{prefix}glossary.html#mb-term-{name}"
        title = base.terms[name].title[lang]
        rules = ", ".join(site.derivers.get(name, []))
        out.append(
            f'<a href="{where}"><title>{escape(title)}: {rules}</title><rect class="mb-node" x="{x}" y="{y}"'
            f' width="{width}" height="26" rx="5"/><text x="{x + 8}" y="{y + 17}">{escape(name)}</text></a>'
        )
    return "".join(out) + "</svg>"
