"""The league as a picture: welfare against the worst agent's loss, and the best lie against the deficit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import SettingError

NEAR = 0.045  # of an axis: points closer than this share one label
BESIDE, LINE = 0.09, 0.03  # labels closer than both would overlap: the second one stands below its point


def ready(path: Path) -> None:
    """Told before anything is played: a figure that cannot be drawn."""
    if path.suffix not in (".png", ".svg"):
        raise SettingError(f"--figure is {str(path)!r}: it must end in .png or .svg.")
    if not path.parent.is_dir():
        raise SettingError(f"--figure is {str(path)!r}: the folder {str(path.parent)!r} does not exist.")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SettingError("matplotlib is needed to draw: pip install 'fedincentive[plots]'.") from error


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown, (left, right) = plt.subplots(1, 2, figsize=(13, 5.5))
    numbers = {row["row"]: k for k, row in enumerate(rows, start=1)}
    _scatter(left, rows, numbers, "vs alone", "NW", "worst agent against training alone", "net welfare")
    lies = [{**row, "most": max(row["lie"] or 0.0, row["lie d"])} for row in rows if row["lie d"] is not None]
    _scatter(right, lies, numbers, "treasury", "most", "the treasury pays", "best lie about cost, need or update")
    words = "\n".join(f"{number:2d}  {name}" for name, number in numbers.items())
    shown.tight_layout(rect=(0.0, 0.0, 0.85, 1.0))
    shown.text(0.86, 0.93, words, va="top", family="monospace", fontsize=10)
    shown.savefig(path, dpi=110)
    plt.close(shown)


def _scatter(
    axes: Any, rows: Sequence[dict[str, Any]], numbers: dict[str, int], x: str, y: str, along: str, up: str
) -> None:
    """A point for each row with its number; rows that are close to each other share one label."""
    known = [row for row in rows if row[x] is not None and row[y] is not None]
    axes.plot([row[x] for row in known], [row[y] for row in known], "o", color="C0", alpha=0.7)
    axes.axvline(0.0, color="0.8", zorder=0)
    axes.margins(x=0.2, y=0.1)  # a label of many numbers stays inside
    width, height = (high - low for low, high in (axes.get_xlim(), axes.get_ylim()))
    spots: list[tuple[float, float, list[int]]] = []
    for row in sorted(known, key=lambda row: row[x]):
        near = [s for s in spots if abs(s[0] - row[x]) < NEAR * width and abs(s[1] - row[y]) < NEAR * height]
        if near:
            near[0][2].append(numbers[row["row"]])
        else:
            spots.append((row[x], row[y], [numbers[row["row"]]]))
    above: list[tuple[float, float]] = []
    for a, b, who in spots:
        label = ", ".join(map(str, sorted(who)))
        free = all(abs(a - x) >= BESIDE * width or abs(b - y) >= LINE * height for x, y in above)
        above += [(a, b)] if free else []
        axes.annotate(
            label, (a, b), xytext=(0, 8 if free else -15), textcoords="offset points", ha="center", fontsize=9
        )
    axes.set_xlabel(along)
    axes.set_ylabel(up)
