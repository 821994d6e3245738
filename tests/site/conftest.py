"""The built site in a browser.

``MBRIDGE_SITE`` is the folder that ``make docs docs-zh`` filled; without it these tests are skipped, so that ``make
test`` needs no browser. Screenshots go into the folder ``screenshots`` beside it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mbridge_advisor.evidence.matrix import Row, build
from mbridge_advisor.evidence.store import load_evidence
from mbridge_advisor.knowledge import Knowledge, load

if TYPE_CHECKING:
    from chromium import Browser

SITE = os.environ.get("MBRIDGE_SITE", "")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.site)
            item.add_marker(pytest.mark.skipif(not SITE, reason="MBRIDGE_SITE is not set (make test-docs)"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests counted, as they have it in ``record_property``: sums of numbers, and the different words."""
    counts: Counter[str] = Counter()
    words: dict[str, None] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties if HERE.name in report.nodeid.split("/") else ():
            if isinstance(value, int):
                counts[name] += value
            else:
                words[f"{name}: {value}"] = None
    for line in [*(f"{name}: {count:,}" for name, count in sorted(counts.items())), *words]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the site."""
    folder = Path(SITE).resolve()
    for page in ("index.html", "zh/index.html"):
        assert (folder / page).is_file(), f"{folder} has no {page}: run make docs docs-zh first"
    return folder


@pytest.fixture(scope="session")
def screenshots(site: Path) -> Path:
    folder = site.parent / "screenshots"
    folder.mkdir(exist_ok=True)
    return folder


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the browser's own log has what was asked for."""


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, with a slash at the end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser(address: str) -> Iterator[Browser]:
    from chromium import Browser

    found = Browser(address)
    yield found
    found.close()


@pytest.fixture(scope="session")
def base() -> Knowledge:
    return load()


@pytest.fixture(scope="session")
def rows(base: Knowledge) -> list[Row]:
    """The matrix that the site must show."""
    return list(build(base, load_evidence(Path(base.root))))
