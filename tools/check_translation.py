"""Fails on text of the documentation site that has no Chinese translation.

    python tools/check_translation.py build/gettext/guides.pot docs/locale/zh_CN/LC_MESSAGES/guides.po
    python tools/check_translation.py build/site/zh

The first compares the hand-written pages with their catalogue. The second walks the pages as they were built and lists
English prose in texts, drawings, titles and labels, and texts of the theme that Sphinx's catalogues translate. Code,
identifiers, names of cited sources (links that leave the site) and what is marked ``translate="no"`` may be English.
The knowledge's own texts are checked when the site is built (docs/_ext/mbridge_docs/site.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

from babel.messages.pofile import read_po

CATALOGUES = Path(__file__).resolve().parents[1] / "docs" / "locale" / "zh_CN" / "LC_MESSAGES"
CODE = {"script", "style", "code", "kbd", "samp", "pre", "math"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SHOWN = ("title", "alt", "aria-label", "placeholder", "data-label")
"""Attributes that people read or hear."""
HAN = re.compile("[\u4e00-\u9fff]")
PHRASE = re.compile(r"\b[A-Za-z][a-z]+ [a-z]{2,}\b(?![_.(])")
SENTENCE = re.compile(r"\b[A-Za-z][a-z]+(?:,? [a-z]{2,}\b(?![_.(])){2}")


def untranslated(template: Path, catalogue: Path) -> list[str]:
    """Messages of the template that the catalogue lacks, leaves empty or marks as fuzzy."""
    with template.open("rb") as stream:
        wanted = [m.id for m in read_po(stream) if m.id]
    with catalogue.open("rb") as stream:
        have = {m.id: m.string for m in read_po(stream) if m.id and not m.fuzzy}
    return [str(text) for text in wanted if not have.get(text)]


class Texts(HTMLParser):
    """Collects what a page shows to people, code and sources left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open: list[tuple[str, bool]] = []  # element, and whether it and what it holds may be English

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        free = (
            any(free for _, free in self._open[-1:])
            or tag in CODE
            or given.get("translate") == "no"
            or given.get("lang", "").startswith("en")
            or (tag == "a" and given.get("href", "").startswith("http"))
        )
        if not free:
            self.found += [given[name] for name in SHOWN if given.get(name)]
        if tag not in VOID:
            self._open.append((tag, free))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        while self._open and any(name == tag for name, _ in self._open):
            if self._open.pop()[0] == tag:
                break

    def handle_data(self, data: str) -> None:
        if data.strip() and not any(free for _, free in self._open[-1:]):
            self.found.append(data)


def english(page: str, known: frozenset[str] = frozenset()) -> Iterator[str]:
    """English prose of a Chinese page; ``known`` are texts that have a Chinese form."""
    texts = Texts()
    texts.feed(page)
    for found in texts.found:
        text = " ".join(found.split())
        if text in known or SENTENCE.search(text) or (PHRASE.search(text) and not HAN.search(text)):
            yield text


def translated() -> frozenset[str]:
    """Texts of the guides, the theme and Sphinx whose translation differs from them."""
    own = files("sphinx") / "locale" / "zh_CN" / "LC_MESSAGES" / "sphinx.po"
    out = set()
    for catalogue in (own, *sorted(CATALOGUES.glob("*.po"))):
        with catalogue.open("rb") as stream:
            out |= {m.id for m in read_po(stream) if isinstance(m.id, str) and m.string and m.string != m.id}
    return frozenset(text for text in out if text[:1].isupper())


def of_site(folder: Path) -> list[str]:
    """English prose of all pages in a folder, each with its first page."""
    known, first = translated(), {}
    for path in sorted(folder.rglob("*.html")):
        for text in english(path.read_text(encoding="utf-8"), known):
            first.setdefault(text, path.relative_to(folder))
    return [f"{where}: {text}" for text, where in first.items()]


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    lacking = of_site(given[0]) if len(given) == 1 else untranslated(*given)
    for message in lacking:
        print(f"untranslated: {message}")
    print(f"{len(lacking)} untranslated")
    sys.exit(bool(lacking))
