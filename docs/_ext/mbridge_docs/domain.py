"""The domain ``mb``: rules, quantities, terms, releases, models and GPUs as objects that any project can refer to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any, ClassVar

from docutils import nodes
from docutils.nodes import Element, Node, system_message
from mbridge_advisor.errors import ExpressionError
from mbridge_advisor.expressions import parse
from sphinx.addnodes import pending_xref
from sphinx.builders import Builder
from sphinx.domains import Domain, ObjType
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole
from sphinx.util.docutils import SphinxRole
from sphinx.util.nodes import make_refnode

from .site import site

KINDS = ("rule", "quantity", "term", "revision", "model", "gpu")
CODE = ("quantity", "term")  # shown as code


class Reference(XRefRole):
    """A reference to an object of the domain; one that doesn't exist is a warning."""

    def process_link(
        self, env: BuildEnvironment, refnode: Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        return title, target.strip()


class ExpressionRole(SphinxRole):
    """An expression as code, with every name a link to what it means."""

    def run(self) -> tuple[list[Node], list[system_message]]:
        return [expression(self.text)], []


def expression(source: str) -> nodes.literal:
    """An expression as code with links; what isn't an expression stays plain code."""
    out = nodes.literal(classes=["mb-expr"])
    base, at = site().base, 0
    try:
        names = sorted({(n.column, str(n.value)) for n in parse(source).walk() if n.op in ("name", "given")})
    except ExpressionError:
        names = []
    for column, name in names:
        column = source.index(name, column)  # given(x) stands at its call
        if name not in base.terms or column < at:
            continue
        out += nodes.Text(source[at:column])
        out += link("quantity" if name in base.quantities else "term", name)
        at = column + len(name)
    out += nodes.Text(source[at:])
    return out


def link(kind: str, name: str, text: str | None = None) -> pending_xref:
    """A reference to an object, to be resolved when all are known."""
    inner = nodes.inline(text or name, text or name, translatable=False)
    return pending_xref(
        text or name, inner, refdomain="mb", reftype=kind, reftarget=name, refexplicit=True, refwarn=True
    )


class KnowledgeDomain(Domain):
    """Objects are ``(kind, name) -> (page, anchor, title)``."""

    name = "mb"
    label = "mbridge-advisor"
    object_types: ClassVar[dict[str, ObjType]] = {kind: ObjType(kind, kind) for kind in KINDS}
    roles: ClassVar[dict[str, Any]] = {
        **{
            kind: Reference(innernodeclass=nodes.literal if kind in CODE else nodes.inline, warn_dangling=True)
            for kind in KINDS
        },
        "expr": ExpressionRole(),
    }
    initial_data: ClassVar[dict[str, Any]] = {"objects": {}}
    dangling_warnings: ClassVar[dict[str, str]] = {kind: f"unknown {kind}: %(target)s" for kind in KINDS}

    @property
    def objects(self) -> dict[tuple[str, str], tuple[str, str, str]]:
        found: dict[tuple[str, str], tuple[str, str, str]] = self.data["objects"]
        return found

    def clear_doc(self, docname: str) -> None:
        for key in [k for k, (page, *_) in self.objects.items() if page == docname]:
            del self.objects[key]

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        self.objects.update({k: v for k, v in otherdata["objects"].items() if v[0] in docnames})

    def resolve_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        typ: str,
        target: str,
        node: pending_xref,
        contnode: Element,
    ) -> nodes.reference | None:
        found = self.objects.get((typ, target))
        if found is None:
            return None
        page, anchor, title = found
        return make_refnode(builder, fromdocname, page, anchor, contnode, title)

    def resolve_any_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        target: str,
        node: pending_xref,
        contnode: Element,
    ) -> list[tuple[str, nodes.reference]]:
        pairs: Iterable[tuple[str, nodes.reference | None]] = (
            (f"mb:{kind}", self.resolve_xref(env, fromdocname, builder, kind, target, node, contnode)) for kind in KINDS
        )
        return [(role, found) for role, found in pairs if found is not None]

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        for (kind, name), (page, anchor, title) in self.objects.items():
            yield name, title, kind, page, anchor, 1
