"""The parts of the exported skill that are generated from the knowledge base: tables, lists and reference pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..evidence.tags import tag_of
from ..knowledge import Knowledge
from ..knowledge.model import Citation, Lang, Revision, Rule

BRIDGE, CORE = "NVIDIA-NeMo/Megatron-Bridge", "NVIDIA/Megatron-LM"
VERSIONS = ("container", "pytorch", "transformer_engine", "cuda", "python")


class Pages:
    """Renders Markdown for one release and language.

    Attributes:
        rules: all rules as they stand at the release, in file order.
    """

    def __init__(self, base: Knowledge, revision: Revision, lang: Lang, words: Mapping[str, Any]) -> None:
        self.base, self.revision, self.lang, self.words = base, revision, lang, words
        self.colon = "：" if lang == "zh" else ": "
        self.rules: tuple[Rule, ...] = tuple(r for rule in base.rules.values() if (r := rule.at(revision)))
        self.page_of = {rule.id: _stem(rule) for rule in self.rules}

    def all(self) -> dict[str, str]:
        """Name of each reference page -> its text."""
        out = {
            "compatibility": self.releases(),
            "formulas": self.formulas(list(self.base.quantities), sources=True),
            "models": self.models(),
            "gpus": self.gpus(),
            "error-messages": self.messages(),
            "evidence": self.evidence(),
        }
        out = {
            name: f"# {self._in('pages', name, 'title')}\n\n{self._in('pages', name, 'intro')}\n\n{text}\n"
            for name, text in out.items()
        }
        for name, other in self._others().items():
            out[name] = f"# {self._differs(other)}\n\n{self.differences(other)}\n"
        for stem, rules in groupby(self.rules, key=_stem):
            kind = stem.partition("-")[0]
            title = f"# {self.words['kinds'][kind][self.lang]}{self.colon}{self._topic(stem)}"
            intro = self._in("kind_intro", kind)
            out[stem] = "\n\n".join([title, intro, *map(self.rule, rules)]) + "\n"
        return out

    def index(self) -> str:
        """All pages, with what they hold."""
        rows: list[Sequence[str]] = [
            (self._in("pages", name, "title"), "", f"[{name}](references/{name}.md)") for name in self.words["pages"]
        ]
        rows += [
            (self._differs(other), "", f"[{name}](references/{name}.md)") for name, other in self._others().items()
        ]
        counts: dict[str, int] = {}
        for stem in self.page_of.values():
            counts[stem] = counts.get(stem, 0) + 1
        for stem, count in counts.items():
            kind = self.words["kinds"][stem.partition("-")[0]][self.lang]
            rows.append((f"{kind}{self.colon}{self._topic(stem)}", str(count), f"[{stem}](references/{stem}.md)"))
        return self._table(("topic", "rules", "page"), rows)

    def first_rules(self, names: Iterable[str]) -> str:
        """The named rules that speak at the release, one line each."""
        here = {rule.id: rule for rule in self.rules}
        unknown = [name for name in names if name not in self.base.rules]
        assert not unknown, f"no such rules: {unknown}"
        return "\n".join(
            f"- [{r.id}](references/{self.page_of[r.id]}.md) {r.title[self.lang]} "
            f"({r.severity}, {self._tag(r.id)}): {_code(_all_of(r.when))}"
            for r in map(here.get, names)
            if r is not None
        )

    def preferences(self) -> str:
        """What ranks legal grids."""
        rows = [
            (rule.title[self.lang], _code(that), f"{cost:.0%}", f"{rule.id}{self._marked(rule.id)}")
            for rule in self.rules
            for that, cost in rule.then.prefer
        ]
        return self._table(("topic", "preference", "cost", "rule"), rows)

    def formulas(self, names: Iterable[str], *, sources: bool = False) -> str:
        """Quantities with their formulas at the release."""
        rows: list[Sequence[str]] = []
        for name in names:
            quantity = self.base.quantities[name]
            formula = quantity.at(self.revision)
            if formula is None:
                continue
            title = self.base.terms[name].title[self.lang]
            row = (f"`{name}`", title, _code(formula), self._tag(name))
            rows.append((*row, "; ".join(map(self.citation, quantity.citations))) if sources else row)
        heads = ("name", "meaning", "formula", "tag", "sources")
        return self._table(heads if sources else heads[:-1], rows)

    def releases(self, *, short: bool = False) -> str:
        """What each release pins."""
        heads = [self._label("release"), "Megatron Core", *(() if short else (self._label("commit"),))]
        heads += [self._label("released"), *(VERSIONS if not short else ("container", "python"))]
        rows = []
        for r in self.base.revisions.values():
            mark = f" {self._label('here')}" if r.tag == self.revision.tag else ""
            commit = () if short else (f"Bridge `{r.commit[:12]}`, Core `{r.core_commit[:12]}`",)
            versions = (_version(r, name) for name in (VERSIONS if not short else ("container", "python")))
            rows.append((f"{r.tag}{mark}", r.core_version, *commit, r.released, *versions))
        return _markdown(heads, rows)

    def differences(self, other: Revision) -> str:
        """Rules and formulas that read otherwise at another release."""
        lines = []
        for rule in self.base.rules.values():
            changes = self._changes(rule.at(self.revision), rule.at(other), other)
            if changes:
                lines.append(f"- {rule.id} {rule.title[self.lang]}{self.colon}{changes}")
        for quantity in self.base.quantities.values():
            formula = quantity.at(other)
            if formula != quantity.at(self.revision):
                lines.append(f"- `{quantity.name}`{self.colon}{_code(formula) if formula else self._label('absent')}")
        return "\n".join(lines or ["–"])

    def _others(self) -> dict[str, Revision]:
        """Page name -> each release but the locked one."""
        return {f"differs-{r.tag}": r for r in self.base.revisions.values() if r.tag != self.revision.tag}

    def _differs(self, other: Revision) -> str:
        return self._label("differs").format(tag=other.tag)

    def _changes(self, here: Rule | None, there: Rule | None, other: Revision) -> str:
        if there is None:
            return self._label("absent") if here else ""
        out = []
        if here is None or here.when != there.when:
            out.append(_code(_all_of(there.when)) if there.when else self._label("always"))
        if here is None or here.severity != there.severity:
            out.append(f"{self._label('severity')} {there.severity}")
        tag = tag_of(self.base, there.id, other.tag)
        if here is not None and tag != tag_of(self.base, here.id, self.revision.tag):
            out.append(tag)
        return "; ".join(out)

    def models(self) -> str:
        """The catalogue."""
        rows = []
        for m in self.base.models.values():
            a = m.architecture
            groups = a.num_query_groups or a.num_attention_heads
            heads = "MLA" if a.multi_latent_attention else f"{a.num_attention_heads} / {groups}"
            experts = f"{a.num_moe_experts} / {a.moe_router_topk}" if a.is_moe else "–"
            active = _billions(m.active_parameters) if m.active_parameters else "–"
            source = "; ".join(map(self.citation, m.citations[:1]))
            total = _billions(m.total_parameters)
            rows.append(
                (f"`{m.name}`", m.title, total, active, str(a.num_layers), str(a.hidden_size), heads, experts, source)
            )
        return self._table(
            ("name", "meaning", "total", "active", "layers", "hidden", "heads", "experts", "sources"), rows
        )

    def gpus(self) -> str:
        """The systems."""
        rows = []
        for g in self.base.gpus.values():
            peaks = ", ".join(f"{name} {rate / 1e12:,.0f}" for name, rate in g.peak_flops.items())
            sources = "; ".join(dict.fromkeys(map(self.citation, g.citations.values())))
            rows.append(
                (
                    g.name,
                    f"{g.memory_bytes / 1e9:,.1f} GB",
                    peaks,
                    str(g.gpus_per_node),
                    str(g.nvlink_domain),
                    f"{g.nvlink_bandwidth / 1e9:,.0f} GB/s",
                    f"{g.network_bandwidth / 1e9:,.0f} GB/s",
                    sources,
                )
            )
        return self._table(("system", "memory", "peaks", "node", "domain", "nvlink", "network", "sources"), rows)

    def messages(self) -> str:
        """Messages of the release, by alphabet."""
        rows = [
            (sign.text, sign.by, rule)
            for rule in self.rules
            for sign in rule.signs
            if self.revision.within(sign.bridge)
        ]
        return self._table(
            ("message", "by", "rule"),
            [
                (_code(text), by, f"{self._link(r)}{' (' + self._label('aftermath') + ')' if r.aftermath else ''}")
                for text, by, r in sorted(rows, key=lambda row: (row[0].lower(), row[2].id))
            ],
        )

    def evidence(self) -> str:
        """How many items have earned what, and the constants of the estimates with their fit."""
        tag = self.revision.tag
        counts: dict[tuple[str, str, str], int] = {}
        for rule in self.rules:
            cell = self.base.matrix.get("rules", {}).get(rule.id, {}).get(tag, {})
            key = (rule.kind, self._tag(rule.id), cell.get("verdict", "–"))
            counts[key] = counts.get(key, 0) + 1
        status = self._table(
            ("kind", "tag", "verdict", "count"), [(*key, str(count)) for key, count in sorted(counts.items())]
        )
        rows = []
        for name, c in self.base.calibration.items():
            fit = c.get("fit") or {}
            fitted = f"{fit['data']} ({fit['rows']})" if fit else self._label("assumed")
            rows.append((f"`{name}`", f"{c['value']:g}", c["meaning"][self.lang], fitted))
        return f"{status}\n\n{self._table(('constant', 'value', 'meaning', 'fitted'), rows)}"

    def rule(self, rule: Rule) -> str:
        """One rule, whole."""
        lines = list(self._lines(rule))
        return "\n".join(
            [f"## {rule.id} {rule.title[self.lang]}", "", f"{rule.severity} · {self._tag(rule.id)}", "", *lines]
        )

    def _lines(self, rule: Rule) -> Iterator[str]:
        def line(label: str, text: str) -> str:
            return f"- {self._label(label)}{self.colon}{text}"

        yield line("when", _code(_all_of(rule.when)) if rule.when else self._label("always"))
        if rule.then.message:
            yield line("says", rule.then.message[self.lang])
        yield line("why", rule.because[self.lang])
        if rule.then.derive:
            yield line("derives", "; ".join(_code(f"{k} = {v}") for k, v in rule.then.derive.items()))
        for that, cost in rule.then.prefer:
            yield line("prefers", f"{_code(that)} ({self._label('else').format(cost=f'{cost:.0%}')})")
        if rule.fix and rule.fix.text:
            yield line("fix", rule.fix.text[self.lang])
        if rule.fix and rule.fix.set:
            fields = (f"{self.base.terms[k].field} = {_literal(v)}" for k, v in rule.fix.set.items())
            yield line("set", "; ".join(map(_code, fields)))
        if rule.confirm:
            yield line("confirm", rule.confirm[self.lang])
        if rule.causes:
            here = {r.id: r for r in self.rules}
            yield line("causes", ", ".join(self._link(here[c]) if c in here else c for c in rule.causes))
        signs = [s.text for s in rule.signs if self.revision.within(s.bridge)]
        if signs:
            yield line("messages", "; ".join(map(_code, signs)))
        yield line("sources", "; ".join(map(self.citation, rule.citations)))

    def citation(self, citation: Citation) -> str:
        """A source, with a link to the release's own text where there is one."""
        where = citation.where
        if citation.kind == "url":
            return f"[{_cell(where['title'])}](<{where['url']}>)"
        path, repo = where.get("path"), where.get("repo")
        shown = _cell(
            " ".join(w for w in (path, where.get("symbol") or where.get("heading") or where.get("locator")) if w)
        )
        at = self._commit(repo, where.get("at"))
        return f"[{shown}](<https://github.com/{repo}/blob/{at}/{path}>)" if at and path else _cell(str(citation))

    def _commit(self, repo: str | None, at: str | None) -> str | None:
        """The commit of a citation at the release; None where the citation doesn't speak of it."""
        own = {BRIDGE: self.revision.tag, CORE: self.revision.core_commit}.get(repo or "")
        if at is None:
            return own
        try:
            SpecifierSet(at)
        except InvalidSpecifier:
            return at  # a tag or commit by itself
        return own if self.revision.within(at) else None

    def _tag(self, name: str) -> str:
        return tag_of(self.base, name, self.revision.tag)

    def _marked(self, name: str) -> str:
        return " (code_verified)" if self._tag(name) == "code_verified" else ""

    def _link(self, rule: Rule) -> str:
        return f"[{rule.id}]({self.page_of[rule.id]}.md)"

    def _label(self, name: str) -> str:
        text: str = self.words["labels"][name][self.lang]
        return text

    def _topic(self, stem: str) -> str:
        texts = self.words["topics"].get(stem.replace("-", "/", 1))
        return texts[self.lang] if texts else stem.partition("-")[2]

    def _in(self, *keys: str) -> str:
        found: Any = self.words
        for key in (*keys, self.lang):
            found = found[key]
        return str(found).format(tag=self.revision.tag)

    def _table(self, labels: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
        return _markdown([self._label(name) for name in labels], rows)


def _stem(rule: Rule) -> str:
    """Name of a rule's page: that of its file, ``kind-topic``."""
    path = PurePosixPath(rule.file)
    return f"{path.parent.name}-{path.stem}"


def _all_of(when: Sequence[str]) -> str:
    """The conditions as one, with parentheses where they are needed."""
    loose = (" or ", " if ")
    return " and ".join(f"({c})" if len(when) > 1 and any(w in c for w in loose) else c for c in when)


def _version(revision: Revision, name: str) -> str:
    """What the release states; else what its lock file holds."""
    stated, locked = revision.environment.get(name), revision.environment.get(f"{name}_locked")
    return stated or (f"{locked} (uv.lock)" if locked else "–")


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_pipe(cell) for cell in line)} |" for line in lines)


def _pipe(text: str) -> str:
    return " ".join(text.split()).replace("\\|", "|").replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("[", "\\[").replace("]", "\\]")


def _code(text: str) -> str:
    """A code span; with doubled marks where the text has one itself."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _literal(value: Any) -> str:
    if isinstance(value, str) and value.startswith("="):
        return value[1:].strip()
    return "null" if value is None else str(list(value) if isinstance(value, tuple) else value)


def _billions(count: float) -> str:
    return f"{count / 1e9:,.1f}B" if count >= 1e9 else f"{count / 1e6:,.0f}M"
