"""What a reader does: the keyboard, the matrix, the search, the switch of the language."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from mbridge_advisor.evidence.matrix import Row
from mbridge_advisor.knowledge import Knowledge
from mbridge_advisor.knowledge.model import Rule

if TYPE_CHECKING:
    from chromium import Browser

FOLDERS = {"en": "", "zh": "zh/"}

FOCUSED = """
const part = document.activeElement, box = part.getBoundingClientRect(), style = getComputedStyle(part);
return {
  name: `${part.tagName.toLowerCase()}.${part.className} ${part.textContent.trim().slice(0, 30)}`,
  filter: part.dataset.filter || "",
  inNavigation: Boolean(part.closest(".sidebar-tree")), language: part.hreflang || "",
  outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1,
  shown: box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight,
};
"""
STILL = """
const style = document.createElement("style");
style.textContent = "* {transition: none !important; scroll-behavior: auto !important}";
document.head.append(style);
"""
"""Drawers slide in; a test needn't wait for them."""


def tabbed(browser: Browser, times: int) -> Iterator[dict[str, Any]]:
    """What has the focus after each press of Tab."""
    browser.run(STILL)
    for _ in range(times):
        browser.press("TAB")
        yield browser.run(FOCUSED)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_tab_reaches_everything_and_shows_where_it_is(browser: Browser, language: str, width: int) -> None:
    browser.open(f"{FOLDERS[language]}matrix.html", width)
    seen = list(tabbed(browser, 45))
    assert [part["name"] for part in seen if not part["outlined"]] == []
    assert [part["name"] for part in seen if not part["shown"]] == []
    names = {part["name"].partition(" ")[0] for part in seen}
    assert {"a.skip-to-content", "input.sidebar-search", "button.theme-toggle", "button.mb-sort"} <= names
    assert {"kind", "state", "revision", "words"} <= {part["filter"] for part in seen}
    assert any(part["inNavigation"] for part in seen)
    assert {part["language"] for part in seen} >= {"zh-CN" if language == "en" else "en"}


def test_the_skip_link_skips(browser: Browser) -> None:
    browser.open("matrix.html")
    assert next(tabbed(browser, 1))["name"].startswith("a.skip-to-content")
    browser.press("ENTER")
    browser.press("TAB")
    assert browser.run("return Boolean(document.activeElement.closest('#furo-main-content'))")


@pytest.mark.parametrize("width", [360, 1280])
def test_the_theme_changes_by_keyboard_and_stays(browser: Browser, width: int) -> None:
    browser.open("index.html", width)
    look = "return [document.body.dataset.theme, getComputedStyle(document.body).backgroundColor]"
    for part in tabbed(browser, 60):
        if part["name"].startswith("button.theme-toggle"):
            break
    else:
        pytest.fail("Tab doesn't reach the button of the theme")
    looks = [tuple(browser.run(look))]
    for _ in range(2):
        browser.press("ENTER")
        looks.append(tuple(browser.run(look)))
    assert {theme for theme, _ in looks} == {"auto", "light", "dark"}
    assert len({ground for _, ground in looks}) == 2
    browser.driver.refresh()
    assert tuple(browser.run(look)) == looks[-1]


def test_a_wide_table_scrolls_by_keyboard(browser: Browser) -> None:
    browser.open("models/deepseek-v3.html", 360)
    browser.run("document.querySelector('.mb-scroll').focus()")
    browser.press("ARROW_RIGHT")
    browser.until("return document.querySelector('.mb-scroll').scrollLeft > 0")


# The matrix


def shown(browser: Browser) -> int:
    """Rows that can be seen."""
    return browser.run(
        "return [...document.querySelectorAll('#matrix tbody tr')].filter(r => r.checkVisibility()).length"
    )


def choose(browser: Browser, **values: str) -> None:
    for name in ("kind", "state", "revision", "words"):
        browser.run(
            "const field = document.querySelector(`[data-filter=${arguments[0]}]`); field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', {bubbles: true}))",
            name,
            values.get(name, ""),
        )


def expected(rows: list[Row], kind: str = "", state: str = "", revision: str = "") -> int:
    """How many entries the knowledge has for a choice."""

    def fits(row: Row) -> bool:
        cells = [row.cells[revision]] if revision else list(row.cells.values())
        here = any(state in (c.verdict, c.tag) for c in cells) if state else any(c.verdict != "absent" for c in cells)
        return (not kind or row.kind == kind) and (here or not (state or revision))

    return sum(map(fits, rows))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_matrix_filters(browser: Browser, rows: list[Row], base: Knowledge, language: str) -> None:
    browser.open(f"{FOLDERS[language]}matrix.html")
    assert shown(browser) == len(rows)
    kinds = {row.kind for row in rows}
    states = ("code_verified", "doc_only", "holds", "changed", "untested", "absent")
    tags = list(base.revisions)
    choices = [
        *({"kind": kind} for kind in kinds),
        *({"state": state} for state in states),
        *({"revision": tag} for tag in tags),
        *({"state": s, "revision": t} for s, t in product(("code_verified", "absent"), (tags[0], tags[-1]))),
        {"kind": "pitfall", "state": "doc_only", "revision": tags[-1]},
    ]
    wrong = []
    for chosen in choices:
        choose(browser, **chosen)
        found, wanted = shown(browser), expected(rows, **chosen)
        said = browser.run("return document.querySelector('.mb-filters output').textContent")
        columns = browser.run("return [...document.querySelectorAll('#matrix thead th')].filter(h => !h.hidden).length")
        if found != wanted or str(wanted) not in said or columns != (3 if "revision" in chosen else 2 + len(tags)):
            wrong.append(f"{chosen}: {found} rows, {columns} columns, said {said!r}; {wanted} in the knowledge")
    assert wrong == []
    assert len({expected(rows, **chosen) for chosen in choices}) > 5


def test_the_matrix_is_searched_by_words_as_they_are_typed(browser: Browser, rows: list[Row]) -> None:
    browser.open("matrix.html")
    browser.find("[data-filter=words]").send_keys("mb-tp-")
    assert shown(browser) == sum(row.name.startswith("MB-TP-") for row in rows) > 0
    browser.find("[data-filter=words]").send_keys("x no such words")
    assert shown(browser) == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_the_matrix_sorts(browser: Browser, rows: list[Row], width: int) -> None:
    browser.open("matrix.html", width)
    names = "return [...document.querySelectorAll('#matrix tbody th a')].map(a => a.textContent)"
    kinds = "return [...document.querySelectorAll('#matrix tbody tr')].map(r => r.cells[1].textContent)"
    entry, kind = browser.driver.find_elements("css selector", "#matrix thead .mb-sort")[:2]
    entry.click()
    up = browser.run(names)
    entry.click()
    down = browser.run(names)
    rules = [name for name in up if name.startswith("MB-")]
    assert rules == sorted(rules)
    assert down == up[::-1] != up
    assert sorted(up) == sorted(row.name for row in rows)
    kind.click()
    assert (found := browser.run(kinds)) == sorted(found)
    assert browser.run("return document.querySelectorAll('#matrix [aria-sort]').length") == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_without_a_script_the_matrix_is_whole(browser: Browser, rows: list[Row], language: str) -> None:
    browser.open(f"{FOLDERS[language]}matrix.html", script=False)
    # The driver can't ask a page without scripts whether it is complete.
    browser.until("return document.readyState === 'complete'")
    visible = [part for part in browser.driver.find_elements("css selector", "#matrix tbody tr th") if part.text]
    assert len(visible) == len(rows)
    assert not browser.find(".mb-filters").is_displayed()
    assert browser.run("return document.querySelectorAll('.mb-sort').length") == 0


# The search


def results(browser: Browser, language: str, query: str) -> list[str]:
    """Addresses within the language that the search finds, in order; typed into the field of a page's side."""
    from selenium.webdriver.common.keys import Keys

    browser.open(f"{FOLDERS[language]}choose.html")
    browser.find(".sidebar-search").send_keys(query + Keys.ENTER)
    browser.until("return location.pathname.endsWith('/search.html') && document.readyState === 'complete'")
    browser.until("return document.getElementById('mb-count').textContent !== ''")
    start = browser.address + FOLDERS[language]
    found = browser.run("return [...document.querySelectorAll('#mb-results a')].map(a => a.href)")
    assert all(url.startswith(start) for url in found)
    return [url.removeprefix(start) for url in found]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_search_by_rule(browser: Browser, base: Knowledge, language: str) -> None:
    found = results(browser, language, "mb-tp-001")
    assert found[0] == "rules/MB-TP-001.html"
    browser.find("#mb-results a").click()
    title = base.rules["MB-TP-001"].title[language]
    browser.until("return location.pathname.endsWith('/rules/MB-TP-001.html')")
    assert title in browser.find("h1").text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_search_by_field(browser: Browser, language: str) -> None:
    found = results(browser, language, "expert_tensor_parallel_size")
    assert "glossary.html#mb-term-etp" in found[:5]
    assert any(url.startswith("rules/MB-ETP-") for url in found)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ("num_attention_heads (6) must be a multiple of tensor_model_parallel_size (4).", "MB-TP-001"),
        ("must be a multiple of tensor_model_parallel_size", "MB-TP-001"),
    ],
    ids=["with a run's numbers", "a part"],
)
def test_search_by_message(browser: Browser, language: str, message: str, rule: str) -> None:
    found = results(browser, language, message)
    assert f"rules/{rule}.html" in (found[:3] if "(6)" in message else found)


def test_search_in_chinese(browser: Browser, base: Knowledge) -> None:
    rule: Rule = base.rules["MB-TP-001"]
    assert f"rules/{rule.id}.html" in results(browser, "zh", rule.title.zh)
    assert f"rules/{rule.id}.html" in results(browser, "zh", "注意力头")


def test_search_says_that_nothing_is_found(browser: Browser) -> None:
    assert results(browser, "en", "zzzqqqxxx") == []


# The language


@pytest.mark.parametrize(
    "page", ["index.html", "matrix.html", "rules/MB-TP-001.html", "glossary.html#mb-term-tp", "search.html?q=mb-tp-001"]
)
def test_the_language_switches_to_the_same_page_and_back(browser: Browser, page: str) -> None:
    browser.open(page)
    for folder, language in (("zh/", "zh-CN"), ("", "en")):
        browser.find(".mb-language a").click()
        browser.until(f"return document.readyState === 'complete' && document.documentElement.lang === '{language}'")
        assert browser.driver.current_url == browser.address + folder + page


def test_on_a_phone_the_menu_opens(browser: Browser) -> None:
    browser.open("index.html", 360)
    browser.run(STILL)
    assert browser.run("return document.querySelector('.sidebar-drawer').getBoundingClientRect().right") <= 0
    browser.find(".nav-overlay-icon").click()
    browser.find(".sidebar-tree a").click()
    browser.until("return location.pathname.endsWith('/choose.html')")
