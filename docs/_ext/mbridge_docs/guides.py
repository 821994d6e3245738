"""Pieces that are worked out when the site is built: an answer from end to end, the decision path, the accuracy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from mbridge_advisor import advise
from mbridge_advisor.advice.render.words import size
from mbridge_advisor.advice.results import Statement
from mbridge_advisor.inference.program import Step
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
    "fine_tuning": Text("Tokens/s/GPU, published fine-tuning (not fitted)", "tokens/s/GPU，公开微调（未参与拟合）"),
    "step_time": Text("Tokens/s/GPU, real-size layers", "tokens/s/GPU，真实规模的层"),
}
PEERS: Mapping[str, Text] = {
    "Megatron Bridge's estimator": Text("Megatron Bridge's estimator", "Megatron Bridge 的估算器"),
    "16 bytes a parameter": Text("16 bytes a parameter", "每参数 16 字节"),
    "40 % of peak": Text("40 % of peak", "峰值算力的 40%"),
}
GROUPS: Mapping[str, Text] = {
    "model": Text("model", "模型"),
    "gpu": Text("GPU", "GPU"),
    "precision": Text("precision", "精度"),
    "release": Text("release", "版本"),
}
PLOT_WORDS = (
    (r"Peak memory, functional tests", "峰值显存，功能测试"),
    (r"Peak memory, real-size layers", "峰值显存，真实规模的层"),
    (r"Published pretraining, model left out of the fit", "公开预训练，拟合时留出该模型"),
    (r"Published pretraining", "公开预训练"),
    (r": predicted against measured", "：预测与实测"),
    (r"\bmeasured\b", "实测"),
    (r"\bpredicted\b", "预测"),
    (r"(\d+) rows, median error", r"\1 行，误差中位数"),
    (r"within (\d+) %", r"\1% 以内"),
    (r" stage (\d+):", r" 阶段 \1："),
)
"""Words of the validation's plots -> Chinese."""


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
    """The decision path as a drawing, then as words; the usual guide's own path apart, since nothing rests on it."""
    t = pages.t
    steps = {
        name: step
        for name, step in pages.site.program.steps.items()
        if step.derives and step.rule is not None and step.rule.kind != "diagnosis"
    }
    guide = {name: step for name, step in steps.items() if name.startswith("MB-GUIDE-")}
    ours = {name: step for name, step in steps.items() if name not in guide}
    return _path(pages, ours, t("How the rules chain", "规则如何衔接")) + pages.section(
        t("What the usual guide would conclude", "常用指南会得出什么"),
        t(
            "Its rules are kept so that they can be compared; no advice rests on them.",
            "收录这些规则是为了对照，任何建议都不依赖它们。",
        )
        + "\n\n"
        + _path(pages, guide, t("How the guide's rules chain", "指南的规则如何衔接")),
    )


def _path(pages: Pages, steps: Mapping[str, Step], label: str) -> str:
    svg = drawings.path_svg(pages.site, pages.lang, "", steps)
    out = [pages.raw(f'<div class="mb-scroll" tabindex="0" role="region" aria-label="{escape(label)}">{svg}</div>')]
    n = 0
    for stratum in pages.site.program.strata:
        shown = [s for s in stratum if s.id in steps]
        if shown:
            n += 1
            lines = [
                f":mb:rule:`{s.id}` {esc(s.rule.title[pages.lang])}: "
                + ", ".join(pages.name(x) for x in sorted(s.inputs))
                + " → " + ", ".join(pages.name(d) for d, _ in s.derives)
                for s in shown if s.rule
            ]  # fmt: skip
            out.append(f"\n**{pages.t(f'Step {n}', f'第 {n} 步')}**\n\n{pages.bullets(lines)}")
    return "\n".join(out)


def accuracy(pages: Pages, request: dict[str, Any]) -> str:
    """Scores of the last validation, as the repository keeps them: plots, tables by what was run, and the misses."""
    t, docs = pages.t, Path(pages.base.root) / "docs"
    figures = json.loads((docs / "validation" / "figures.json").read_text(encoding="utf-8"))
    parts: Mapping[str, Any] = figures["parts"]
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
        spread = [f"{s['median']:.1%}", f"{s['mean_absolute']:.1%}", f"{s['bias']:+.1%}"]
        return [esc(label), str(s["rows"]), *spread, within, covered, f"{s['worst']['error']:+.1%}"]

    def title(key: str) -> str:
        return PARTS[key][pages.lang]

    out = [pages.table(head, [line(title(k), p) for k, p in parts.items()])]
    plots = [k for k in ("peak", "large", "throughput", "left_out") if k in parts]
    drawn = [_plot(pages, docs / "validation" / f"{k}.svg") for k in plots]
    out.append(pages.section(t("Predicted against measured", "预测与实测"), "\n".join(drawn)))
    peers = [
        line(f"{title(k)}: {PEERS[name][pages.lang] if name in PEERS else name}", s)
        for k, p in parts.items()
        for name, s in p["peers"].items()
    ]
    out.append(
        pages.section(t("Other estimators on the same rows", "其他估算方法在同一批数据上"), pages.table(head, peers))
    )
    for key, groups in figures["groups"].items():
        for group, found in groups.items():
            label = f"{title(key)}{t(', by ', '，按')}{GROUPS[group][pages.lang]}"
            rows = [line(name, s) for name, s in found.items()]
            out.append(pages.section(label, pages.table([GROUPS[group][pages.lang], *head[1:]], rows)))
    missed = []
    for key, found in figures["errors"].items():
        worst = sorted(found.items(), key=lambda pair: -abs(float(pair[1])))[:5]
        missed += [
            [title(key), f"``{row}``", f"{float(error):+.1%}"] for row, error in worst if abs(float(error)) > 0.1
        ]
    out.append(
        pages.section(
            t("The worst misses", "最大的偏差"),
            t(
                "Of each kind, up to five rows that are off by more than 10 %.",
                "每类数据中误差超过 10% 的行，最多列五行。",
            )
            + "\n\n"
            + pages.table([head[0], t("row", "行"), t("error", "误差")], missed),
        )
    )
    out.append(_choice(pages, figures["choice"]))
    made = figures["made_by"]
    out.append(
        t(
            f"Made by commit {made['commit'][:12]}, knowledge {made['knowledge']}.",
            f"由提交 {made['commit'][:12]}、知识库 {made['knowledge']} 生成。",
        )
    )
    return "\n".join(out)


def _plot(pages: Pages, path: Path) -> str:
    """A plot of the validation in the language of the build."""
    svg = path.read_text(encoding="utf-8").replace("frame", f"frame-{path.stem}")  # ids are the page's
    if pages.lang == "zh":
        for pattern, chinese in PLOT_WORDS:
            svg = re.sub(pattern, chinese, svg)
    return pages.raw(f'<figure class="mb-figure">{svg}</figure>')


def _choice(pages: Pages, choice: Mapping[str, Any]) -> str:
    t = pages.t
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
            names[source] + (t(", FSDP only", "，仅 FSDP") if kind == "fsdp" else ""),
            str(s["count"]),
            *(f"{s[x]:.0%}" for x in shares),
        ]
        for source, found in choice.items()
        for kind in ("ddp", "fsdp")
        if (s := found.get(kind))
    ]
    said = t(
        "How often our first grid, or one of our first five, is one that the vendor published.",
        "我们的首选或前五个网格与厂商公布的网格一致的比例。",
    )
    differs = [
        [
            f"``{one['scenario']}``",
            one["ours"],
            one["theirs"] or "–",
            " / ".join(f"{rate:,.0f}" for rate in one["tokens_per_second_per_gpu"]),
        ]
        for one in choice["published"]["differs"]
    ]
    head = [t("scenario", "场景"), t("ours", "我们的"), t("published", "公开的"), "tokens/s/GPU"]
    return pages.section(
        t("Choice of the grid", "网格选择"),
        f"{said}\n\n" + pages.table([t("scenarios", "场景"), t("count", "数量"), *labels], rows),
    ) + pages.section(
        t("Where our first grid is none that was published", "首选与公开网格不同之处"),
        t("Rates are our own estimates.", "速率均为我们的估计。") + "\n\n" + pages.table(head, differs),
    )


GUIDES: Mapping[str, Callable[[Pages, dict[str, Any]], str]] = {
    "answer": answer,
    "path": path,
    "accuracy": accuracy,
    "audit": records.audit,
    "changes": records.changes,
    "faults": records.faults,
    "commands": reference.commands,
    "http": reference.http,
    "python": reference.python,
}
