"""The audit of the usual guide as data, as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..knowledge.model import Revision
from .audit import VERDICTS, Audit, Cell, Claim, Verdict
from .source import CORE

PAGE = Path("docs") / "audit.md"
DATA = Path("docs") / "audit.json"
WORDS: Mapping[Verdict, tuple[str, str]] = {
    "holds": ("holds", "成立"),
    "in_part": ("in part", "部分成立"),
    "fails": ("does not hold", "不成立"),
    "not_applicable": ("n/a", "不适用"),
    "unjudged": ("can't be judged", "无法判断"),
}
_KINDS = {"claim": "论断", "formula": "公式", "example": "示例", "table": "表格", "anchor": "出处"}


def to_dict(audit: Audit, version: str) -> dict[str, Any]:
    """The whole audit, both languages (``schemas/audit.schema.json``); ``version``: of the knowledge base."""
    guide = audit.guide
    return {
        "title": vars(guide.title),
        "repo": guide.repo,
        "knowledge": version,
        "versions": [
            {
                "at": v.at,
                "commit": v.commit,
                "calls_itself": v.calls_itself,
                "same_as": _same_as(audit, v.at),
                "guide": v.guide,
                "card": v.card,
            }
            for v in guide.versions
        ],
        "releases": [r.tag for r in audit.revisions],
        "counts": {r.tag: audit.counts(r.tag) for r in audit.revisions},
        "surprises": [
            {"claim": claim, "release": tag, "verdict": cell.verdict, "expected": cell.expected}
            for claim, tag, cell in audit.surprises
        ],
        "claims": [
            {
                "id": claim.id,
                "kind": claim.kind,
                "says": vars(claim.says),
                "note": vars(claim.note) if claim.note else None,
                "stands": list(_stands(audit, claim)),
                "verdicts": {
                    r.tag: {
                        "verdict": audit.cells[claim.id][r.tag].verdict,
                        "found": [_linked(o.to_dict(), r) for o in audit.cells[claim.id][r.tag].outcomes],
                    }
                    for r in audit.revisions
                },
            }
            for claim in guide.claims
        ],
    }


def text(audit: Audit, lang: str) -> Iterator[str]:
    """Lines for a terminal: counts, then every claim with its verdicts, and why at the newest release."""
    zh = lang == "zh"
    for revision in audit.revisions:
        counted = ", ".join(f"{n} {WORDS[v][zh]}" for v, n in audit.counts(revision.tag).items() if n)
        yield f"{revision.tag}: {counted}"
    for claim in audit.guide.claims:
        row = audit.cells[claim.id]
        yield f"{claim.id} {claim.says[lang]}"
        yield f"    {_forms(row, zh)}"
        newest = row[audit.revisions[-1].tag]
        yield f"    {' '.join(o.text[lang] for o in newest.outcomes)}"
        if claim.note and newest.verdict != "holds":
            yield f"    → {claim.note[lang]}"
    for name, tag, cell in audit.surprises:
        seen = WORDS[cell.verdict][zh]
        reviewed = WORDS[cell.expected][zh] if cell.expected else "–"
        yield (
            f"{name} {tag}: {seen}（审阅结论：{reviewed}）"
            if zh
            else f"{name} at {tag}: {seen}, reviewed as {reviewed}"
        )


def markdown(audit: Audit, lang: str = "en") -> str:
    """The page."""
    zh = lang == "zh"
    out = [_TITLE[zh], "", _INTRO[zh], ""]
    out += ["| " + " | ".join(("版本" if zh else "release", *(WORDS[v][zh] for v in VERDICTS))) + " |"]
    out.append("| --- |" + " ---: |" * len(VERDICTS))
    for revision in audit.revisions:
        counts = audit.counts(revision.tag)
        out.append(f"| {revision.tag} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")
    out += ["", "## 指南的版本" if zh else "## Versions of the guide", ""]
    for v in audit.guide.versions:
        itself = f", {'自称' if zh else 'calls itself'} {v.calls_itself}" if v.calls_itself else ""
        same = _same_as(audit, v.at)
        equal = f", {'与' + same + '相同' if zh else 'the same text as ' + same}" if same else ""
        out.append(
            f"- {v.at}: [{v.guide}](https://github.com/{audit.guide.repo}/blob/{v.commit}/{v.guide}){itself}{equal}"
        )
    out += ["", "## 各项论断" if zh else "## Claims"]
    for claim in audit.guide.claims:
        out += ["", f"### {claim.id} {claim.says[lang]}", ""]
        kind = _KINDS[claim.kind] if zh else claim.kind
        places = {p["path"].rsplit("/", 1)[-1]: p for p in _stands(audit, claim)}  # of the newest version that has it
        shown = ", ".join(
            f"[{name}:{p['lines'][0]}-{p['lines'][1]}]({p['url']}) ({p['at']})" for name, p in places.items()
        )
        out.append(f"{kind}; {shown}" if shown else kind)
        out += ["", f"**{_forms(audit.cells[claim.id], zh)}**", ""]
        for tags, cell in _grouped(audit.cells[claim.id]):
            out.append(f"- {tags}: " + " ".join(o.text[lang] for o in cell.outcomes))
            if rules := _evidence(cell):
                out.append(f"  ({rules})")
        if claim.note:
            out += ["", claim.note[lang]]
    return "\n".join(out) + "\n"


def _forms(row: Mapping[str, Cell], zh: bool) -> str:
    """``does not hold: v0.2.0, v0.3.1; holds: v0.6.0``."""
    by: dict[Verdict, list[str]] = {}
    for tag, cell in row.items():
        by.setdefault(cell.verdict, []).append(tag)
    if len(by) == 1:
        return f"{WORDS[next(iter(by))][zh]}（所有版本）" if zh else f"{WORDS[next(iter(by))][0]} at all releases"
    return "; ".join(f"{WORDS[v][zh]}: {', '.join(tags)}" for v, tags in by.items())


def _grouped(row: Mapping[str, Cell]) -> list[tuple[str, Cell]]:
    """Releases at which the same was found, together."""
    by: dict[str, tuple[list[str], Cell]] = {}
    for tag, cell in row.items():
        by.setdefault(repr([(o.text, o.evidence) for o in cell.outcomes]), ([], cell))[0].append(tag)
    return [(", ".join(tags), cell) for tags, cell in by.values()]


def _evidence(cell: Cell) -> str:
    named: dict[str, None] = {}
    for outcome in cell.outcomes:
        for e in outcome.evidence:
            name = e.get("rule") or e.get("quantity")
            if name:
                named[f"{name} {e['tag']}"] = None
            for recipe in e.get("recipes", ()):
                named[recipe] = None
    return ", ".join(named)


def _linked(outcome: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """Places with the address of their very lines at the release."""
    for e in outcome["evidence"]:
        if "lines" in e:
            commit = revision.core_commit if e["repo"] == CORE else revision.commit
            e["url"] = _url(e["repo"], commit, e["place"], *e["lines"])
    return outcome


def _stands(audit: Audit, claim: Claim) -> Iterator[dict[str, Any]]:
    for v in audit.guide.versions:
        for file, first, last in audit.looked.lines.get(v.at, {}).get(claim.id, ()):
            path = v.guide if file == "guide" else v.card
            url = _url(audit.guide.repo, v.commit, path, first, last)
            yield {"at": v.at, "path": path, "lines": [first, last], "url": url}


def _url(repo: str, commit: str, path: str, first: int, last: int) -> str:
    plain = "?plain=1" if path.endswith(".md") else ""
    return f"https://github.com/{repo}/blob/{commit}/{path}{plain}#L{first}" + (f"-L{last}" if last != first else "")


def _same_as(audit: Audit, at: str) -> str | None:
    """The oldest version with the same text and card, if it is another one."""
    digests = audit.looked.digests
    same = next((v.at for v in audit.guide.versions if digests.get(v.at) == digests.get(at) is not None), at)
    return None if same == at else same


_TITLE = ("# The usual guide, audited", "# 常用指南的审计")
_INTRO = (
    'Most advice on parallelism in Megatron Bridge goes back to one guide, the skill "parallelism strategies" in its '
    "repository and the card beside it. Here each of its claims, in our words, is judged at each release by a machine: "
    "against rules that were verified in the code, by `check` on the guide's own examples, by the lines that it names, "
    "and against the recipes that the vendor ships. A recipe is *tuned* where it is shipped for benchmarks on a named "
    "system; the others are library defaults. A practice holds where at least 90 % of the tuned grids follow it, and "
    "does not hold where at most 10 % do; with no tuned grid, or no recipe of the model in our facts, it can't be "
    "judged. Written by `mbridge-advisor audit --write`; data with both languages in audit.json.",
    "Megatron Bridge 的并行建议大多源自同一份指南：其仓库中的“并行策略”技能文档及其卡片。"
    "本页用自己的话复述其中的每一条论断，并由程序在每个版本上判断：对照已在代码中验证的规则、"
    "用 `check` 检查指南自己的示例、核对它所列的行号，以及对照厂商发布的配方。"
    "为指定系统的基准测试发布的配方称为“调优”配方，其余为库默认配方。"
    "至少 90% 的调优网格符合时判为成立，至多 10% 符合时判为不成立；没有调优网格，"
    "或配方数据中没有该模型时，无法判断。双语数据见 audit.json，由 `mbridge-advisor audit --write` 写出。",
)
