"""Sphinx extension that publishes the knowledge base: pages, references, checks and data for machines.

Everything comes from the loaded knowledge (:func:`mbridge_advisor.knowledge.load`); nothing is parsed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mbridge_advisor.errors import AdvisorError
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

from . import directives, machine
from .domain import KnowledgeDomain
from .site import complaints, site

logger = logging.getLogger(__name__)

FOLDERS: Mapping[str, str] = {
    "rule": "rules",
    "quantity": "quantities",
    "model": "models",
    "gpu": "gpus",
    "revision": "releases",
}
"""Kind of object -> folder of its pages; git ignores these folders."""


def write_stubs(app: Sphinx) -> None:
    """One page an object, holding a single directive; the text is made when the page is read, in its language."""
    found = site().base
    parts = {"rule": found.rules, "quantity": found.quantities, "model": found.models, "gpu": found.gpus,
             "revision": found.revisions}  # fmt: skip
    for kind, folder in FOLDERS.items():
        root = Path(app.srcdir) / folder
        root.mkdir(exist_ok=True)
        wanted = {f"{name}.rst": f":orphan:\n\n.. mb:page:: {kind} {name}\n" for name in parts[kind]}
        for path in root.iterdir():
            if path.name not in wanted:
                path.unlink()
        for name, text in wanted.items():
            path = root / name
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")


def begin(app: Sphinx) -> None:
    """Check the knowledge; each complaint is a warning, and warnings stop the build."""
    if app.builder.name == "gettext":  # the catalogues hold the hand-written pages only
        app.config.exclude_patterns += [f"{folder}/*" for folder in FOLDERS.values()]
        return
    try:
        for complaint in complaints(site()):
            logger.warning(complaint, type="mbridge", subtype="evidence")
    except AdvisorError as error:
        raise ExtensionError(str(error)) from error
    if app.builder.format == "html":
        app.builder.search = False  # type: ignore[attr-defined]  # the site has an index of its own
    write_stubs(app)


def configure(app: Sphinx, config: Any) -> None:
    """Knowledge and this extension's own text decide whether pages are out of date."""
    try:
        digest = site().base.digest
    except AdvisorError as error:
        raise ExtensionError(f"the knowledge base has mistakes: {error}") from error
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))
    config.mbridge_digest = f"{digest} {hash_of(code)}"


def hash_of(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode()).hexdigest()


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("mbridge_digest", "", "env", [str])
    app.add_domain(KnowledgeDomain)
    for name, directive in directives.DIRECTIVES.items():
        app.add_directive_to_domain("mb", name, directive)
    app.connect("config-inited", configure)
    app.connect("builder-inited", begin)
    app.connect("html-page-context", machine.page_context)
    app.connect("build-finished", machine.write)
    return {"version": "0", "parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
