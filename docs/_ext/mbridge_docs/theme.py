"""Texts that the theme's templates hold in English only, handed to the catalogue ``sphinx.po``."""

from __future__ import annotations

import re

from jinja2.ext import Extension

FIXED = re.compile(r'(<title>|aria-label=")([A-Z][A-Za-z /,]+)(?=</title>|")')


class ThemeTexts(Extension):
    """Makes fixed titles and labels of a template translatable, as it is compiled."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return FIXED.sub(r'\1{{ _("\2") }}', source)
