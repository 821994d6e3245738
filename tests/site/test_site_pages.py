"""The main pages as a reader gets them: in both languages, on a phone and on a desk, in light and dark."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from chromium import Browser

PAGES = (
    "index", "choose", "rules", "rules/MB-TP-001", "quantities", "quantities/batch_p2p_effective", "models",
    "models/deepseek-v3", "gpus/H100", "releases/v0.6.0", "matrix", "audit", "accuracy", "diagnosis", "glossary", "cli",
    "http", "python", "maintain", "search",
)  # fmt: skip

AXE = ((1280, "light"), (360, "dark"))
"""Axe takes the most time, so it sees either width and either scheme once."""

SCROLLS = """
return [...document.querySelectorAll("body *")].filter((part) => {
  const style = getComputedStyle(part);
  return ["auto", "scroll"].includes(style.overflowX) && part.scrollWidth > part.clientWidth + 1
    && part.checkVisibility() && (part.tabIndex < 0 || part.contains(document.querySelector("h1")));
}).map((part) => `${part.tagName} ${part.className}`);
"""
"""Parts that scroll sideways and either can't be reached by keyboard or hold the whole page."""

HEADING = """
const heading = document.querySelector("h1"), box = heading.getBoundingClientRect();
const top = document.elementFromPoint(box.left + 5, box.top + box.height / 2);
return heading.textContent.trim().length > 1 && box.left >= 0 && box.right <= innerWidth && box.top >= 0
  && box.bottom <= innerHeight && heading.contains(top);
"""
"""Whether the main heading lies in the window, and nothing lies over it."""


def picture_problems(png: bytes, size: tuple[int, int], scheme: str) -> list[str]:
    """What is wrong with a screenshot: another size, blank, or light where it must be dark."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("L")
    out = [] if picture.size == size else [f"the screenshot has {picture.size} pixels, not {size}"]
    shades = picture.histogram()
    ground = max(range(256), key=shades.__getitem__)
    if sum(shades) - shades[ground] < 0.01 * sum(shades) or sum(count > 0 for count in shades) < 20:
        out.append("the screenshot is blank")
    if (ground > 128) != (scheme == "light"):
        out.append(f"the ground of the {scheme} page has the brightness {ground}")
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("page", PAGES)
def test_page(
    browser: Browser,
    screenshots: Path,
    record_property: Callable[[str, object], None],
    page: str,
    language: str,
    width: int,
    scheme: str,
) -> None:
    """Quiet console, nothing from elsewhere, nothing that axe objects to, no overflow, and a picture."""
    browser.open(f"{'zh/' if language == 'zh' else ''}{page}.html", width, scheme)
    size, png = browser.screenshot()
    (screenshots / f"{page.replace('/', '-')}-{language}-{width}-{scheme}.png").write_bytes(png)
    problems = picture_problems(png, size, scheme)
    if not browser.run(HEADING):
        problems.append("the main heading isn't visible")
    if (across := browser.run("return document.scrollingElement.scrollWidth")) > width:
        problems.append(f"the page is {across} pixels wide")
    problems += [f"scrolls, but not by keyboard: {part}" for part in browser.run(SCROLLS)]
    if (width, scheme) in AXE:
        problems += browser.axe()
    requests = list(browser.requests())
    problems += [f"asks for {url}" for url in requests if not url.startswith((browser.address, "data:"))]
    problems += [f"the console says {message}" for message in browser.console()]
    record_property("screenshots", 1)
    record_property("pages seen by axe", int((width, scheme) in AXE))
    record_property("browser", browser.versions)
    assert browser.address + "_static/mb.js" in {url.partition("?")[0].replace("/zh/", "/") for url in requests}
    assert problems == []


def test_chinese_is_drawn(browser: Browser) -> None:
    """Without a font, every character is the same empty box."""
    browser.open("zh/index.html")
    drawn = browser.run("""
      return ["并", "行"].map((sign) => {
        const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
        context.font = `40px ${getComputedStyle(document.body).fontFamily}`;
        context.fillText(sign, 10, 50);
        return canvas.toDataURL();
      });
    """)
    assert drawn[0] != drawn[1], "no Chinese font is installed (fonts-noto-cjk)"
