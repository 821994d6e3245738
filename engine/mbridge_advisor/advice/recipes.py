"""The vendor's own recipes that come nearest to a request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..intake.recipe import precision_of
from ..intake.request import Request
from ..knowledge import Knowledge, load_recipes

SHOWN = ("tag", "recipe", "hardware", "num_gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "gbs", "seq_length")


def nearest_recipes(request: Request, knowledge: Knowledge, top: int = 3) -> tuple[Mapping[str, Any], ...]:
    """Recipes of the same model, nearest first: by release, task, system, GPU count, precision and sequence length.

    Each is a row of knowledge/facts/recipes with its place (path, line, tag). A recipe is what the authors ship, not a
    proof that it runs or is best.
    """
    if request.model is None:
        return ()
    rows = [row for key in request.model.recipe_keys for row in load_recipes(knowledge, key)]
    values = request.values
    gpu = request.gpu.name if request.gpu else None

    def distance(row: Mapping[str, Any]) -> float:
        out: float = 0.0 if row["tag"] == request.revision.tag else 2.0
        out += 3.0 * (row["task"] != values.get("task", "pretrain"))
        out += 1.0 if row.get("hardware") is None else 2.0 * (row["hardware"] != gpu)
        out += 0.5 * (precision_of(row) != values.get("precision", "bf16"))
        for name, key in (("world_size", "num_gpus"), ("seq_length", "seq_length")):
            asked, has = values.get(name), row.get(key)
            if isinstance(asked, int) and asked > 0:
                out += abs(math.log2(asked / float(has))) if has else 1.5
        return out

    best: dict[tuple[Any, ...], tuple[float, Mapping[str, Any]]] = {}
    for row in rows:
        key = tuple(row.get(name) for name in SHOWN[2:])
        mine = (distance(row), row)
        if key not in best or mine[0] < best[key][0]:
            best[key] = mine
    ranked = sorted(best.values(), key=lambda pair: (pair[0], pair[1]["id"]))
    return tuple({**dict.fromkeys(SHOWN), **row} for _, row in ranked[:top])
