"""An agent skill (https://agentskills.io/specification) generated from the knowledge base, locked to one release.

The folder depends on the knowledge base and the templates only: the same knowledge gives the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ..errors import AdvisorError
from ..evidence.tags import tag_of
from ..intake.request import find_revision
from ..knowledge import Knowledge, load
from ..knowledge.model import Lang, Revision
from .pages import Pages

GENERATOR = "mbridge-advisor"


class ExportError(AdvisorError):
    """The skill can't be written there."""


def export_skill(
    folder: Path, *, lang: Lang = "en", bridge: str | None = None, knowledge: Knowledge | None = None
) -> Path:
    """Write the skill into a folder of skills; an earlier export of it is replaced.

    Args:
        folder: where skills lie; the skill gets a folder of its own name in it, as the specification asks.
        lang: language of its texts.
        bridge: the release to lock it to; None: the newest known.
        knowledge: another knowledge base than the packaged one.

    Returns:
        The skill's folder.

    Raises:
        RequestError: no such release.
        ExportError: there is something that isn't an export of this skill, or it can't be written.
    """
    content = build_skill(lang=lang, bridge=bridge, knowledge=knowledge)
    target = folder / str(words()["name"][lang])
    try:
        _refuse_foreign(target, content)
        for name, text in content.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, text)
    except (OSError, ValueError) as problem:
        raise ExportError(f"{target}: {problem}.") from None
    return target


def build_skill(
    *, lang: Lang = "en", bridge: str | None = None, knowledge: Knowledge | None = None
) -> Mapping[str, str]:
    """The files of the skill: relative path -> text.

    Raises:
        RequestError: no such release.
    """
    base = knowledge or load()
    revision = find_revision(bridge, base)
    pages = Pages(base, revision, lang, words())
    evals = build_evals(base, revision, lang)
    return {
        "SKILL.md": _front_matter(base, revision, lang) + _body(base, revision, lang, pages),
        "CHANGELOG.md": _changelog(base, lang),
        "card.yaml": _yaml(_card(base, revision, lang)),
        "evals/evals.json": json.dumps(evals, ensure_ascii=False, indent=2) + "\n",
        **{f"references/{name}.md": text for name, text in pages.all().items()},
    }


def build_evals(base: Knowledge, revision: Revision, lang: Lang) -> list[dict[str, Any]]:
    """The cases that hold at a release, in the vendor's form (``expected_skill`` is null where it must not trigger).

    ``confirm`` says how the engine confirms a case: the operation and what it is given, and in its answer the values at
    dotted paths (``equals``), rule ids among findings or causes (``rules``), or the request's field that is refused
    (``error``).
    """
    out = []
    for case in _evals():
        if not revision.within(case.get("bridge", ">=0")):
            continue
        positive = case["kind"] != "negative"
        row = {
            "id": case["id"],
            "kind": case["kind"],
            "question": case["question"][lang],
            "expected_skill": words()["name"][lang] if positive else None,
            "expected_script": None,
            "ground_truth": case["answer"][lang].replace("{tag}", revision.tag),
            "expected_behavior": case.get("behavior", {}).get(lang, []),
        }
        if "confirm" in case:
            confirm = dict(case["confirm"])
            if "request" in confirm:
                confirm["request"] = {"bridge": revision.tag, **confirm["request"]}
            row["confirm"] = confirm
        out.append(row)
    return out


@cache
def words() -> Mapping[str, Any]:
    """The short texts and choices of the skill (templates/words.yaml)."""
    found: Mapping[str, Any] = yaml.safe_load(_template("words.yaml"))
    return found


@cache
def _evals() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(_template("evals.yaml"))
    return found


def _template(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _front_matter(base: Knowledge, revision: Revision, lang: Lang) -> str:
    known = words()

    def text(key: str) -> str:
        filled: str = known[key][lang].format(tag=revision.tag, core_version=revision.core_version)
        return filled

    data = {
        "name": known["name"][lang],
        "description": text("description"),
        "license": known["license"],
        "compatibility": text("compatibility"),
        "metadata": {
            "author": known["author"],
            "version": base.version,
            "tags": known["tags"],
            "language": lang,
            "generator": GENERATOR,
            "megatron-bridge": revision.tag,
            "megatron-core": revision.core_version,
            "knowledge-digest": base.digest[:16],
        },
        "allowed-tools": known["tools"],
    }
    # One line a value: the reference parser is strict.
    return f"---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10**6)}---\n\n"


def _body(base: Knowledge, revision: Revision, lang: Lang, pages: Pages) -> str:
    constants = base.calibration_values
    tags = Counter(tag_of(base, rule.id, revision.tag) for rule in pages.rules)
    sizes: dict[int, list[str]] = {}
    for gpu in base.gpus.values():
        sizes.setdefault(gpu.nvlink_domain, []).append(gpu.name)
    label = "{n} GPU: {names}" if lang == "en" else "{n} 卡：{names}"
    domains = [label.format(n=n, names=", ".join(names)) for n, names in sorted(sizes.items())]
    values = {
        "tag": revision.tag,
        "commit": revision.commit[:12],
        "released": revision.released,
        "core_version": revision.core_version,
        "core_commit": revision.core_commit[:12],
        "knowledge": base.version,
        "author": words()["author"],
        "rules": len(pages.rules),
        "constraints": sum(rule.kind == "constraint" for rule in pages.rules),
        "verified": tags["code_verified"],
        "doc_only": tags["doc_only"],
        "models": len(base.models),
        "tags": ", ".join(base.revisions),
        "min_gpus": base.quantities["min_gpus"].at(revision),
        "fragmentation": f"{constants['fragmentation']:.0%}",
        "outside": f"{constants['outside_allocator_bytes'] / 1e9:.1f} GB",
        "low": f"{constants['time_range_low']:.0%}" if lang == "en" else f"{constants['time_range_low']:.2f}",
        "high": f"{constants['time_range_high']:.0%}" if lang == "en" else f"{constants['time_range_high']:.2f}",
        "domains": "; ".join(domains) if lang == "en" else "；".join(domains),
        "preferences": pages.preferences(),
        "formulas": pages.formulas(words()["first_quantities"]),
        "first_rules": pages.first_rules(words()["first_rules"]),
        "compatibility": pages.releases(short=True),
        "pages": pages.index(),
        "limitations": "\n".join(f"- {line}" for line in words()["limitations"][lang]),
        "examples": "\n\n".join(
            f"**{case['question'][lang]}**\n\n{case['answer'][lang].replace('{tag}', revision.tag)}"
            for case in _evals()
            if case.get("shown") and revision.within(case.get("bridge", ">=0"))
        ),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(values[found[1]]), _template(f"SKILL.{lang}.md"))


def _card(base: Knowledge, revision: Revision, lang: Lang) -> dict[str, Any]:
    """What each item is worth at the release, in the form of the vendor's cards, with the evidence behind it."""
    rules = [rule for each in base.rules.values() if (rule := each.at(revision))]
    names = [*(r.id for r in rules), *(q.name for q in base.quantities.values() if q.at(revision))]
    status = {name: tag_of(base, name, revision.tag) for name in names}
    cells = {**base.matrix.get("rules", {}), **base.matrix.get("quantities", {})}
    found = {name: cells[name][revision.tag] for name in names if revision.tag in cells.get(name, {})}
    cited = {
        f"{c.where['repo']} {c.where['path']}" for r in rules for c in r.citations if c.kind in ("code", "doc")
    } | {c.where["url"] for r in rules for c in r.citations if c.kind == "url"}
    known = words()
    return {
        "title": known["title"][lang],
        "validated_on": max(rule.since for rule in base.rules.values()),
        "locked_to": {
            "megatron_bridge": revision.tag,
            "bridge_commit": revision.commit,
            "megatron_core": revision.core_version,
            "core_commit": revision.core_commit,
            "knowledge": base.version,
            "knowledge_digest": base.digest,
        },
        "summary": known["summary"][lang].format(
            rules=len(rules),
            tag=revision.tag,
            verified=sum(status[rule.id] == "code_verified" for rule in rules),
        ),
        "validation_status": {name: [tag] for name, tag in status.items()},
        "verdicts": {
            name: {"verdict": cell["verdict"], "evidence": list(cell.get("evidence", ()))}
            for name, cell in found.items()
        },
        "known_constraints": [f"{rule.id}: {rule.title[lang]}" for rule in rules if rule.id in known["first_rules"]],
        "known_limitations": known["limitations"][lang],
        "config_keys": sorted(
            {
                str(path)
                for term in base.terms.values()
                if term.section == "grid" and term.path and (path := term.path.at(revision))
            }
        ),
        "evidence": sorted(cited),
        "follow_up_validation": known["follow_up"][lang],
    }


def _changelog(base: Knowledge, lang: Lang) -> str:
    """By the dates that the rules bear, newest first."""
    by_date: dict[str, list[str]] = {}
    for rule in base.rules.values():
        by_date.setdefault(rule.since, []).append(rule.id)
    title, head, added, gone = {
        "en": ("# Changelog", "Knowledge base {}", "{} rules added", "Withdrawn"),
        "zh": ("# 变更记录", "知识库 {}", "新增 {} 条规则", "已撤回"),
    }[lang]
    lines = [title, "", head.format(base.version)]
    for date in sorted(by_date, reverse=True):
        topics = Counter(name.split("-")[1] for name in by_date[date])
        counted = ", ".join(f"{topic} {count}" for topic, count in sorted(topics.items()))
        lines += ["", f"## {date}", "", f"- {added.format(len(by_date[date]))}: {counted}"]
    withdrawn = [f"{rule.id}: {rule.withdrawn[lang]}" for rule in base.rules.values() if rule.withdrawn]
    if withdrawn:
        lines += ["", f"## {gone}", "", *(f"- {line}" for line in withdrawn)]
    return "\n".join(lines) + "\n"


def _yaml(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _refuse_foreign(target: Path, content: Mapping[str, str]) -> None:
    """Only an empty place, or an earlier export with nothing added, may be written to."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ExportError(f"{target} is not a folder.")
    there = sorted(target.rglob("*")) if target.exists() else []
    if not there:
        return
    head = target / "SKILL.md"
    mark = f"  generator: {GENERATOR}\n"
    if not head.is_file() or mark not in head.read_text(encoding="utf-8", errors="replace"):
        raise ExportError(f"{target} is not empty and not an export of this skill. Choose another folder.")
    ours = {target / name for name in content}
    folders = {parent for path in ours for parent in path.parents}
    for path in there:
        if path.is_symlink() or (path not in ours and path not in folders):
            raise ExportError(f"{path} is not part of the skill. Move it away, or remove the old export first.")


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".export-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
