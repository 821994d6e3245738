"""Pieces that are worked out when the site is built: an answer from end to end, the decision path, the accuracy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mbridge_advisor import advise
from mbridge_advisor.advice.render.words import size
from mbridge_advisor.advice.results import Statement
from mbridge_advisor.knowledge.model import Text

from . import drawings, records, reference
from .pages import Pages, esc

PARTS: Mapping[str, Text] = {
    "peak": Text("Peak memory, functional tests", "峰值显存，功能测试"),
    "end_of_step": Text("Memory between steps, functional tests", "步间显存，功能测试"),
    "hybrid": Text("Peak memory, hybrid models (not fitted)", "峰值显存，混合模型（未参与拟合）"),
    "large": Text("Peak memory, real-size layers", "峰值显存，真实规模的层"),
    "tables": Text("Peak memory, tables without ranks", "峰值显存，未注明 rank 的表格"),
    "throughput": Text("Tokens/s/GPU, published pretraining", "tokens/s/GPU，公开预训练"),
    "left_out": Text("The same, each model left out of the fit", "同上，拟合时留出该模型"),
    "tuning": Text("Tokens/s/GPU, published fine-tuning (not fitted)", "tokens/s/GPU，公开微调（未参与拟合）"),
    "large_rate": Text("Tokens/s/GPU, real-size layers", "tokens/s/GPU，真实规模的层"),
}


def answer(pages: Pages, request: dict[str, Any]) -> str:
    """A request answered: the best grids, the first one's memory, why, and what to beware of."""
    t, advice = pages.t, advise(request, knowledge=pages.base)
    rows = []
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")
    field = {n: pages.base.terms[n].field for n in names}
    for grid in advice.grids[:3]:
        sizes = [str(v) if (v := grid.fields.get(field[n])) is not None else "–" for n in names]
        rate = f"{grid.throughput.tokens_per_second_per_gpu:,.0f}" if grid.throughput else "–"
        rows.append([*sizes, size(grid.memory.total), rate])
    head = [*(n.upper() for n in names), t("memory", "显存"), "tokens/s/GPU"]
    best = advice.grids[0]
    said: list[Statement] = [*best.reasons[:6], *best.cautions[:4]]
    overrides = "\n".join(f"   {line}" for line in best.overrides)
    return "\n".join([
        pages.table(head, rows),
        t("The first grid, as overrides of a recipe:", "第一个网格对应的配方覆盖项：") + "\n",
        f".. code-block:: text\n\n{overrides}\n",
        t("Where its memory goes:", "显存去向：") + "\n",
        pages.raw(f'<figure class="mb-figure">{drawings.memory_svg(best.memory, pages.lang)}</figure>'),
        t("Why, rule by rule:", "逐条理由：") + "\n",
        pages.bullets(f":mb:rule:`{s.rule}` {esc(s.message[pages.lang])} *({pages.word(s.status)})*" for s in said),
    ])  # fmt: skip


def path(pages: Pages, request: dict[str, Any]) -> str:
    """The decision path as a drawing, then as words."""
    t, program = pages.t, pages.site.program
    svg = drawings.path_svg(pages.site, pages.lang, "")
    label = t("How the rules chain", "规则如何衔接")
    out = [pages.raw(f'<div class="mb-scroll" tabindex="0" role="region" aria-label="{label}">{svg}</div>')]
    for n, steps in enumerate(program.strata, 1):
        shown = [s for s in steps if s.derives and s.rule is not None and s.rule.kind != "diagnosis"]
        if shown:
            lines = [
                f":mb:rule:`{s.id}` {esc(s.rule.title[pages.lang])}: "
                + ", ".join(pages.name(x) for x in sorted(s.inputs))
                + " → " + ", ".join(pages.name(d) for d, _ in s.derives)
                for s in shown if s.rule
            ]  # fmt: skip
            out.append(pages.section(t(f"Step {n}", f"第 {n} 步"), pages.bullets(lines)))
    return "\n".join(out)


def accuracy(pages: Pages, request: dict[str, Any]) -> str:
    """Scores of the last validation, as the repository keeps them."""
    t = pages.t
    file = Path(pages.base.root) / "docs" / "validation" / "figures.json"
    figures = json.loads(file.read_text(encoding="utf-8"))
    head = [
        t("rows of", "数据"),
        t("rows", "行数"),
        t("median", "中位数"),
        t("mean abs.", "平均绝对"),
        t("bias", "偏差"),
        t("within 5 / 10 / 20 %", "5 / 10 / 20% 以内"),
        t("in range", "在区间内"),
        t("worst", "最差"),
    ]

    def line(label: str, s: Mapping[str, Any]) -> list[str]:
        within = " / ".join(f"{share:.0%}" for share in s["within"].values())
        covered = f"{s['in_range']:.0%}" if "in_range" in s else "–"
        return [
            esc(label),
            str(s["rows"]),
            f"{s['median']:.1%}",
            f"{s['mean_absolute']:.1%}",
            f"{s['bias']:+.1%}",
            within,
            covered,
            f"{s['worst']['error']:+.1%}",
        ]

    parts: Mapping[str, Any] = figures["parts"]

    def title(key: str) -> str:
        return PARTS[key][pages.lang] if key in PARTS else t(parts[key]["title"], key)

    out = [pages.table(head, [line(title(k), p) for k, p in parts.items()])]
    plots = [k for k in ("peak", "large", "throughput", "left_out") if k in parts]
    out.append(
        pages.section(
            t("Predicted against measured", "预测与实测"),
            "\n".join(
                f".. figure:: /validation/{k}.svg\n   :alt: {esc(title(k))}\n\n   {esc(title(k))}\n" for k in plots
            ),
        )
    )
    for key in plots:
        if parts[key].get("by"):
            out.append(
                pages.section(
                    title(key) + t(", by model", "，按模型"),
                    pages.table(head, [line(name, s) for name, s in parts[key]["by"].items()]),
                )
            )
    choice = figures["choice"]
    shares = ("first", "top", "grid_first", "grid_top", "defensible")
    labels = [
        t("first", "首选"),
        t("first 5", "前 5"),
        t("grid first", "网格首选"),
        t("grid first 5", "网格前 5"),
        t("as good", "不逊色"),
    ]
    names = {"published": t("published runs", "公开运行"), "recipes": t("recipes", "配方")}
    rows = [
        [
            names.get(source, source) + (t(", FSDP only", "，仅 FSDP") if kind == "fsdp" else ""),
            str(s["count"]),
            *(f"{s[x]:.0%}" for x in shares),
        ]
        for source, found in choice.items()
        for kind in ("ddp", "fsdp")
        if (s := found.get(kind))
    ]
    out.append(
        pages.section(
            t("Choice of the grid", "网格选择"),
            t(
                "How often our first grid, or one of our first five, is one that the vendor published.",
                "我们的首选或前五个网格与厂商公布的网格一致的比例。",
            )
            + "\n\n"
            + pages.table([t("scenarios", "场景"), t("count", "数量"), *labels], rows),
        )
    )
    made = figures["made_by"]
    out.append(
        t(
            f"Made by commit {made['commit'][:12]}, knowledge {made['knowledge']}.",
            f"由提交 {made['commit'][:12]}、知识库 {made['knowledge']} 生成。",
        )
    )
    return "\n".join(out)


GUIDES: Mapping[str, Callable[[Pages, dict[str, Any]], str]] = {
    "answer": answer,
    "path": path,
    "accuracy": accuracy,
    "audit": records.audit,
    "faults": records.faults,
    "commands": reference.commands,
    "http": reference.http,
    "python": reference.python,
}
