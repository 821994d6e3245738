"""``explain``: one rule, quantity, term, model, GPU or revision, whole."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import RequestError
from ..evidence.tags import tag_of
from ..intake.request import find_gpu, find_model, find_revision
from ..knowledge import Knowledge, load
from ..knowledge.model import ByRevision, Quantity, Revision, Rule, Status, Term, Text

LABELS: Mapping[str, str] = {
    "kind": "种类",
    "severity": "严重程度",
    "status": "依据",
    "revisions": "适用版本",
    "when": "触发条件",
    "says": "结论",
    "derives": "推出",
    "prefers": "偏好",
    "fix": "修复",
    "because": "原因",
    "sources": "出处",
    "fires on": "会触发的例子",
    "quiet on": "不触发的例子",
    "related": "相关规则",
    "since": "起始日期",
    "meaning": "含义",
    "field": "字段",
    "path": "路径",
    "type": "类型",
    "unit": "单位",
    "default": "默认值",
    "choices": "可选值",
    "formula": "公式",
    "read by": "被这些规则使用",
    "withdrawn": "已撤回",
}


@dataclass(frozen=True)
class Explanation:
    """Everything about one entry of the knowledge base.

    Attributes:
        name, title: what it is called.
        kind: rule, quantity, term, model, gpu or revision.
        parts: label -> text, in order; labels are English, ``lines`` translates them.
        data: the same for machines.
    """

    name: str
    kind: str
    title: Text
    parts: Mapping[str, Text]
    data: Mapping[str, Any] = field(default_factory=dict)

    def lines(self, lang: str) -> list[tuple[str, str]]:
        """``(label, text)`` in a language."""
        return [(LABELS.get(k, k) if lang == "zh" else k, v[lang]) for k, v in self.parts.items() if v[lang]]

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "title": self.title[lang], **self.data}


def explain(name: str, *, bridge: str | None = None, knowledge: Knowledge | None = None) -> Explanation:
    """Explain a rule id, a quantity or term (short name or Bridge field), a model, a GPU or a revision.

    Args:
        name: what to explain.
        bridge: the release whose wording of a rule is wanted; None: every release's.
        knowledge: another knowledge base than the packaged one.

    Raises:
        RequestError: no such entry (near names are suggested) or release.
    """
    base = knowledge or load()
    if bridge is not None:
        bridge = find_revision(bridge, base).tag
    key = name.strip()
    if key.upper() in base.rules:
        return _rule(base.rules[key.upper()], base, bridge)
    term = base.by_field.get(key) or base.by_field.get(key.rpartition(".")[2])
    if term is not None:
        return _term(term, base)
    if key in base.revisions or "v" + key in base.revisions:
        return _revision(base.revisions.get(key) or base.revisions["v" + key])
    for finder in (find_gpu, find_model):
        try:
            found: Any = finder(key, base)
        except RequestError:
            continue
        data = {k: v for k, v in _plain(found).items() if v is not None}
        parts = {k: Text(str(v), str(v)) for k, v in data.items() if k not in ("name", "title", "note")}
        title = getattr(found, "title", found.name)
        return Explanation(found.name, type(found).__name__.lower(), Text(title, title), parts, data)
    pool = [*base.rules, *base.by_field, *base.models, *base.gpus, *base.revisions]
    lower = {p.lower(): p for p in pool}
    near = [lower[n] for n in difflib.get_close_matches(key.lower(), lower, n=4, cutoff=0.5)]
    way = f"Did you mean {', '.join(near)}?" if near else "List rules with `mbridge-advisor rules`."
    raise RequestError("name", name, "is not a rule, quantity, term, model, GPU or revision", way)


def rule_data(rule: Rule, base: Knowledge) -> dict[str, Any]:
    """A rule as data, both languages, with the revisions at which it speaks."""
    return {
        "id": rule.id,
        "title": _both(rule.title),
        "kind": rule.kind,
        "severity": {r.tag: here.severity for r in base.revisions.values() if (here := rule.at(r))},
        "status": rule.status,
        "tags": tags_of(base, rule.id, [r for r in base.revisions.values() if rule.at(r)]),
        "bridge": rule.bridge,
        "revisions": [r.tag for r in base.revisions.values() if rule.at(r)],
        "when": list(rule.when),
        "message": _both(rule.then.message),
        "derive": dict(rule.then.derive),
        "prefer": [{"that": that, "cost": cost} for that, cost in rule.then.prefer],
        "fix": {"text": _both(rule.fix.text), "set": dict(rule.fix.set)} if rule.fix else None,
        "because": _both(rule.because),
        "citations": [c.to_dict() for c in rule.citations],
        "since": rule.since,
        "withdrawn": _both(rule.withdrawn),
        "related": list(rule.related),
        "examples": {
            "fires": [{**e.facts, **({"bridge": e.bridge} if e.bridge else {})} for e in rule.fires],
            "quiet": [{**e.facts, **({"bridge": e.bridge} if e.bridge else {})} for e in rule.quiet],
        },
    }


def tags_of(base: Knowledge, name: str, revisions: Iterable[Revision]) -> dict[str, Status]:
    """Release -> what a rule or quantity has earned there, by the matrix."""
    return {r.tag: tag_of(base, name, r.tag) for r in revisions}


def earned(tags: Mapping[str, Status]) -> str:
    """One word where all releases agree, else each with its releases."""
    by: dict[str, list[str]] = {}
    for release, tag in tags.items():
        by.setdefault(tag, []).append(release)
    return next(iter(by), "") if len(by) < 2 else "\n".join(f"{', '.join(r)}: {tag}" for tag, r in by.items())


def _both(text: Text | None) -> dict[str, str] | None:
    return {"en": text.en, "zh": text.zh} if text else None


def _same(text: str) -> Text:
    return Text(text, text)


def _rule(rule: Rule, base: Knowledge, bridge: str | None) -> Explanation:
    data = rule_data(rule, base)
    revisions = [r for r in base.revisions.values() if bridge in (None, r.tag)]
    forms: dict[str, list[str]] = {}
    for revision in revisions:
        here = rule.at(revision)
        if here is not None:
            forms.setdefault(f"{here.severity}: {' and '.join(f'({c})' for c in here.when)}", []).append(revision.tag)
    parts = {
        "kind": _same(rule.kind),
        "status": _same(earned(tags_of(base, rule.id, [r for r in revisions if rule.at(r)]))),
        "when": _same("\n".join(f"{', '.join(tags)}: {form}" for form, tags in forms.items())),
        "says": rule.then.message or _same(""),
        "derives": _same(", ".join(f"{k} = {v}" for k, v in rule.then.derive.items())),
        "prefers": _same(", ".join(f"{that} (else {cost:.0%} slower)" for that, cost in rule.then.prefer)),
        "fix": rule.fix.text if rule.fix and rule.fix.text else _same(""),
        "because": rule.because,
        "sources": _same("\n".join(map(str, rule.citations))),
        "fires on": _same("\n".join(_facts(e.facts, e.bridge) for e in rule.fires)),
        "quiet on": _same("\n".join(_facts(e.facts, e.bridge) for e in rule.quiet)),
        "related": _same(", ".join(rule.related)),
        "since": _same(rule.since),
        "withdrawn": rule.withdrawn or _same(""),
    }
    return Explanation(rule.id, "rule", rule.title, parts, data)


def _facts(facts: Mapping[str, Any], bridge: str | None) -> str:
    line = ", ".join(f"{k}={'unset' if v is None else v}" for k, v in facts.items())
    return f"{line} at {bridge}" if bridge else line


def _term(term: Term, base: Knowledge) -> Explanation:
    quantity = base.quantities.get(term.name)
    readers = [
        r.id for r in base.rules.values() if any(term.name in _words(c) for c in (*r.when, *r.then.derive.values()))
    ]
    defaults = {r.tag: term.default.at(r) for r in base.revisions.values()} if term.default else {}
    default = "" if set(defaults.values()) == {None} else _by_release(term.default, base)
    parts = {
        "field": _same(term.field),
        "path": _same(_by_release(term.path, base)),
        "type": _same(term.type),
        "unit": _same("" if term.unit == "1" else term.unit),
        "default": _same(default or ("unset" if term.nullable else "")),
        "choices": _same(", ".join(term.values)),
        "meaning": term.meaning,
        **(_quantity(quantity, base) if quantity else {}),
        "read by": _same(", ".join(readers)),
    }
    data = {
        "short": term.name,
        "field": term.field,
        "path": {r.tag: term.path.at(r) for r in base.revisions.values()} if term.path else None,
        "section": term.section,
        "type": term.type,
        "unit": term.unit,
        "nullable": term.nullable,
        "default": defaults,
        "values": list(term.values),
        "meaning": {"en": term.meaning.en, "zh": term.meaning.zh},
        "formula": {r.tag: quantity.at(r) for r in base.revisions.values()} if quantity else None,
        "tags": tags_of(base, term.name, [r for r in base.revisions.values() if quantity.at(r)]) if quantity else {},
        "read_by": readers,
    }
    return Explanation(term.name, "quantity" if quantity else "term", term.title, parts, data)


def _by_release(values: ByRevision | None, base: Knowledge) -> str:
    """One value where all releases agree, else each release with its own."""
    if values is None:
        return ""
    each = {r.tag: str(values.at(r)) for r in base.revisions.values()}
    return ", ".join(f"{t}: {v}" for t, v in each.items()) if len(set(each.values())) > 1 else next(iter(each.values()))


def _words(expression: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in expression).split())


def _quantity(quantity: Quantity, base: Knowledge) -> dict[str, Text]:
    forms: dict[str, list[str]] = {}
    for r in base.revisions.values():
        forms.setdefault(quantity.at(r) or "–", []).append(r.tag)
    out = {
        "formula": _same("\n".join(f"{', '.join(tags)}: {formula}" for formula, tags in forms.items())),
        "status": _same(earned(tags_of(base, quantity.name, [r for r in base.revisions.values() if quantity.at(r)]))),
        "sources": _same("\n".join(map(str, quantity.citations))),
    }
    if quantity.because:
        out["because"] = quantity.because
    return out


def _revision(revision: Revision) -> Explanation:
    rows: dict[str, Any] = {
        "commit": revision.commit,
        "megatron_core": f"{revision.core_version} ({revision.core_commit})",
        "released": revision.released,
        **revision.environment,
    }
    parts = {k: _same(str(v)) for k, v in rows.items() if v is not None}
    parts["sources"] = _same("\n".join(map(str, revision.citations)))
    title = f"Megatron Bridge {revision.tag}"
    return Explanation(revision.tag, "revision", _same(title), parts, rows)


def _plain(thing: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in vars(thing).items():
        if name == "architecture":
            out["architecture"] = {k: v for k, v in value.to_dict().items() if v is not None}
        elif name == "citations":
            cited = value.values() if isinstance(value, Mapping) else value
            out["citations"] = [c.to_dict() for c in cited]
        elif isinstance(value, Text):
            out[name] = {"en": value.en, "zh": value.zh}
        elif isinstance(value, Mapping):
            out[name] = dict(value)
        elif isinstance(value, tuple):
            out[name] = list(value)
        else:
            out[name] = value
    return out
