"""Predicted against measured, as SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .report import Comparison

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
SIZE, LEFT, BOTTOM, TOP, RIGHT = 420, 64, 48, 34, 180  # pixels


def scatter(title: str, unit: str, scale: float, comparisons: Sequence[Comparison], group: str) -> str:
    """An SVG of predicted (vertical) against measured figures, both logarithmic, coloured by a group.

    The diagonal is a perfect prediction; the band around it is 10 %. ``scale`` divides the figures to give ``unit``.
    """
    points = [(c.measured / scale, c.predicted / scale, c.groups[group]) for c in comparisons]
    values = [v for measured, predicted, _ in points for v in (measured, predicted)]
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
    names = sorted({name for *_, name in points})

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * SIZE

    def y(value: float) -> float:
        return TOP + SIZE - (math.log10(value) - low) / (high - low) * SIZE

    first, last = 10**low, 10**high
    width, height = LEFT + SIZE + RIGHT, TOP + SIZE + BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<title>{escape(title)}</title><rect width="{width}" height="{height}" fill="white"/>',
        f'<clipPath id="frame"><rect x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}"/></clipPath>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in _ticks(first, last):
        out.append(
            f'<path d="M{x(tick):.1f} {TOP}v{SIZE}M{LEFT} {y(tick):.1f}h{SIZE}" stroke="#ddd" fill="none"/>'
            f'<text x="{x(tick):.1f}" y="{TOP + SIZE + 16}" text-anchor="middle">{tick:g}</text>'
            f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    corners = [(first, first * 1.1), (last, last * 1.1), (last, last / 1.1), (first, first / 1.1)]
    band = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
    out.append(f'<polygon points="{band}" fill="#0072b2" opacity="0.1" clip-path="url(#frame)"/>')
    out.append(f'<path d="M{LEFT} {TOP + SIZE}L{LEFT + SIZE} {TOP}" stroke="#555" stroke-dasharray="4 3"/>')
    out.append(f'<rect x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#555"/>')
    for measured, predicted, name in points:
        colour = COLOURS[names.index(name) % len(COLOURS)]
        out.append(f'<circle cx="{x(measured):.1f}" cy="{y(predicted):.1f}" r="3.5" fill="{colour}" opacity="0.7"/>')
    for n, name in enumerate(names):
        at = TOP + 12 + 18 * n
        out.append(
            f'<circle cx="{LEFT + SIZE + 16}" cy="{at}" r="5" fill="{COLOURS[n % len(COLOURS)]}"/>'
            f'<text x="{LEFT + SIZE + 28}" y="{at + 4}">{escape(name)}</text>'
        )
    out.append(
        f'<text x="{LEFT + SIZE / 2}" y="{height - 10}" text-anchor="middle">measured, {escape(unit)}</text>'
        f'<text transform="translate(16 {TOP + SIZE / 2}) rotate(-90)" text-anchor="middle">'
        f"predicted, {escape(unit)}</text></svg>"
    )
    return "\n".join(out) + "\n"


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within the range."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
