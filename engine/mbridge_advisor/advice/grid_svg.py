"""Which ranks form which group, and a drawing of it.

Megatron Core numbers ranks with TP fastest, then CP, DP and PP; those of the experts with ETP fastest, then EP, EDP and
PP (``RankGenerator`` in megatron/core/parallel_state.py, with the default order ``tp-cp-ep-dp-pp``).
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import prod

import numpy as np

from ..errors import RequestError

MAX_DRAWN = 512  # GPUs
NAMES = ("tp", "pp", "cp", "ep", "etp")
_COLOURS = ("#cfe3f3", "#f9dcc4", "#cdeadd", "#efd9e7", "#faeab8", "#dcd6f0", "#e3e3e3", "#d7ecf7")
_CELL, _HEAD, _SIDE, _GAP = 34, 62, 92, 26  # pixels


def rank_groups(sizes: Mapping[str, int], world: int) -> dict[str, list[tuple[int, ...]]]:
    """The groups of each kind of parallelism; those of one kind hold each rank once.

    Args:
        sizes: of tp, pp, cp, ep, etp; a missing one is 1, a missing etp is tp.
        world: GPUs.

    Returns:
        TP, CP, DP, PP and, for the experts, ETP, EP, EDP -> groups in order of their first rank.

    Raises:
        RequestError: a size that isn't known or below 1, or sizes that don't divide the GPUs.
    """
    dense, expert = _grids(sizes, world)
    # Axes of the arrays: PP, DP, CP, TP and PP, EDP, EP, ETP.
    named = [(dense, ("PP", "DP", "CP", "TP")), (expert, ("PP", "EDP", "EP", "ETP"))]
    out = {}
    for array, axes in named:
        for axis, name in enumerate(axes):
            out[name] = sorted(
                tuple(map(int, row)) for row in np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])
            )
    return {name: out[name] for name in ("TP", "CP", "DP", "PP", "ETP", "EP", "EDP")}


def _grids(sizes: Mapping[str, int], world: int) -> tuple[np.ndarray, np.ndarray]:
    for name, value in sizes.items():
        if name not in NAMES or isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RequestError("grid", f"{name}={value}", "is no size", f"Give {', '.join(NAMES)}, each 1 or more.")
    tp, pp, cp, ep = (sizes.get(n, 1) for n in ("tp", "pp", "cp", "ep"))
    etp = sizes.get("etp", tp)
    ranks = np.arange(world)
    shaped = []
    for label, inner in (("TP x CP x PP", (cp, tp)), ("ETP x EP x PP", (ep, etp))):
        group = prod(inner) * pp
        if world < 1 or world % group:
            raise RequestError("gpus", world, f"is not a multiple of {label} = {group}", f"Give a multiple of {group}.")
        shaped.append(ranks.reshape(pp, world // group, *inner))
    return shaped[0], shaped[1]


def grid_svg(sizes: Mapping[str, int], world: int, lang: str = "en") -> str:
    """The process grid as SVG: one box a rank, rows by PP and DP, columns by CP and TP; beside it that of the experts.

    Args:
        sizes, world: as for :func:`rank_groups`.
        lang: of the words.

    Raises:
        RequestError: as for :func:`rank_groups`, or more GPUs than a drawing can show.
    """
    dense, expert = _grids(sizes, world)
    if world > MAX_DRAWN:
        raise RequestError("gpus", world, f"are more than a drawing of {MAX_DRAWN} can show", "Draw a smaller world.")
    zh = lang == "zh"
    panels = [(dense, ("DP", "CP", "TP"), "稠密层" if zh else "Dense layers")]
    if sizes.get("ep", 1) > 1 or "etp" in sizes:
        panels.append((expert, ("EDP", "EP", "ETP"), "专家层" if zh else "Expert layers"))
    body, y, width = [], 0, 0
    for array, names, title in panels:
        text, w, h = _panel(array, names, title, y)
        body.append(text)
        y, width = y + h + _GAP, max(width, w)
    counts = ", ".join(f"{n.upper()} {v}" for n, v in sizes.items())
    title = f"{'进程网格' if zh else 'Process grid'}: {counts}, {world} GPU"
    groups = rank_groups(sizes, world)
    described = "; ".join(f"{n}: {' '.join(map(_group, found[:4]))}{' …' if len(found) > 4 else ''}"
                          for n, found in groups.items() if len(found[0]) > 1)  # fmt: skip
    return (
        f'<svg class="mb-svg mb-grid" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y - _GAP}"'
        f' width="{width}" height="{y - _GAP}" font-family="sans-serif" font-size="12" role="img"'
        f' aria-label="{escape(title)}"><title>{escape(title)}</title><desc>{escape(described)}</desc>'
        + "".join(body)
        + "</svg>"
    )


def _group(ranks: tuple[int, ...]) -> str:
    return "[" + " ".join(map(str, ranks)) + "]"


def _panel(array: np.ndarray, names: tuple[str, str, str], title: str, y: int) -> tuple[str, int, int]:
    """One grid; its text, width and height."""
    stages, outer, middle, inner = array.shape
    columns, rows = middle * inner, stages * outer
    out = [f'<text x="0" y="{y + 16}" font-weight="bold" fill="currentColor">{escape(title)}</text>']
    for m in range(middle):
        for n in range(inner):
            x = _SIDE + (m * inner + n) * _CELL + _CELL / 2
            for height, word in ((38, f"{names[1]}{m}"), (52, f"{names[2]}{n}")):
                out.append(
                    f'<text x="{x}" y="{y + height}" text-anchor="middle" font-size="10" fill="currentColor">'
                    f"{word}</text>"
                )
    for s in range(stages):
        for d in range(outer):
            top = y + _HEAD + (s * outer + d) * _CELL
            out.append(f'<text x="0" y="{top + 21}" fill="currentColor">PP{s} {names[0]}{d}</text>')
            for m in range(middle):
                for n in range(inner):
                    x = _SIDE + (m * inner + n) * _CELL
                    out.append(
                        f'<rect x="{x + 1}" y="{top + 1}" width="{_CELL - 2}" height="{_CELL - 4}" rx="4"'
                        f' fill="{_COLOURS[s % len(_COLOURS)]}" stroke="#555"/><text x="{x + _CELL / 2}" y="{top + 21}"'
                        f' text-anchor="middle" fill="#111">{array[s, d, m, n]}</text>'
                    )
            for m in range(middle):  # what one tensor-parallel group holds
                x = _SIDE + m * inner * _CELL
                out.append(
                    f'<path d="M{x + 3} {top + _CELL - 2}h{inner * _CELL - 6}" stroke="#0072b2" stroke-width="2"/>'
                )
    return "".join(out), _SIDE + columns * _CELL + 4, _HEAD + rows * _CELL + 4
