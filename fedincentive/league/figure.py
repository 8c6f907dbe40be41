"""The league as a picture: welfare against the worst agent's loss, and the best lie against the deficit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import SettingError


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

    shown, (left, right) = plt.subplots(1, 2, figsize=(13, 6))
    _scatter(left, rows, "vs alone", "NW", "worst agent against training alone", "net welfare")
    lies = [{**row, "most": max(row["lie"] or 0.0, row["lie d"] or 0.0)} for row in rows]
    _scatter(right, lies, "treasury", "most", "the treasury pays", "best lie (cost, need or update)")
    left.axvline(0.0, color="0.8", zorder=0)
    right.axvline(0.0, color="0.8", zorder=0)
    shown.tight_layout()
    shown.savefig(path, dpi=120)
    plt.close(shown)


def _scatter(axes: Any, rows: Sequence[dict[str, Any]], x: str, y: str, along: str, up: str) -> None:
    """Rows at the same point share one label."""
    spots: dict[tuple[float, float], list[str]] = {}
    for row in rows:
        if row[x] is not None and row[y] is not None:
            spots.setdefault((round(row[x], 2), round(row[y], 2)), []).append(row["row"])
    for k, ((a, b), names) in enumerate(sorted(spots.items())):
        axes.plot(a, b, "o", color="C0")
        label = "\n".join(", ".join(names[i : i + 3]) for i in range(0, len(names), 3))
        axes.annotate(label, (a, b), xytext=(6, 5 if k % 2 else -10), textcoords="offset points", fontsize=8)
    axes.margins(0.18)
    axes.set_xlabel(along)
    axes.set_ylabel(up)
