"""The check of the built Chinese pages finds English, and nothing else. Needs the extra `docs`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("babel")
pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_translation import english, of_site, translated, untranslated


@pytest.mark.parametrize(
    "page",
    [
        "<p>The build fails on this.</p>",
        "<td>documentation only</td>",
        "<h2>已撤回：it can not be reached</h2>",
        '<button aria-label="Toggle site navigation">切换</button>',
        '<img src="a.png" alt="Peak memory of a model">',
        "<svg><title>predicted against measured</title></svg>",
        "<svg><text>outside allocator</text></svg>",
        "<p><code>tp</code> and then this too</p>",
    ],
)
def test_english_is_found(page: str) -> None:
    assert len(list(english(page))) == 1


@pytest.mark.parametrize(
    "page",
    [
        "<p>张量并行（tensor parallel）</p>",
        "<code>This is an error message</code><pre>and a whole log</pre><kbd>pip install it</kbd>",
        '<a class="reference external" href="https://a.org">Title of the cited page</a>',
        '<span translate="no">mbridge advisor</span><em lang="en">a quoted name</em>',
        "<td>Llama 4 Maverick 17B-128E</td><td>PP 8 VPP 3</td><td>bf16_mixed</td>",
        "<br><p>并行</p><script>return this value</script>",
    ],
)
def test_code_names_and_sources_are_free(page: str) -> None:
    assert list(english(page)) == []


def test_a_word_of_the_theme_is_found() -> None:
    assert "Search" in translated()
    assert list(english("<title>Search</title><h1>搜索</h1>", translated())) == ["Search"]


def test_pages_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.html").write_text("<p>not in Chinese</p>", encoding="utf-8")
    (tmp_path / "b.html").write_text("<p>中文</p>", encoding="utf-8")
    assert of_site(tmp_path) == ["rules/a.html: not in Chinese"]


def test_catalogue(tmp_path: Path) -> None:
    template, catalogue = tmp_path / "a.pot", tmp_path / "a.po"
    template.write_text('msgid "One"\nmsgstr ""\n\nmsgid "Two"\nmsgstr ""\n', encoding="utf-8")
    catalogue.write_text('msgid "One"\nmsgstr "一"\n\n#, fuzzy\nmsgid "Two"\nmsgstr "二"\n', encoding="utf-8")
    assert untranslated(template, catalogue) == ["Two"]
