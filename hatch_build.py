"""Puts the checked knowledge base into the wheel, as ``mbridge_advisor/_data``, with a snapshot that loads quickly."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = "mbridge_advisor/_data"


class KnowledgeHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs when a wheel is built, from a checkout or from an sdist. An editable install reads the checkout itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root / "engine"))
        try:
            from mbridge_advisor.errors import KnowledgeError
            from mbridge_advisor.knowledge import snapshot
            from mbridge_advisor.knowledge.lint import lint
            from mbridge_advisor.knowledge.load import check
            from mbridge_advisor.knowledge.sources import Files
        finally:
            sys.path.remove(str(root / "engine"))

        if problems := lint(root, examples=False):
            raise KnowledgeError(problems)
        self._folder = tempfile.TemporaryDirectory()
        files = Files.read(root)
        path = Path(self._folder.name) / snapshot.NAME
        snapshot.write(path, files.digest, check(root, files))
        include = build_data["force_include"]
        include[str(path)] = f"{DATA}/{snapshot.NAME}"
        for name in ("knowledge", "schemas", "compat_matrix.yaml"):
            if (root / name).exists():
                include[str(root / name)] = f"{DATA}/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()
