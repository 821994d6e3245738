"""The whole site as files: every link and anchor, and what pages load. Needs no browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from os.path import normpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "image": "href"}
"""Tag -> attribute that the browser follows by itself."""


@dataclass
class Page(HTMLParser):
    """Links and anchors of one page."""

    path: str
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    headings: int = 0
    language: str = ""
    other: str | None = None
    """Where the switch of the language leads."""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        self.headings += tag == "h1"
        if tag == "html":
            self.language = found.get("lang", "")
        if tag in LOADS and LOADS[tag] in found:
            self.loads.append(found[LOADS[tag]])
        if "href" in found and tag != "use":
            self.links.append(found["href"])
            if tag == "a" and "hreflang" in found:
                self.other = found["href"]
        if tag in ("script", "img", "iframe", "form"):
            self.links += [found[name] for name in ("src", "action") if name in found]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Path from the site's root -> page, in both languages."""
    out = {}
    for file in sorted(site.rglob("*.html")):
        path = file.relative_to(site).as_posix()
        page = out[path] = Page(path)
        page.feed(file.read_text(encoding="utf-8"))
    return out


@pytest.fixture(scope="module")
def missing(site: Path, pages: dict[str, Page]) -> Callable[[str, str], bool]:
    """Whether a link on a page leads nowhere in the site."""
    files = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}

    def is_missing(path: str, link: str) -> bool:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return False
        target = normpath(f"{path}/../{unquote(parts.path)}") if parts.path else path
        if target not in files:
            return True
        return bool(parts.fragment) and target in pages and unquote(parts.fragment) not in pages[target].anchors

    return is_missing


def in_language(pages: dict[str, Page], language: str) -> Iterator[Page]:
    return (page for path, page in pages.items() if path.startswith("zh/") == (language == "zh"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_link_is_broken(
    pages: dict[str, Page],
    missing: Callable[[str, str], bool],
    language: str,
    record_property: Callable[[str, object], None],
) -> None:
    found = [(page.path, link) for page in in_language(pages, language) for link in page.links]
    record_property(f"links checked, {language}", sum(not urlsplit(link).scheme for _, link in found))
    record_property(f"pages, {language}", len(list(in_language(pages, language))))
    assert found
    assert [f"{path}: {link}" for path, link in found if missing(path, link)] == []


@pytest.mark.parametrize("folder", ["", "zh/"], ids=["en", "zh"])
def test_the_search_leads_to_pages(site: Path, missing: Callable[[str, str], bool], folder: str) -> None:
    source = (site / folder / "_static" / "mb-index.js").read_text(encoding="utf-8")
    entries = json.loads(source.removeprefix("const MB_INDEX=").rstrip(";\n"))
    assert len(entries) > 500
    assert [entry["url"] for entry in entries if missing(f"{folder}search.html", entry["url"])] == []


def test_the_feed_leads_to_pages(site: Path) -> None:
    links = re.findall(r'<link href="([^"]+)"', (site / "changes.atom").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (site / urlsplit(link).path.lstrip("/")).is_file()] == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    styles = {
        file.relative_to(site).as_posix(): re.findall(
            r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", file.read_text("utf-8")
        )
        for pattern in ("*.css", "*.svg")
        for file in site.rglob(pattern)
    }
    loads = {**{path: page.loads for path, page in pages.items()}, **styles}
    outside = [
        f"{path}: {link}"
        for path, links in loads.items()
        for link in links
        if urlsplit(link).netloc or urlsplit(link).scheme not in ("", "data")
    ]
    assert outside == []


def test_every_page_is_there_in_both_languages(pages: dict[str, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        chinese = path.startswith("zh/")
        other = path.removeprefix("zh/") if chinese else f"zh/{path}"
        if page.other is None or normpath(f"{path}/../{page.other}") != other or other not in pages:
            wrong.append(f"{path} leads to {page.other}")
        if page.language != ("zh-CN" if chinese else "en"):
            wrong.append(f"{path} calls itself {page.language}")
        if page.headings != 1:
            wrong.append(f"{path} has {page.headings} main headings")
    assert wrong == []
