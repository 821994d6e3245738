"""Sphinx configuration of the documentation site. The knowledge's pages come from docs/_ext/mbridge_docs."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "engine")]

project = "mbridge-advisor"
author = "The mbridge-advisor authors"
language = "en"
extensions = ["myst_parser", "mbridge_docs"]
# Pages of the repository that the site leaves out: the site says the same from the knowledge itself, or they are for
# those who change the code.
exclude_patterns = [
    "_ext", "_templates", "_static", "locale", "validation", "architecture.md", "data-notes.md", "evidence.md",
    "validation.md", "audit.md", "recipe-faults.md",
]  # fmt: skip
nitpicky = True
smartquotes = False
myst_heading_anchors = 3
locale_dirs = ["locale"]
gettext_compact = "guides"
gettext_location = False
gettext_uuid = False
templates_path = ["_templates"]

html_theme = "furo"
html_title = "mbridge-advisor"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_show_copyright = False
html_css_files = ["mb.css"]
html_js_files = [("mb.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
html_use_index = False
html_additional_pages = {"search": "search.html"}
html_sidebars = {
    "**": [
        "sidebar/brand.html", "sidebar/search.html", "language.html", "sidebar/scroll-start.html",
        "sidebar/navigation.html", "sidebar/scroll-end.html",
    ]
}  # fmt: skip
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
