"""Predicted against measured, as SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .report import Comparison, by, summarise

# Okabe and Ito's palette, told apart with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
INK, FAINT, GRID = "#24292f", "#57606a", "#e4e7eb"
SIZE, LEFT, BOTTOM, TOP, RIGHT = 440, 78, 56, 48, 232  # pixels
BANDS = (20, 10)  # percent


def scatter(title: str, unit: str, scale: float, comparisons: Sequence[Comparison], group: str) -> str:
    """An SVG of predicted (vertical) against measured figures, both logarithmic, coloured by a group.

    The diagonal is a perfect prediction; the bands around it are 10 and 20 %. ``scale`` divides the figures to give
    ``unit``. It brings its own light background, so it reads on pages of any colour; a point's title names its row.
    """
    values = [v / scale for c in comparisons for v in (c.measured, c.predicted)]
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
    groups = by(comparisons, group)

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * SIZE

    def y(value: float) -> float:
        return TOP + SIZE - (math.log10(value) - low) / (high - low) * SIZE

    first, last = 10**low, 10**high
    width, height = LEFT + SIZE + RIGHT, TOP + SIZE + BOTTOM
    legend = LEFT + SIZE + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}: predicted against measured</title>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="white" stroke="#d0d7de"/>',
        f'<clipPath id="frame"><rect x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}"/></clipPath>',
        f'<text x="{LEFT}" y="30" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for band in BANDS:
        up = 1 + band / 100
        corners = [(first, first * up), (last, last * up), (last, last / up), (first, first / up)]
        places = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
        out.append(f'<polygon points="{places}" fill="#0072b2" opacity="0.09" clip-path="url(#frame)"/>')
    for tick in _ticks(first, last):
        out.append(
            f'<path d="M{x(tick):.1f} {TOP}v{SIZE}M{LEFT} {y(tick):.1f}h{SIZE}" stroke="{GRID}" fill="none"/>'
            f'<text x="{x(tick):.1f}" y="{TOP + SIZE + 18}" text-anchor="middle" fill="{FAINT}">{tick:,g}</text>'
            f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="{FAINT}">{tick:,g}</text>'
        )
    out.append(f'<path d="M{LEFT} {TOP + SIZE}L{LEFT + SIZE} {TOP}" stroke="{FAINT}" stroke-dasharray="4 3"/>')
    out.append(f'<rect x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}" fill="none" stroke="{FAINT}"/>')
    for colour, rows in zip(_colours(len(groups)), groups.values(), strict=True):
        for c in rows:
            what = f"{c.row}: measured {c.measured / scale:,.4g}, predicted {c.predicted / scale:,.4g} ({c.error:+.1%})"
            out.append(
                f'<circle cx="{x(c.measured / scale):.1f}" cy="{y(c.predicted / scale):.1f}" r="4" fill="{colour}"'
                f' fill-opacity="0.65" stroke="white" stroke-width="0.6"><title>{escape(what)}</title></circle>'
            )
    for n, (colour, (name, rows)) in enumerate(zip(_colours(len(groups)), groups.items(), strict=True)):
        at = TOP + 10 + 40 * n
        s = summarise(rows)
        out.append(
            f'<circle cx="{legend}" cy="{at}" r="5" fill="{colour}"/>'
            f'<text x="{legend + 14}" y="{at + 4}" font-weight="600">{escape(name)}</text>'
            f'<text x="{legend + 14}" y="{at + 20}" fill="{FAINT}">{s.count} rows, median error {s.median:.1%}</text>'
        )
    at = TOP + SIZE - 26
    for n, band in enumerate(reversed(BANDS)):
        out.append(
            f'<rect x="{legend - 5}" y="{at + 20 * n - 9}" width="14" height="12" fill="#0072b2"'
            f' opacity="{0.18 if band == min(BANDS) else 0.09}"/>'
            f'<text x="{legend + 14}" y="{at + 20 * n + 1}" fill="{FAINT}">within {band} %</text>'
        )
    out.append(
        f'<text x="{LEFT + SIZE / 2}" y="{height - 14}" text-anchor="middle">measured, {escape(unit)}</text>'
        f'<text transform="translate(20 {TOP + SIZE / 2}) rotate(-90)" text-anchor="middle">'
        f"predicted, {escape(unit)}</text></svg>"
    )
    return "\n".join(out) + "\n"


def _colours(count: int) -> list[str]:
    return [COLOURS[n % len(COLOURS)] for n in range(count)]


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within the range."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
