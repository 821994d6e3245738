"""Records that the repository keeps as data: the audit of the usual guide, and faults of shipped recipes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from mbridge_advisor.evidence.audit_page import WORDS
from mbridge_advisor.knowledge.model import Text

from .pages import Pages, esc

CLAIMS: Mapping[str, Text] = {
    "claim": Text("claim", "论断"),
    "formula": Text("formula", "公式"),
    "example": Text("example", "示例"),
    "table": Text("table", "表格"),
    "anchor": Text("named place", "出处"),
}


def _kept(pages: Pages, name: str) -> Any:
    return json.loads((Path(pages.base.root) / "docs" / name).read_text(encoding="utf-8"))


def _verdict(pages: Pages, verdict: str) -> str:
    return {str(k): words for k, words in WORDS.items()}[verdict][pages.lang == "zh"]


def audit(pages: Pages, request: dict[str, Any]) -> str:
    """Every claim of the guide with its verdict at each release."""
    t, data = pages.t, _kept(pages, "audit.json")
    head = [t("release", "版本"), *(_verdict(pages, v) for v in WORDS)]
    counts = [[tag, *(str(found[v]) for v in WORDS)] for tag, found in data["counts"].items()]
    versions = []
    for v in data["versions"]:
        link = f"`{esc(v['guide'])} <https://github.com/{data['repo']}/blob/{v['commit']}/{v['guide']}>`__"
        own = t(f", calls itself {v['calls_itself']}", f"，自称 {v['calls_itself']}") if v["calls_itself"] else ""
        same = t(f", the same text as {v['same_as']}", f"，与 {v['same_as']} 相同") if v["same_as"] else ""
        versions.append(f"{v['at']}: {link}{esc(own + same)}")
    return "\n".join([
        pages.table(head, counts),
        pages.section(t("Versions of the guide", "指南的版本"), pages.bullets(versions)),
        pages.section(t("Claims", "各项论断"), "\n".join(_claim(pages, claim) for claim in data["claims"])),
    ])  # fmt: skip


def _claim(pages: Pages, claim: Mapping[str, Any]) -> str:
    places = {p["path"].rsplit("/", 1)[-1]: p for p in claim["stands"]}  # of the newest version that has it
    shown = [f"`{esc(name)}:{p['lines'][0]} <{p['url']}>`__ ({p['at']})" for name, p in places.items()]
    cells = "".join(
        f'<li><span class="mb-badge mb-{row["verdict"]}"><b>{tag}</b> {escape(_verdict(pages, row["verdict"]))}'
        "</span></li>"
        for tag, row in claim["verdicts"].items()
    )
    found: dict[str, list[str]] = {}
    for tag, row in claim["verdicts"].items():
        text = " ".join(esc(outcome["text"][pages.lang]) for outcome in row["found"])
        evidence = ", ".join(dict.fromkeys(_evidence(pages, row["found"])))
        found.setdefault(f"{text} {evidence}".rstrip(), []).append(tag)
    body = [
        CLAIMS[claim["kind"]][pages.lang] + "".join(f" · {place}" for place in shown) + "\n",
        pages.raw(f'<ul class="mb-cells">{cells}</ul>'),
        pages.bullets(f"{', '.join(tags)}: {text}" for text, tags in found.items()),
    ]
    if claim["note"]:
        body.append(esc(claim["note"][pages.lang]) + "\n")
    # The title differs by language, the address of a claim doesn't.
    title = f"{claim['id']} {esc(claim['says'][pages.lang])}"
    return f"\n.. _audit-{claim['id'].lower()}:\n" + pages.section(title, "\n".join(body), "~")


def _evidence(pages: Pages, found: list[dict[str, Any]]) -> Iterator[str]:
    """References to the rules, quantities, lines and recipes behind a verdict."""
    for entry in (e for outcome in found for e in outcome["evidence"]):
        if name := entry.get("rule") or entry.get("quantity"):
            yield pages.owner(name)
        if "url" in entry:
            yield f"`{esc(entry['place'])}:{entry['lines'][0]} <{entry['url']}>`__"
        yield from (f"``{recipe}``" for recipe in entry.get("recipes", ()))


def faults(pages: Pages, request: dict[str, Any]) -> str:
    """Recipes that their own release refuses, by release."""
    t, data = pages.t, _kept(pages, "recipe-faults.json")
    rows: list[dict[str, Any]] = data["faults"]
    judged = (
        f"{data['recipes']:,} recipes of {data['releases']} releases were judged; {len(rows)} have a fault.",
        f"共判断 {data['releases']} 个版本的 {data['recipes']:,} 个配方，其中 {len(rows)} 个有错误。",
    )
    out = [t(*judged) + "\n"]
    for tag in dict.fromkeys(row["release"] for row in rows):
        here = [row for row in rows if row["release"] == tag]
        title = t(f"{tag}: {len(here)} recipes", f"{tag}：{len(here)} 个配方")
        out.append(pages.section(title, "\n".join(_fault(pages, row) for row in here)))
    return "\n".join(out)


def _fault(pages: Pages, row: Mapping[str, Any]) -> str:
    t = pages.t
    said = []
    for fault in row["faults"]:
        fix = f" {t('Fix:', '修复：')} {esc(fault['fix'][pages.lang])}" if fault["fix"] else ""
        said.append(f"{pages.owner(fault['rule'])} {esc(fault['wrong'][pages.lang])}{fix}")
    said.append(f"{t('Why:', '原因：')} {esc(row['why'][pages.lang])}")
    places = {p["url"]: f"`{esc(p['path'].rsplit('/', 1)[-1])}:{p['line']} <{p['url']}>`__" for p in row["places"]}
    if places:
        said.append(t("Lines: ", "所在行：") + ", ".join(places.values()))
    inner = "".join(f"  * {line}\n" for line in said)
    return f"* `{esc(row['recipe'])} <{row['url']}>`__\n\n{inner}"


@cache
def history(root: Path) -> tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...]:
    """Commits that added or removed rules, newest first: day, commit, ids added, ids removed. None without git."""
    words = ["log", "--format=%x00%ad %h", "--date=short", "-U0", "-G^  - id: MB-", "-p", "--", "knowledge/rules"]
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=False)
    except OSError:
        return ()
    out = []
    for block in done.stdout.decode("utf-8", "replace").split("\0")[1:]:
        day, commit = block.splitlines()[0].split()
        added, removed = (set(re.findall(rf"^[{sign}]  - id: (MB-[\w-]+)", block, re.MULTILINE)) for sign in "+-")
        if added != removed:  # else moved
            out.append((day, commit, tuple(sorted(added - removed)), tuple(sorted(removed - added))))
    return tuple(out)


def changes(pages: Pages, request: dict[str, Any]) -> str:
    """The knowledge's changelog, and what the repository's history says where there is one."""
    t, out = pages.t, [pages.changelog()]
    rows = [
        [day, f"``{commit}``", *(_ids(pages, ids) for ids in (added, removed))]
        for day, commit, added, removed in history(Path(pages.base.root))
    ]
    if rows:
        head = [t("day", "日期"), t("commit", "提交"), t("added", "新增"), t("removed", "移除")]
        out.append(pages.section(t("From the history of the repository", "来自仓库历史"), pages.table(head, rows)))
    return "\n".join(out)


def _ids(pages: Pages, ids: tuple[str, ...]) -> str:
    """Rules as references; those that are gone, as code; many, as a count by topic."""
    if len(ids) > 12:
        topics: dict[str, int] = {}
        for id in ids:
            topics[id.split("-")[1]] = topics.get(id.split("-")[1], 0) + 1
        listed = pages.t(", ", "、").join(f"{topic} {count}" for topic, count in topics.items())
        return f"{len(ids)} ({listed})" if pages.lang == "en" else f"{len(ids)}（{listed}）"
    return ", ".join(pages.owner(id) if id in pages.base.rules else f"``{id}``" for id in ids) or "–"
