"""Small charts as inline SVG: places across are per cent, places down and letters are pixels.

So a chart is as wide as the screen allows while its letters keep their size, without any script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..plain import width
from .page import text

ROW = 26  # pixels from one bar to the next
LEFT, RIGHT = 32.0, 73.0  # per cent: names stand before, amounts after the bars
LETTERS = 16  # of a name that fits before the bars on a phone
SLOT, PAID = 36, 13  # pixels for one who pays or is paid, and the letters of its name that fit
HEIGHT, TOP, FLOOR = 190, 12, 160  # of a chart of lines, and where its plot begins and ends


class Bar(NamedTuple):
    """One agent's line: how far its bar goes, what is written beside it, and where it began and could have ended."""

    name: str
    value: float
    words: str
    start: float | None = None
    limit: float | None = None


def bars(title: str, rows: Sequence[Bar], key: str = "", *, money: bool = False) -> str:
    """Horizontal bars from zero, to the left where they are negative; `money` is in the colours of who is paid and who
    pays, all else in a colour of its own."""
    ends = [0.0, *(end for bar in rows for end in (bar.value, bar.start, bar.limit) if end is not None)]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0

    def at(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * (value - low) / span

    parts = []
    for k, bar in enumerate(rows):
        y, begin, end = k * ROW, at(min(bar.value, 0.0)), at(max(bar.value, 0.0))
        colour = "--data" if not money else "--plus" if bar.value >= 0 else "--minus"
        parts.append(f'<text x="0" y="{y + 17}"><title>{text(bar.name)}</title>{text(_short(bar.name))}</text>')
        if bar.limit is not None:
            parts.append(_box(at(0.0), at(bar.limit), y + 5, 16, 'fill="currentColor" opacity=".12"'))
        parts.append(_box(begin, end, y + 5, 16, f'fill="var({colour})"'))
        if bar.start is not None:
            parts.append(_upright(at(bar.start), y + 3, y + 23, 2.0))
        parts.append(f'<text x="100%" y="{y + 17}" text-anchor="end">{text(bar.words)}</text>')
    parts.append(_upright(at(0.0), 0, len(rows) * ROW, 1.0))
    return _chart(title, key, len(rows) * ROW + 4, "".join(parts))


def lines(title: str, points: Sequence[tuple[float, float]], words: tuple[str, str], key: str = "") -> str:
    """One line over the rounds from zero up; `words` stand at its floor and at its highest value.

    A first point far before the others is joined by dots: what happened in between was not recorded.
    """
    first, last = points[0][0], points[-1][0]
    top, floor = max(0.0, *(y for _, y in points)), min(0.0, *(y for _, y in points))
    wide, tall = (last - first) or 1.0, (top - floor) or 1.0
    places = [f"{100 * (x - first) / wide:.4f},{100 - 100 * (y - floor) / tall:.4f}" for x, y in points]
    gap = points[1][0] - first > 1 if len(points) > 2 else False
    seen = places[1:] if gap else places
    path = f'<polyline class="line" points="{" ".join(seen)}"/>'
    if gap:
        path = f'<polyline class="line unseen" points="{" ".join(places[:2])}"/>{path}'
    inside = (
        f'<text x="0" y="{FLOOR + 4}">{text(words[0])}</text><text x="0" y="{TOP + 4}">{text(words[1])}</text>'
        f'<line x1="16%" x2="99%" y1="{FLOOR}" y2="{FLOOR}" stroke="currentColor" opacity=".5"/>'
        f'<line x1="16%" x2="99%" y1="{TOP}" y2="{TOP}" stroke="currentColor" opacity=".15"/>'
        f'<svg x="16%" y="{TOP}" width="83%" height="{FLOOR - TOP}" viewBox="0 0 100 100" '
        f'preserveAspectRatio="none">{path}</svg>'
        f'<text x="16%" y="{FLOOR + 20}">round {first:g}</text>'
        f'<text x="99%" y="{FLOOR + 20}" text-anchor="end">{last:g}</text>'
    )
    return _chart(title, key, HEIGHT, inside)


class Flow(NamedTuple):
    """One who pays into the pot or is paid from it."""

    name: str
    amount: float
    words: str


def flows(title: str, payers: Sequence[Flow], receivers: Sequence[Flow], key: str = "") -> str:
    """Who pays, at the left, and who is paid, at the right; a band is as broad as its amount, and all meet in one pot:
    nobody pays anybody in particular."""
    height = max(len(payers), len(receivers)) * SLOT
    total = max(sum(flow.amount for side in (payers, receivers) for flow in side) / 2, 1e-300)
    most = max(flow.amount for side in (payers, receivers) for flow in side)
    unit = min(0.7 * SLOT / max(most, 1e-300), 0.9 * height / total)  # pixels for one unit of money
    words, bands = [], []
    for side, colour, turned in ((payers, "--minus", False), (receivers, "--plus", True)):
        top, pot = (height - len(side) * SLOT) / 2, (height - unit * sum(flow.amount for flow in side)) / 2
        for k, flow in enumerate(side):
            middle, thick = top + (k + 0.5) * SLOT, unit * flow.amount
            bands.append(_band(middle - thick / 2, pot, thick, colour, turned))
            pot += thick
            place = 'x="100%" text-anchor="end"' if turned else 'x="0"'
            label = f"<title>{text(flow.name)}</title>{text(_short(flow.name, PAID))}"
            words.append(f'<text {place} y="{middle - 2:.1f}">{label}</text>')
            words.append(f'<text {place} y="{middle + 13:.1f}" opacity=".8">{text(flow.words)}</text>')
    inside = (
        f'<svg x="30%" y="0" width="40%" height="{height}" viewBox="0 0 100 {height}" preserveAspectRatio="none">'
        f"{''.join(bands)}</svg>{''.join(words)}"
    )
    return _chart(title, key, height + 4, inside)


def _band(outside: float, inside: float, thick: float, colour: str, turned: bool) -> str:
    """From a slot at the edge to the pot in the middle; `turned`: from the pot to the edge."""
    (x0, y0), (x1, y1) = ((50.0, inside), (100.0, outside)) if turned else ((0.0, outside), (50.0, inside))
    bend, thick = (x0 + x1) / 2, max(thick, 0.5)
    path = (
        f"M{x0},{y0:.2f}C{bend},{y0:.2f} {bend},{y1:.2f} {x1},{y1:.2f}L{x1},{y1 + thick:.2f}"
        f"C{bend},{y1 + thick:.2f} {bend},{y0 + thick:.2f} {x0},{y0 + thick:.2f}Z"
    )
    return f'<path d="{path}" fill="var({colour})" opacity=".75"/>'


def _chart(title: str, key: str, height: int, inside: str) -> str:
    below = f'<p class="small">{text(key)}</p>' if key else ""
    drawing = f'<svg role="img" aria-label="{text(title)}" height="{height}">{inside}</svg>'
    return f'<div class="chart"><h3>{text(title)}</h3>{drawing}{below}</div>'


def _box(begin: float, end: float, y: int, height: int, style: str) -> str:
    return f'<rect x="{begin:.3f}%" y="{y}" width="{max(end - begin, 0.0):.3f}%" height="{height}" rx="2" {style}/>'


def _upright(x: float, above: int, below: int, width: float) -> str:
    return f'<line x1="{x:.3f}%" x2="{x:.3f}%" y1="{above}" y2="{below}" stroke="currentColor" stroke-width="{width}"/>'


def _short(name: str, letters: int = LETTERS) -> str:
    if width(name) <= letters:
        return name
    return next(f"{name[:end]}…" for end in range(len(name), -1, -1) if width(name[:end]) < letters)
