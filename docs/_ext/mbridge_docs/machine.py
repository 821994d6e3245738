"""What lies beside the pages for machines: data, schemas, the feed of changes, and the index of the search."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from mbridge_advisor.advice import listing
from mbridge_advisor.knowledge.locate import own_root
from mbridge_advisor.knowledge.model import Rule
from sphinx.application import Sphinx

from .domain import KnowledgeDomain
from .reference import openapi
from .site import Site, site

ADDRESS = "https://mbridge-advisor.org/"
"""Where the schemas' own ids say that the site is."""


def data(site: Site) -> dict[str, Any]:
    """File name -> content: what ``rules``, ``models``, ``gpus``, ``revisions`` and ``matrix show`` print as JSON."""
    base = site.base
    return {
        "rules.json": listing.rules(base),
        "facts.json": {
            "models": listing.models(base, "en"),
            "gpus": listing.gpus(base, "en"),
            "revisions": listing.revisions(base, "en"),
        },
        "matrix.json": [
            {"name": r.name, "kind": r.kind, "cells": {t: c.to_dict() for t, c in r.cells.items()}}
            for r in site.rows.values()
        ],
    }


def dumped(content: Any) -> str:
    """JSON as the commands print it."""
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def feed(site: Site, lang: str) -> str:
    """Changes of the knowledge as Atom: one entry a day and topic, one a withdrawal."""
    zh = lang == "zh"
    groups: dict[tuple[str, str], list[Rule]] = {}
    for rule in site.base.rules.values():
        groups.setdefault((rule.since, rule.topic), []).append(rule)
    newest = max((day for day, _ in groups), default="1970-01-01")
    out = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom"><title>mbridge-advisor: '
        f"{'知识变更' if zh else 'changes of the knowledge'}</title>",
        f'<id>{ADDRESS}changes.atom</id><link rel="self" href="{ADDRESS}changes.atom"/>',
        f"<updated>{newest}T00:00:00Z</updated><author><name>mbridge-advisor</name></author>",
    ]
    for (day, topic), rules in sorted(groups.items(), reverse=True):
        text = "\n".join(f"{r.id} {r.title[lang]}" for r in rules)
        out.append(
            _entry(
                f"{day}-{topic}",
                f"{topic}：{len(rules)} 条规则" if zh else f"{topic}: {len(rules)} rules",
                day,
                rules[0].id,
                text,
            )
        )
    for rule in site.base.rules.values():
        if rule.withdrawn:
            out.append(
                _entry(
                    f"withdrawn-{rule.id}",
                    f"{rule.id} {'已撤回' if zh else 'withdrawn'}",
                    newest,
                    rule.id,
                    rule.withdrawn[lang],
                )
            )
    return "\n".join(out) + "</feed>\n"


def _entry(id: str, title: str, day: str, rule: str, text: str) -> str:
    return (
        f"<entry><id>{ADDRESS}changes/{escape(id)}</id><title>{escape(title)}</title><updated>{day}T00:00:00Z</updated>"
        f'<link href="{ADDRESS}rules/{rule}.html"/><content type="text">{escape(text)}</content></entry>'
    )


def search_index(app: Sphinx) -> list[dict[str, str]]:
    """What the search finds: every object and hand-written page with its address, title and searched text."""
    domain = app.env.get_domain("mb")
    assert isinstance(domain, KnowledgeDomain)
    found = site()
    out = []
    for (kind, name), (page, anchor, title) in sorted(domain.objects.items()):
        address = f"{page}.html" + (f"#{anchor}" if kind == "term" else "")
        words = _once(_words(found, kind, name))
        out.append({"kind": kind, "name": name, "title": title, "url": address, "text": words})
    for page in sorted(app.env.found_docs):
        if "/" not in page:
            title = app.env.titles[page].astext()
            # What lists say of objects is found by the objects themselves.
            parts = app.env.get_doctree(page).findall(
                lambda n: isinstance(n, nodes.paragraph | nodes.literal_block | nodes.title)
            )
            words = _once(p.astext() for p in parts if page not in LISTS)
            out.append({"kind": "page", "name": title, "title": "", "url": f"{page}.html", "text": words})
    return out


LISTS = ("rules", "quantities", "glossary", "matrix", "diagnosis", "changes")
"""Pages that only list objects."""


def _once(texts: Iterable[str]) -> str:
    """Each word once: the search looks for words, in any order."""
    return " ".join(dict.fromkeys(" ".join(texts).lower().split()))


def _words(site: Site, kind: str, name: str) -> Iterator[str]:
    """What someone may type to find an object: names, fields, conditions, messages, in both languages."""
    base = site.base
    yield name
    if kind == "rule":
        rule = base.rules[name]
        message, fix = rule.then.message, rule.fix
        for text in (rule.title, message, rule.because, fix.text if fix else None):
            if text is not None:
                yield from (text.en, text.zh)
        yield from rule.when
        yield from (re.sub(r"\{\w+[^}]*\}|\.\.\.", " ", sign.text) for sign in rule.signs)
        yield from (*rule.symptoms.en, *rule.symptoms.zh)
        yield from (base.terms[n].field for n in sorted(site.reads.get(name, ())) if n in base.terms)
    elif kind in ("term", "quantity"):
        term = base.terms[name]
        yield from (term.field, *term.aliases, term.title.en, term.title.zh, term.meaning.en, term.meaning.zh)
    elif kind == "model":
        model = base.models[name]
        yield from (model.title, *model.aliases, model.hf_id or "")
    elif kind == "gpu":
        yield from base.gpus[name].aliases


def write(app: Sphinx, error: Exception | None) -> None:
    """Write all of it beside the pages."""
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for name, content in data(site()).items():
        (out / name).write_text(dumped(content), encoding="utf-8")
    (out / "openapi.json").write_text(dumped(openapi()), encoding="utf-8")
    (out / "changes.atom").write_text(
        feed(site(), "zh" if app.config.language.startswith("zh") else "en"), encoding="utf-8"
    )
    folder = out / "schemas" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((own_root() / "schemas").glob("*.schema.json")):
        (folder / path.name).write_bytes(path.read_bytes())
    # A script, not JSON, so that the search works for pages opened from a disk too.
    index = json.dumps(search_index(app), ensure_ascii=False, separators=(",", ":"))
    (out / "_static" / "mb-index.js").write_text(f"const MB_INDEX={index};\n", encoding="utf-8")


def page_context(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The address of the same page in the other language: Chinese lies in the folder ``zh`` of the site."""
    depth = page.count("/")
    up = "../" * depth
    if depth and "toctree" in context:  # pages of objects aren't in the navigation, so it is the same on all of them
        context["toctree"] = partial(_navigation, context["toctree"], depth)
    chinese = app.config.language.startswith("zh")
    context["mb_other"] = f"{up}../{page}.html" if chinese else f"{up}zh/{page}.html"
    context["mb_chinese"] = chinese


NAVIGATION: dict[Any, Any] = {}
"""The navigation by depth of the page and options, since the theme has it made anew for every page."""


def _navigation(make: Callable[..., Any], depth: int, **options: Any) -> Any:
    key = (depth, *sorted(options.items()))
    if key not in NAVIGATION:
        NAVIGATION[key] = make(**options)
    return NAVIGATION[key]
