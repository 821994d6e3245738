"""Two configurations: what changed, and what the estimate says that it costs."""

from __future__ import annotations

from collections.abc import Mapping

from ..advice.estimate import estimate
from ..advice.results import Grid
from ..errors import RequestError
from ..intake.facts import build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Value
from .results import Comparison

KEPT = ("tp", "pp", "cp", "ep", "world_size")
"""Names whose former value the rules can read as ``before_<name>``."""


def compare(before: Request, after: Request, knowledge: Knowledge) -> Comparison:
    """What changed from one configuration to the other, with both estimates where they can be made."""
    old, new = (build_facts(r, knowledge) for r in (before, after))
    changes = {
        knowledge.terms[name].field: (old.values.get(name), new.values.get(name))
        for name in dict.fromkeys((*old.values, *new.values))
        if knowledge.terms[name].section != "derived"
        and old.values.get(name) != new.values.get(name)
        and "given" in (_kind(old.origins, name), _kind(new.origins, name))
    }
    return Comparison(changes, estimated(before, knowledge), estimated(after, knowledge))


def estimated(request: Request, knowledge: Knowledge) -> Grid | None:
    """The estimate of a configuration; None where it can't be made or no grid is given."""
    given = any(knowledge.terms[name].section == "grid" for name in request.values)
    if request.architecture is None or not given:
        return None
    try:
        return estimate(request, knowledge=knowledge).grid
    except RequestError:
        return None


def former(before: Request, knowledge: Knowledge) -> dict[str, Value]:
    """The facts of the configuration before, for the rules: ``before_tp`` ..."""
    values = build_facts(before, knowledge).values
    return {f"before_{name}": values[name] for name in KEPT if name in values}


def _kind(origins: Mapping[str, object], name: str) -> str:
    return str(getattr(origins.get(name), "kind", ""))
