"""Sphinx extension that publishes the knowledge base: pages, references, checks and data for machines.

Everything comes from the loaded knowledge (:func:`mbridge_advisor.knowledge.load`); nothing is parsed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from mbridge_advisor.errors import AdvisorError
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging

from . import directives, machine
from .domain import KnowledgeDomain
from .records import history
from .site import complaints, site
from .theme import ThemeTexts

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
        machine.NAVIGATION.clear()
        app.builder.templates.environment.add_extension(ThemeTexts)  # type: ignore[union-attr]
    write_stubs(app)


def configure(app: Sphinx, config: Any) -> None:
    """What every page rests on: this extension's own text, and the names and titles that references show."""
    try:
        base = site().base
    except AdvisorError as error:
        raise ExtensionError(f"the knowledge base has mistakes: {error}") from error
    titles = [(x.name, x.title) for x in base.terms.values()] + [(r.id, r.title) for r in base.rules.values()]
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    config.mbridge_digest = sha256(code + repr((titles, [*base.quantities])).encode()).hexdigest()


def outdated(app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages that the knowledge, the evidence or the package changed since they were read."""
    if app.builder.name == "gettext":
        return []
    now = prints(env)
    before: Mapping[str, str] = getattr(env, "mbridge_prints", {})
    env.mbridge_prints = now  # type: ignore[attr-defined]  # kept with the environment
    return [page for page, digest in now.items() if page in env.all_docs and before.get(page) != digest]


def prints(env: BuildEnvironment) -> dict[str, str]:
    """Page -> digest of what it shows: its text where that is quickly made, else everything that it may rest on."""
    root, found = Path(site().base.root), sha256()
    for folder, pattern in (
        ("knowledge", "**/*"), ("engine", "**/*.py"), ("schemas", "*.json"),
        ("docs", "*.json"), ("docs/validation", "*"),
    ):  # fmt: skip
        for path in sorted(p for p in (root / folder).glob(pattern) if p.is_file()):
            found.update(path.read_bytes())
    found.update(repr(history(root)).encode())
    whole, lang = found.hexdigest(), directives.language(env.config)
    out = {}
    for page in env.found_docs:
        folder, _, name = page.rpartition("/")
        kind = next((kind for kind, at in FOLDERS.items() if at == folder), "model")
        text = whole if kind == "model" else directives.page_text(kind, name, lang)  # a model's page runs estimates
        out[page] = sha256(text.encode()).hexdigest()
    return out


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("mbridge_digest", "", "env", [str])
    app.add_domain(KnowledgeDomain)
    for name, directive in directives.DIRECTIVES.items():
        app.add_directive_to_domain("mb", name, directive)
    app.connect("config-inited", configure)
    app.connect("builder-inited", begin)
    app.connect("env-get-outdated", outdated)
    app.connect("html-page-context", machine.page_context, priority=100)  # before the theme's
    app.connect("build-finished", machine.write)
    return {"version": "0", "parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
