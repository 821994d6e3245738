"""The compiled program of each revision, built once a process."""

from __future__ import annotations

import threading

from ..inference import Program
from ..knowledge.model import Knowledge, Revision

_programs: dict[tuple[str, str], Program] = {}
_lock = threading.Lock()


def program_for(knowledge: Knowledge, revision: Revision) -> Program:
    """Quantities and rules of a revision, compiled; shared between threads."""
    key = (knowledge.digest, revision.tag)
    with _lock:
        if key not in _programs:
            _programs[key] = Program.build(
                knowledge.terms, knowledge.quantities.values(), knowledge.rules.values(), revision
            )
        return _programs[key]
