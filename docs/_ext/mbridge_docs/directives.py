"""Directives of the domain: generated pages, declarations of objects, and pieces for hand-written pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from docutils import nodes
from docutils.nodes import Node
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from mbridge_advisor.errors import AdvisorError
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

from . import guides, matrix
from .domain import KINDS, KnowledgeDomain
from .pages import LISTS, Pages
from .site import site


def language(config: Config) -> str:
    """``zh`` or ``en``, as the knowledge names its texts."""
    return "zh" if config.language.startswith("zh") else "en"


class Generated(SphinxDirective):
    """Base of directives whose text is made from the knowledge, and so isn't for the catalogues of guides."""

    def pages(self) -> Pages:
        return Pages(site(), language(self.config))

    def parsed(self, text: str, name: str) -> list[Node]:
        """Parse generated reStructuredText where the directive stands, sections too."""
        if self.env.app.builder.name == "gettext":
            return []
        lines = StringList(text.splitlines(), f"<{name}>")
        parent = nodes.section()
        parent.document = self.state.document
        nested_parse_with_titles(self.state, lines, parent, self.content_offset)
        return parent.children


class Page(Generated):
    """The whole page of an object: ``.. mb:page:: rule MB-TP-001``."""

    required_arguments = 2

    def run(self) -> list[Node]:
        kind, name = self.arguments
        return self.parsed(page_text(kind, name, language(self.config)), name)


@cache
def page_text(kind: str, name: str, lang: str) -> str:
    """An object's page as reStructuredText."""
    return METHODS[kind](Pages(site(), lang), name)


METHODS: Mapping[str, Callable[[Pages, str], str]] = {
    "rule": Pages.rule,
    "quantity": Pages.quantity,
    "model": Pages.model,
    "gpu": Pages.gpu,
    "revision": Pages.revision,
}


class Object(Generated):
    """Declares an object here: ``.. mb:rule:: MB-TP-001``. Its content, if any, follows it."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[Node]:
        kind, name = self.name.partition(":")[2] or self.name, self.arguments[0]
        base = site().base
        parts: Mapping[str, Mapping[str, Any]] = {
            "rule": base.rules,
            "quantity": base.quantities,
            "term": base.terms,
            "revision": base.revisions,
            "model": base.models,
            "gpu": base.gpus,
        }
        entries = parts[kind]
        if name not in entries:
            raise self.error(f"unknown {kind}: {name}")
        anchor = f"mb-term-{name}" if kind == "term" else ""  # the others have a page of their own
        domain = self.env.get_domain("mb")
        assert isinstance(domain, KnowledgeDomain)
        title = getattr(base.terms[name] if kind == "quantity" else entries[name], "title", name)
        shown = title if isinstance(title, str) else title[self.pages().lang]
        domain.objects[kind, name] = (self.env.docname, anchor, shown)
        if kind != "term":
            return self.parse_content_to_nodes()
        box = nodes.container("", nodes.paragraph("", "", nodes.literal(name, name)), classes=["mb-term"], ids=[anchor])
        return [box, nodes.container("", *self.parse_content_to_nodes(), classes=["mb-meaning"])]


class List(Generated):
    """A list for a hand-written page: ``.. mb:list:: models``."""

    required_arguments = 1

    def run(self) -> list[Node]:
        name = self.arguments[0]
        if name not in LISTS:
            raise self.error(f"unknown list: {name}")
        return self.parsed(LISTS[name](self.pages()), name)


class Matrix(Generated):
    """The compatibility matrix as a table with filters."""

    def run(self) -> list[Node]:
        return [nodes.raw("", matrix.table(self.pages()), format="html")]


class Grid(Generated):
    """A process grid: ``.. mb:grid:: tp=2,pp=2,ep=4`` with ``:gpus: 8``."""

    required_arguments = 1
    option_spec: ClassVar[Any] = {"gpus": directives.positive_int}

    def run(self) -> list[Node]:
        from mbridge_advisor.advice.grid_svg import grid_svg

        try:
            sizes = {k.strip(): int(v) for k, v in (pair.split("=") for pair in self.arguments[0].split(","))}
            svg = grid_svg(sizes, self.options.get("gpus", 1), self.pages().lang)
        except (ValueError, AdvisorError) as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", f'<figure class="mb-figure">{svg}</figure>', format="html")]


class Guide(Generated):
    """Text worked out when the site is built: ``.. mb:guide:: answer``, with a request as JSON where it asks."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[Node]:
        name = self.arguments[0]
        if name not in guides.GUIDES:
            raise self.error(f"unknown guide: {name}")
        try:
            request = json.loads("\n".join(self.content)) if self.content else {}
            return self.parsed(guides.GUIDES[name](self.pages(), request), name)
        except (ValueError, AdvisorError) as error:
            raise self.error(str(error)) from error


DIRECTIVES: Mapping[str, type[SphinxDirective]] = {
    "page": Page,
    **dict.fromkeys(KINDS, Object),
    "list": List,
    "matrix": Matrix,
    "grid": Grid,
    "guide": Guide,
}
