"""Text of the generated pages, as reStructuredText in the language of the build."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from mbridge_advisor.advice.statements import fill, show
from mbridge_advisor.architecture import Architecture
from mbridge_advisor.evidence.matrix import Cell
from mbridge_advisor.evidence.store import Place
from mbridge_advisor.inference import infer
from mbridge_advisor.knowledge.load import load_recipes
from mbridge_advisor.knowledge.model import Citation, Example, Gpu, Model, Quantity, Revision, Rule, Term, Text, Value
from mbridge_advisor.memory.parameters import active_parameters, total_parameters

from . import drawings
from .formula import mathml
from .site import Site, address

KINDS: Mapping[str, Text] = {
    "constraint": Text("constraint", "约束"),
    "derivation": Text("derivation", "推导"),
    "sizing": Text("sizing", "选型"),
    "pitfall": Text("pitfall", "陷阱"),
    "diagnosis": Text("diagnosis", "诊断"),
    "quantity": Text("quantity", "数量"),
}
WORDS: Mapping[str, Text] = {
    **KINDS,
    "error": Text("error", "错误"),
    "override": Text("override", "自动改写"),
    "warning": Text("warning", "警告"),
    "advice": Text("advice", "建议"),
    "code_verified": Text("code verified", "代码已验证"),
    "doc_only": Text("documentation only", "仅文档"),
    "holds": Text("holds", "成立"),
    "changed": Text("changed", "已改变"),
    "untested": Text("untested", "未检验"),
    "absent": Text("not there", "不适用"),
}
SECTIONS: Mapping[str, Text] = {
    "model": Text("Model", "模型"),
    "cluster": Text("Cluster", "集群"),
    "training": Text("Training", "训练"),
    "grid": Text("Process grid", "进程网格"),
    "environment": Text("Environment and other settings", "环境与其他设置"),
    "derived": Text("Derived", "推导量"),
}


def esc(text: str) -> str:
    """A text of the knowledge, safe inside reStructuredText."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


class Pages:
    """Writes pages in one language. Methods return reStructuredText."""

    def __init__(self, site: Site, lang: str) -> None:
        self.site, self.base, self.lang = site, site.base, lang

    def t(self, en: str, zh: str) -> str:
        """A fixed text in the language of the build."""
        return zh if self.lang == "zh" else en

    def word(self, key: str) -> str:
        return WORDS[key][self.lang] if key in WORDS else key

    # Pieces

    def owner(self, name: str) -> str:
        """A reference to a rule or quantity."""
        return f":mb:rule:`{name}`" if name in self.base.rules else f":mb:quantity:`{name}`"

    def name(self, name: str) -> str:
        """A reference to what a name means."""
        return f":mb:quantity:`{name}`" if name in self.base.quantities else f":mb:term:`{name}`"

    def text(self, text: Text | None) -> str:
        """A template: names in braces become references."""
        if text is None:
            return ""
        parts = re.split(r"\{([A-Za-z_]\w*)[^}]*\}", text[self.lang])
        return "".join(f"\\ {self.name(part)}\\ " if n % 2 else esc(part) for n, part in enumerate(parts))

    def section(self, title: str, body: str, mark: str = "-") -> str:
        return f"\n{title}\n{mark * (2 * len(title) + 2)}\n\n{body}\n"

    def page(self, title: str, *parts: str) -> str:
        return f"{esc(title)}\n{'=' * (2 * len(esc(title)) + 2)}\n\n" + "\n".join(parts)

    def bullets(self, items: Iterable[str]) -> str:
        return "\n".join(f"* {item}" for item in items) + "\n"

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], css: str = "") -> str:
        """A table whose cells are reStructuredText."""
        out = [".. list-table::", "   :header-rows: 1"] + ([f"   :class: {css}"] if css else []) + [""]
        for row in [head, *rows]:
            out += [f"   {'* ' if n == 0 else '  '}- {cell}" for n, cell in enumerate(row)]
        return "\n".join(out) + "\n"

    def raw(self, html: str) -> str:
        return ".. raw:: html\n\n" + "".join(f"   {line}\n" for line in html.splitlines()) + "\n"

    def facts(self, facts: Mapping[str, Value]) -> str:
        """Given facts, as code with links."""
        return ", ".join(
            f"{self.name(k)} = {esc(show(v, self.base.terms.get(k), self.lang))}" for k, v in facts.items()
        ) or self.t("nothing", "无")

    def badge(self, text: str, css: str) -> str:
        return f'<span class="mb-badge mb-{css}">{escape(text)}</span>'

    def badges(self, *keys: str) -> str:
        return self.raw('<p class="mb-badges">' + " ".join(self.badge(self.word(k), k) for k in keys) + "</p>")

    def cells(self, cells: Mapping[str, Cell], links: Mapping[str, str]) -> str:
        """The row of badges, one a release, each a link to the lines there."""
        out = []
        for tag, cell in cells.items():
            word = self.word(cell.verdict if cell.tag is None or cell.verdict != "holds" else cell.tag)
            carried = (
                self.t(f", carried over from {cell.carried.source}", f"，沿用自 {cell.carried.source}")
                if (cell.carried)
                else ""
            )
            css = cell.tag if cell.verdict == "holds" and cell.tag else cell.verdict
            inner = f"<b>{tag}</b> {escape(word + carried)}"
            href = links.get(tag)
            body = (
                f'<a class="mb-badge mb-{css}" href="{escape(href)}">{inner}</a>'
                if href
                else (f'<span class="mb-badge mb-{css}">{inner}</span>')
            )
            out.append(f"<li>{body}</li>")
        return self.raw('<ul class="mb-cells">' + "".join(out) + "</ul>")

    def citation(self, citation: Citation) -> str:
        where = address(citation, self.base.latest)
        text = esc(str(citation) if citation.kind != "url" else citation.where["title"])
        return f"`{text} <{where}>`__" if where else text

    def evidence(self, owner: Rule | Quantity) -> str:
        """Badges, then every cited place with the very lines at each release."""
        row = self.site.rows.get(owner.id if isinstance(owner, Rule) else owner.name)
        places = self.site.places(owner)
        first: dict[str, str] = {}
        for found in places.values():
            for tag, where in found.items():
                first.setdefault(tag, where)
        parts = [self.cells(row.cells, first)] if row else []
        for place, found in places.items():
            parts.append(
                f"{self.place(place)}\n\n   "
                + " · ".join(f"`{tag} <{where}>`__" for tag, where in found.items())
                + "\n"
            )
        known = {p.key for p in places}
        runs = {tag: {e for e in cell.evidence if "-" in e} - known for tag, cell in row.cells.items()} if row else {}
        counted = " · ".join(f"{tag}: {len(ids)}" for tag, ids in runs.items() if ids)
        if counted:
            told = self.t(
                "Runs of the real code that confirm it, by release (their names are in matrix.json): ",
                "确认它的真实代码运行次数，按版本（运行名称见 matrix.json）：",
            )
            parts.append(told + counted + "\n")
        other = [c for c in owner.citations if c.kind in ("url", "data")]
        if other:
            parts.append(self.bullets(self.citation(c) for c in other))
        return "\n".join(parts)

    def place(self, place: Place) -> str:
        mark = "§ " if place.kind == "doc" else ""
        inside = f" (``{place.condition}``)" if place.condition else ""
        return f"``{place.path}`` {mark}``{place.name}``{inside}"

    # Rules

    def rule(self, id: str) -> str:
        """The page of a rule: the same parts in the same order for each."""
        rule = self.base.rules[id]
        t = self.t
        severities = list(dict.fromkeys(f.severity for r in self.base.revisions.values() if (f := rule.at(r))))
        head = [
            f".. mb:rule:: {id}\n",
            self.badges(rule.kind, *(severities or [rule.severity]), rule.status),
        ]
        if rule.withdrawn:
            head.append(f".. warning:: {t('Withdrawn: ', '已撤回：')}{esc(rule.withdrawn[self.lang])}\n")
        parts = [
            self.section(t("Statement", "结论"), self._statement(rule)),
            self.section(t("When it fires", "何时触发"), self._when(rule)),
            self.section(t("Why", "原因"), self.text(rule.because)),
            self.section(t("Fix", "修复"), self._fix(rule)),
        ]
        if rule.signs or rule.symptoms.en:
            parts.append(self.section(t("How it shows", "表现"), self._signs(rule)))
        parts += [
            self.section(t("Releases and evidence", "各版本与证据"), self.evidence(rule)),
            self.section(t("Examples", "示例"), self._examples(rule)),
            self.section(t("Related", "相关"), self._related(rule)),
            self.section(t("History", "历史"), self._history(rule)),
        ]
        return self.page(f"{id} {rule.title[self.lang]}", *head, *parts)

    def _statement(self, rule: Rule) -> str:
        parts = [self.text(rule.then.message) + "\n"] if rule.then.message else []
        if rule.then.derive:
            parts.append(self.t("It concludes:", "由此得出：") + "\n")
            parts.append(self.bullets(f"{self.name(n)} = :mb:expr:`{e}`" for n, e in rule.then.derive.items()))
        if rule.then.prefer:
            parts.append(self.t("Among candidates it prefers:", "在候选中偏好：") + "\n")
            parts.append(
                self.bullets(
                    f":mb:expr:`{that}` "
                    + self.t(f"(else ranked as {cost:.0%} slower)", f"（否则按慢 {cost:.0%} 排序）")
                    for that, cost in rule.then.prefer
                )
            )
        return "\n".join(parts)

    def _when(self, rule: Rule) -> str:
        forms: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for revision in self.base.revisions.values():
            if (here := rule.at(revision)) is not None:
                forms.setdefault((here.severity, here.when), []).append(revision.tag)
        parts = []
        for (severity, when), tags in forms.items():
            where = tags[0] if len(tags) == 1 else f"{tags[0]} – {tags[-1]}"
            parts.append(
                f"**{where}** ({self.word(severity)}) "
                + (self.t("all of:", "同时满足：") if len(when) > 1 else "")
                + "\n"
            )
            parts.append(
                self.bullets(f":mb:expr:`{c}`" for c in when)
                if when
                else self.t("Always, once its signs are seen.", "只要出现其迹象即适用。")
                if rule.kind == "diagnosis"
                else self.t("Always.", "始终。")
            )
            parts.append("")
        if not forms:
            parts.append(self.t("At no known release.", "在已知版本中均不触发。"))
        return "\n".join(parts)

    def _fix(self, rule: Rule) -> str:
        if rule.fix is None:
            return self.t(
                "No single fix is known; break one of the conditions above.",
                "没有单一的修复方式；使上述任一条件不成立即可。",
            )
        parts = [self.text(rule.fix.text) + "\n"] if rule.fix.text else []
        if rule.fix.set:
            parts.append(
                self.bullets(
                    f"``{self.base.terms[n].field}`` = "
                    + (
                        f":mb:expr:`{v[1:].strip()}`"
                        if isinstance(v, str) and v.startswith("=")
                        else esc(show(v, self.base.terms[n], self.lang))
                    )
                    for n, v in rule.fix.set.items()
                )
            )
        return "\n".join(parts)

    def _signs(self, rule: Rule) -> str:
        parts = []
        if rule.signs:
            parts.append(self.bullets(f"``{s.text}`` ({esc(s.by)})" for s in rule.signs))
        phrases = rule.symptoms.zh if self.lang == "zh" else rule.symptoms.en
        if phrases:
            parts.append(self.t("People say: ", "常见说法：") + esc(self.t("; ", "；").join(phrases)) + "\n")
        if rule.asks:
            parts.append(self.t("Worth knowing: ", "需要了解：") + ", ".join(map(self.name, rule.asks)) + "\n")
        if rule.confirm:
            parts.append(self.t("To confirm: ", "确认方法：") + self.text(rule.confirm) + "\n")
        return "\n".join(parts)

    def _examples(self, rule: Rule) -> str:
        out = []
        for fires, examples in ((True, rule.fires), (False, rule.quiet)):
            for example in examples:
                word = self.badge(
                    self.t("fires", "触发") if fires else self.t("quiet", "不触发"), "fires" if fires else "quiet"
                )
                out.append(self.raw(f"<p>{word}</p>"))
                at = self.t(f" at {example.bridge}", f"（{example.bridge}）") if example.bridge else ""
                out.append(self.facts(example.facts) + at + "\n")
                said = self._said(rule, example) if fires else ""
                if said:
                    out.append(f"   {esc(said)}\n")
                out.append(self.grid(example.facts))
        return "\n".join(out)

    def _said(self, rule: Rule, example: Example) -> str:
        spoken = [r for r in self.base.revisions.values() if rule.at(r)]
        tag = example.bridge or (spoken[-1].tag if spoken else None)
        if tag is None:
            return ""
        form = rule.at(self.base.revisions[tag])
        if form is None or form.then.message is None:
            return ""
        facts = infer(self.site.programs[tag], example.facts, "reference").facts
        return fill(form.then.message, facts, self.base.terms)[self.lang]

    def grid(self, facts: Mapping[str, Value]) -> str:
        """A diagram of the process grid, where an example gives one that can be drawn."""
        svg = drawings.grid_of(facts, self.lang)
        return self.raw(f'<figure class="mb-figure">{svg}</figure>') if svg else ""

    def _related(self, rule: Rule) -> str:
        t, rows = self.t, []
        for label, names in (
            (t("Related", "相关"), rule.related),
            (t("Refines", "细化"), (rule.refines,) if rule.refines else ()),
            (t("May be behind it", "可能的原因"), rule.causes),
            (t("Also in this topic", "同主题"), [r.id for r in self.site.topics[rule.topic] if r.id != rule.id]),
        ):
            if names:
                rows.append(f"{label}: " + ", ".join(map(self.owner, names)))
        above = sorted({o for n in self.site.reads.get(rule.id, ()) for o in self.site.derivers.get(n, ())} - {rule.id})
        below = sorted({o for n in self.site.derives.get(rule.id, ()) for o in self.site.readers.get(n, ())})
        if above:
            rows.append(t("Rests on: ", "依赖：") + ", ".join(map(self.owner, above)))
        if below:
            rows.append(t("Feeds: ", "被使用于：") + ", ".join(map(self.owner, below)))
        return self.bullets(rows) if rows else t("None.", "无。")

    def _history(self, rule: Rule) -> str:
        t = self.t
        rows = [t(f"Since {rule.since}.", f"自 {rule.since} 起收录。")]
        rows.append(t("Speaks of ", "适用版本：") + f"``{rule.bridge}``")
        for spec, change in rule.variants:
            rows.append(
                t(f"Differs at ``{spec}``: ", f"在 ``{spec}`` 有所不同：") + ", ".join(f"``{k}``" for k in change)
            )
        if rule.withdrawn:
            rows.append(t("Withdrawn: ", "撤回：") + esc(rule.withdrawn[self.lang]))
        return self.bullets(rows)

    # Quantities, models, GPUs, releases

    def quantity(self, name: str) -> str:
        quantity, term, t = self.base.quantities[name], self.base.terms[name], self.t
        forms: dict[str, list[str]] = {}
        for revision in self.base.revisions.values():
            if (formula := quantity.at(revision)) is not None:
                forms.setdefault(formula, []).append(revision.tag)
        formulas = []
        for formula, tags in forms.items():
            if len(forms) > 1:
                formulas.append(f"**{tags[0] if len(tags) == 1 else f'{tags[0]} – {tags[-1]}'}**\n")
            formulas.append(self.raw(f'<div class="mb-formula">{mathml(name, formula)}</div>'))
            formulas.append(f":mb:expr:`{formula}`\n")
        examples = []
        for given, value, tag in quantity.examples:
            at = t(f" at {tag}", f"（{tag}）") if tag else ""
            examples.append(f"{self.facts(given)}{at} → **{name} = {esc(show(value, term, self.lang))}**\n")
            examples.append(self.grid(given))
        users = self.site.readers.get(name, [])
        unit = "" if term.unit == "1" else f" · {t('unit', '单位')} ``{term.unit}``"
        return self.page(
            f"{name}: {term.title[self.lang]}",
            f".. mb:quantity:: {name}\n",
            self.badges("quantity", quantity.status),
            self.text(term.meaning) + "\n",
            f"``{term.field}`` · {t('type', '类型')} ``{term.type}``{unit}\n",
            self.section(t("Formula", "公式"), "\n".join(formulas)),
            self.section(t("Why", "原因"), self.text(quantity.because)) if quantity.because else "",
            self.section(t("Worked examples", "算例"), "\n".join(examples)),
            self.section(t("Releases and evidence", "各版本与证据"), self.evidence(quantity)),
            self.section(t("Used by", "被使用于"), ", ".join(map(self.owner, users)) or t("No rule.", "无规则使用。")),
        )

    def model(self, name: str) -> str:
        model, t = self.base.models[name], self.t
        arch = model.architecture
        total, active = total_parameters(arch), active_parameters(arch)
        counts = [[t("total", "总量"), f"{total:,}", f"{model.total_parameters:,.0f}"]]
        if model.active_parameters:
            counts.append([t("active per token", "每 token 激活"), f"{active:,}", f"{model.active_parameters:,.0f}"])
        parts = [
            f".. mb:model:: {name}\n",
            self.text(model.note) + "\n" if model.note else "",
            self.section(
                t("Parameters", "参数量"),
                self.table(
                    [t("count", "计数"), t("from the dimensions", "由维度计算"), t("as published", "公开数字")], counts
                ),
            ),
            self.section(
                t("Architecture", "结构"),
                self.table(
                    [t("field", "字段"), t("value", "值")],
                    [[self._field(k), esc(_short(v))] for k, v in _dimensions(arch)],
                    "mb-narrow",
                ),
            ),
            self.section(t("Memory by component", "显存组成"), self._memory(model)),
            self.section(t("Known grids", "已知网格"), self._recipes(model)),
            self.section(t("Sources", "出处"), self.bullets(map(self.citation, model.citations))),
        ]
        return self.page(model.title, *parts)

    def _field(self, field: str) -> str:
        term = self.base.by_field.get(field)
        return (
            f":mb:{'quantity' if term.name in self.base.quantities else 'term'}:`{field} <{term.name}>`"
            if (term)
            else f"``{field}``"
        )

    def _memory(self, model: Model) -> str:
        chart = drawings.memory_of(self.base, model, self.lang)
        if chart is None:
            return self.t(
                "No grid of up to 1,024 H100 is estimated to fit.", "估计 1,024 张 H100 以内没有放得下的网格。"
            )
        caption, svg = chart
        return esc(caption) + "\n\n" + self.raw(f'<figure class="mb-figure">{svg}</figure>')

    def _recipes(self, model: Model) -> str:
        rows: dict[tuple[str, ...], list[str]] = {}
        for key in model.recipe_keys:
            for r in load_recipes(self.base, key):
                sizes = [r.get("hardware"), r.get("num_gpus"), r.get("task"), r.get("precision"), r.get("seq_length")]
                grid = [r.get(n) for n in ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "gbs")]
                tags = rows.setdefault(tuple("–" if v is None else str(v) for v in (*sizes, *grid)), [])
                if r["tag"] not in tags:
                    tags.append(r["tag"])
        if not rows:
            return self.t("The vendor ships no recipe that is kept here.", "此处未收录厂商配方。")
        head = [
            "GPU",
            self.t("GPUs", "卡数"),
            self.t("task", "任务"),
            self.t("precision", "精度"),
            self.t("sequence", "序列长度"),
            "TP",
            "PP",
            "VPP",
            "CP",
            "EP",
            "ETP",
            "MBS",
            "GBS",
            self.t("releases", "版本"),
        ]
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(v)}</td>" for v in (*row, ", ".join(tags))) + "</tr>"
            for row, tags in sorted(rows.items())
        )
        top = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
        label = escape(self.t("Known grids", "已知网格"))
        return self.raw(
            f'<div class="mb-scroll" tabindex="0" role="region" aria-label="{label}"><table class="mb-table">'
            f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def gpu(self, name: str) -> str:
        gpu, t = self.base.gpus[name], self.t
        lines = [
            ("memory_bytes", t("device memory", "显存"), f"{gpu.memory_bytes / 1e9:.1f} GB"),
            ("memory_bandwidth", t("memory bandwidth", "显存带宽"), f"{gpu.memory_bandwidth / 1e12:.2f} TB/s"),
            *(
                ("peak_flops", f"{t('dense peak', '稠密峰值')} {p}", f"{v / 1e12:,.0f} TFLOP/s")
                for p, v in gpu.peak_flops.items()
            ),
            ("compute_capability", t("compute capability", "计算能力"), f"{gpu.compute_capability / 10:.1f}"),
            ("gpus_per_node", t("GPUs per node", "每节点 GPU 数"), str(gpu.gpus_per_node)),
            ("nvlink_domain", t("NVLink domain", "NVLink 域"), str(gpu.nvlink_domain)),
            (
                "nvlink_bandwidth",
                t("NVLink, one direction", "NVLink 单向带宽"),
                f"{gpu.nvlink_bandwidth / 1e9:,.0f} GB/s",
            ),
            (
                "network_bandwidth",
                t("network, one direction", "网络单向带宽"),
                f"{gpu.network_bandwidth / 1e9:,.0f} GB/s",
            ),
        ]
        if gpu.host_memory_bytes:
            size = f"{gpu.host_memory_bytes / 1e12:.2f} TB"
            lines.append(("host_memory_bytes", t("host memory of a node", "节点主机内存"), size))
        rows = [
            [esc(label), esc(v), self.citation(gpu.citations[k]) if k in gpu.citations else ""] for k, label, v in lines
        ]
        return self.page(
            gpu.name,
            f".. mb:gpu:: {name}\n",
            self.text(gpu.note) + "\n" if gpu.note else "",
            self.table([t("figure", "指标"), t("value", "值"), t("source", "出处")], rows),
            (t("Also called: ", "别名：") + esc(", ".join(gpu.aliases)) + "\n") if gpu.aliases else "",
        )

    def revision(self, tag: str) -> str:
        revision, t = self.base.revisions[tag], self.t
        tags = list(self.base.revisions)
        before = self.base.revisions[tags[tags.index(tag) - 1]] if tags.index(tag) else None
        core = f"https://github.com/NVIDIA/Megatron-LM/tree/{revision.core_commit}"
        bridge = f"https://github.com/NVIDIA-NeMo/Megatron-Bridge/tree/{revision.commit}"
        rows = [
            [t("released", "发布日期"), revision.released],
            ["Megatron Bridge", f"`{revision.commit[:12]} <{bridge}>`__"],
            ["Megatron Core", f"{esc(revision.core_version)} (`{revision.core_commit[:12]} <{core}>`__)"],
            *([esc(k), esc(str(v or "–"))] for k, v in revision.environment.items()),
        ]
        parts = [
            f".. mb:revision:: {tag}\n",
            self.text(revision.note) + "\n" if revision.note else "",
            self.section(
                t("Versions", "版本"), self.table([t("part", "组成"), t("version", "版本")], rows, "mb-narrow")
            ),
        ]
        if before is not None:
            parts.append(
                self.section(
                    t(f"What changed for parallelism since {before.tag}", f"相对 {before.tag}，并行相关的变化"),
                    self._changes(before, revision),
                )
            )
        parts.append(self.section(t("Sources", "出处"), self.bullets(map(self.citation, revision.citations))))
        return self.page(f"Megatron Bridge {tag}", *parts)

    def _changes(self, old: Revision, new: Revision) -> str:
        """What the matrix and the rules' forms say of two releases."""
        t = self.t
        groups: dict[str, list[str]] = {"new": [], "gone": [], "differs": [], "earned": []}
        for name, row in self.site.rows.items():
            a, b, owner = row.cells[old.tag], row.cells[new.tag], row.owner
            title = owner.title if isinstance(owner, Rule) else self.base.terms[name].title
            line = f"{self.owner(name)} {esc(title[self.lang])}"
            if a.verdict == "absent" and b.verdict != "absent":
                groups["new"].append(line)
            elif a.verdict != "absent" and b.verdict == "absent":
                groups["gone"].append(line)
            elif owner.at(old) != owner.at(new):
                groups["differs"].append(line)
            elif (a.verdict, a.tag) != (b.verdict, b.tag):
                words = [self.word(c.verdict if c.verdict != "holds" else c.tag or "holds") for c in (a, b)]
                groups["earned"].append(f"{line}: {words[0]} → {words[1]}")
        labels = {
            "new": t("Holds from here on", "从此版本起成立"),
            "gone": t("No longer speaks", "不再适用"),
            "differs": t("Differs", "有所不同"),
            "earned": t("Other evidence", "证据不同"),
        }
        parts = [f"**{labels[k]}**\n\n{self.bullets(lines)}" for k, lines in groups.items() if lines]
        return "\n".join(parts) or t("Nothing that the rules speak of.", "规则所涉及的内容没有变化。")

    # Lists for hand-written pages

    def rules_list(self) -> str:
        """All rules by topic."""
        out = []
        for topic, rules in self.site.topics.items():
            lines = []
            for r in rules:
                kind = self.word(r.kind)
                lines.append(f"{self.owner(r.id)} {esc(r.title[self.lang])} *({kind})*")
            out.append(self.section(topic, self.bullets(lines)))
        return "\n".join(out)

    def quantities_list(self) -> str:
        return self.bullets(f"{self.owner(n)} {esc(self.base.terms[n].title[self.lang])}" for n in self.base.quantities)

    def models_list(self) -> str:
        t = self.t
        head = [
            t("model", "模型"),
            t("parameters", "参数量"),
            t("active", "激活"),
            t("layers", "层数"),
            t("experts", "专家数"),
            t("shipped grids", "厂商网格数"),
        ]
        rows = []
        for m in self.base.models.values():
            a = m.architecture
            n = sum(len(load_recipes(self.base, key)) for key in m.recipe_keys)
            rows.append(
                [
                    f":mb:model:`{esc(m.title)} <{m.name}>`",
                    f"{total_parameters(a) / 1e9:.3g} B",
                    f"{active_parameters(a) / 1e9:.3g} B",
                    str(a.num_layers),
                    str(a.num_moe_experts or "–"),
                    str(n),
                ]
            )
        return self.table(head, rows, "mb-sortable")

    def gpus_list(self) -> str:
        t = self.t
        head = [
            "GPU",
            t("memory, GB", "显存 (GB)"),
            t("bandwidth, TB/s", "带宽 (TB/s)"),
            "BF16, TFLOP/s",
            "FP8",
            "FP4",
            t("NVLink domain", "NVLink 域"),
        ]

        def tera(gpu: Gpu, precision: str) -> str:
            return f"{gpu.peak_flops[precision] / 1e12:,.0f}" if precision in gpu.peak_flops else "–"

        rows = [
            [
                f":mb:gpu:`{g.name}`",
                f"{g.memory_bytes / 1e9:.1f}",
                f"{g.memory_bandwidth / 1e12:.2f}",
                *(tera(g, p) for p in ("bf16", "fp8", "fp4")),
                str(g.nvlink_domain),
            ]
            for g in self.base.gpus.values()
        ]
        return self.table(head, rows, "mb-sortable")

    def revisions_list(self) -> str:
        t = self.t
        head = [t("release", "版本"), t("date", "日期"), "Megatron Core", "PyTorch", "Transformer Engine", "CUDA"]
        names = ("pytorch", "transformer_engine", "cuda")
        rows = [
            [
                f":mb:revision:`{r.tag}`",
                r.released,
                esc(r.core_version),
                *(esc(str(r.environment.get(n) or "–")) for n in names),
            ]
            for r in self.base.revisions.values()
        ]
        return self.table(head, rows)

    def glossary(self) -> str:
        out = []
        for section, title in SECTIONS.items():
            terms = [x for x in self.base.terms.values() if x.section == section]
            out.append(self.section(title[self.lang], "\n".join(map(self._term, terms))))
        return "\n".join(out)

    def _term(self, term: Term) -> str:
        t = self.t
        facts = [f"``{term.field}``"]
        if term.path:
            paths = {str(term.path.at(r)) for r in self.base.revisions.values()} - {"None"}
            facts += [f"``{p}``" for p in sorted(paths)]
        facts.append(t("type ", "类型 ") + f"``{term.type}``")
        if term.unit != "1":
            facts.append(t("unit ", "单位 ") + f"``{term.unit}``")
        if term.default is not None:
            values = {str(term.default.at(r)) for r in self.base.revisions.values()}
            unset = t("unset", "未设置")
            facts.append(
                t("default ", "默认 ") + ", ".join(f"``{v if v != 'None' else unset}``" for v in sorted(values))
            )
        if term.values:
            facts.append(t("one of ", "可选 ") + ", ".join(f"``{v}``" for v in term.values))
        more = f" {t('See', '见')} :mb:quantity:`{term.name}`" if term.name in self.base.quantities else ""
        read = len(self.site.readers.get(term.name, ()))
        facts.append(t(f"read by {read}", f"被 {read} 条使用"))
        return (
            f".. mb:term:: {term.name}\n\n   **{esc(term.title[self.lang])}**. {self.text(term.meaning)}{more}\n\n"
            f"   {' · '.join(facts)}\n"
        )

    def diagnosis(self) -> str:
        """Index by symptom and by message."""
        t = self.t
        found = [r for r in self.base.rules.values() if r.kind == "diagnosis" and not r.withdrawn]
        by_symptom = []
        for r in found:
            phrases = r.symptoms.zh if self.lang == "zh" else r.symptoms.en
            if phrases:
                by_symptom.append(f"{esc(t('; ', '；').join(phrases))}: {self.owner(r.id)} {esc(r.title[self.lang])}")
        messages = sorted(
            {(s.text, r.id) for r in self.base.rules.values() for s in r.signs if not r.withdrawn},
            key=lambda pair: pair[0].lower(),
        )
        lines = [f"``{text}`` → {self.owner(id)} {esc(self.base.rules[id].title[self.lang])}" for text, id in messages]
        return self.section(t("By symptom", "按现象"), self.bullets(by_symptom)) + self.section(
            t("By message", "按报错信息"), self.bullets(lines)
        )

    def changelog(self) -> str:
        """Entries by the day since when they are there, and withdrawals."""
        t, days = self.t, {}
        for r in self.base.rules.values():
            days.setdefault(r.since, []).append(r)
        out = []
        for day in sorted(days, reverse=True):
            by_topic: dict[str, list[str]] = {}
            for r in days[day]:
                by_topic.setdefault(r.topic, []).append(self.owner(r.id))
            body = t(f"{len(days[day])} rules.", f"{len(days[day])} 条规则。") + "\n\n"
            out.append(self.section(day, body + self.bullets(f"{k}: {', '.join(v)}" for k, v in by_topic.items())))
        gone = [r for r in self.base.rules.values() if r.withdrawn]
        if gone:
            lines = self.bullets(f"{self.owner(r.id)} {esc(r.withdrawn[self.lang])}" for r in gone if r.withdrawn)
            out.append(self.section(t("Withdrawn", "已撤回"), lines))
        return f"{t('Knowledge base', '知识库')} {self.base.version}\n" + "\n".join(out)


def _dimensions(arch: Architecture) -> list[tuple[str, Any]]:
    return [(k, v) for k, v in arch.to_dict().items() if v is not None and v is not False]


def _short(value: Any) -> str:
    """A value; long lists of layers as runs."""
    if not isinstance(value, list | tuple) or len(value) < 8:
        return str(value)
    runs: list[list[Any]] = []
    for item in value:
        if runs and runs[-1][0] == item:
            runs[-1][1] += 1
        else:
            runs.append([item, 1])
    text = " + ".join(f"{n} × {item}" for item, n in runs[:12])
    return text + (" + …" if len(runs) > 12 else "")


LISTS: Mapping[str, Callable[[Pages], str]] = {
    "rules": Pages.rules_list,
    "quantities": Pages.quantities_list,
    "models": Pages.models_list,
    "gpus": Pages.gpus_list,
    "revisions": Pages.revisions_list,
    "glossary": Pages.glossary,
    "diagnosis": Pages.diagnosis,
}
