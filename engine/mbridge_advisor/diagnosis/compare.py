"""Two configurations: what changed, and what the estimate says that it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..advice.estimate import estimate
from ..advice.results import Grid
from ..errors import RequestError
from ..intake.facts import build_facts
from ..intake.request import Request
from ..knowledge.model import Knowledge, Value
from .results import Comparison

KEPT = ("tp", "pp", "cp", "ep", "world_size")
"""Names whose former value the rules can read as ``before_<name>``."""
MAX_GROUPS = 24
"""More changes than these aren't estimated one by one."""


def compare(before: Request, after: Request, knowledge: Knowledge) -> Comparison:
    """What changed from one configuration to the other, both estimates where they can be made, each change's cost."""
    old, new = (build_facts(r, knowledge) for r in (before, after))
    changed = [
        name
        for name in dict.fromkeys((*old.values, *new.values))
        if knowledge.terms[name].section != "derived"
        and old.values.get(name) != new.values.get(name)
        and "given" in (_kind(old.origins, name), _kind(new.origins, name))
    ]
    return Comparison(
        changes={knowledge.terms[n].field: (old.values.get(n), new.values.get(n)) for n in changed},
        before=(first := estimated(before, knowledge)),
        after=estimated(after, knowledge),
        alone={} if first is None else dict(_alone(before, after, first, changed, knowledge)),
    )


def _alone(
    before: Request, after: Request, first: Grid, changed: list[str], knowledge: Knowledge
) -> Iterator[tuple[str, float]]:
    """Field and speed ratio of each change made by itself; settings of recompute go together."""
    groups: dict[str, list[str]] = {}
    for name in changed:
        if name in before.values or name in after.values:
            groups.setdefault("recompute" if name.startswith("recompute_") else name, []).append(name)
    if len(groups) < 2 or len(groups) > MAX_GROUPS:
        return
    for names in groups.values():
        values = {name: after.values[name] for name in names if name in after.values}
        grid = estimated(before.without(*names).with_values(**values), knowledge)
        if grid is not None and grid.throughput is not None and first.throughput is not None:
            then, now = (g.throughput.tokens_per_second_per_gpu for g in (first, grid) if g.throughput is not None)
            yield knowledge.terms[names[0]].field, now / then


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
