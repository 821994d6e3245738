"""The oracle, started once.

``MBRIDGE_ORACLE_PYTHON`` is an interpreter that has torch and what the sources import. The sources are the wheels of
Megatron Bridge and Core that it has installed, or ``MBRIDGE_ORACLE_BRIDGE`` and ``MBRIDGE_ORACLE_CORE``;
``MBRIDGE_ORACLE_RELEASE`` says which release they are.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mbridge_advisor.evidence.oracle import Oracle, Sources
from mbridge_advisor.evidence.oracle.fuzz import pinned_versions
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.model import Revision

PYTHON = os.environ.get("MBRIDGE_ORACLE_PYTHON", "")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.oracle)
            item.add_marker(pytest.mark.xdist_group("oracle"))
            item.add_marker(pytest.mark.skipif(not PYTHON, reason="MBRIDGE_ORACLE_PYTHON is not set"))


@pytest.fixture(scope="session")
def release() -> Revision:
    return load().revisions[os.environ.get("MBRIDGE_ORACLE_RELEASE", "v0.3.1")]


@pytest.fixture(scope="session")
def real(release: Revision) -> Iterator[Oracle]:
    bridge, core = os.environ.get("MBRIDGE_ORACLE_BRIDGE"), os.environ.get("MBRIDGE_ORACLE_CORE")
    if bridge is None:
        script = "import sysconfig; print(sysconfig.get_path('purelib'))"
        bridge = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    sources = Sources.find(Path(bridge), Path(core) if core else None, pinned_versions(release), release.tag)
    with Oracle(sources, PYTHON) as oracle:
        yield oracle
