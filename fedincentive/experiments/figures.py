"""One look for all figures: colour-blind safe, readable on a phone, the same bytes for the same records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SettingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette; shape and line tell the mechanisms apart without colour.
STYLES: dict[str, dict[str, Any]] = {
    "fedavg": {"color": "#0072B2", "marker": "s", "linestyle": "--", "label": "FedAvg", "markersize": 9, "zorder": 3},
    "2p-upbred": {"color": "#D55E00", "marker": "o", "linestyle": "-", "label": "2P-UPBReD", "zorder": 4},
    "upbred": {"color": "#009E73", "marker": "^", "linestyle": "-.", "label": "UPBReD", "zorder": 3},
    "fedavg-strategic": {
        "color": "#CC79A7",
        "marker": "X",
        "linestyle": ":",
        "label": "FedAvg-strategic",
        "markersize": 5.5,
        "zorder": 6,
    },
    "trim-2p-upbred": {"color": "#E69F00", "marker": "D", "linestyle": "-", "label": "trimmed 2P-UPBReD", "zorder": 5},
}
# Ten classes: Paul Tol's muted set.
CLASSES = ("#CC6677", "#332288", "#DDCC77", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#BBBBBB")
TITLES = {
    "cifar10": "CIFAR-10",
    "femnist": "Digits by writer (FEMNIST layout)",
    "sent140": "Sent140",
    "digits": "Digits",
    "fashion-mnist": "Fashion-MNIST",
    "paper": "paper's settings",
    "calibrated": "calibrated",
    "iid": "IID",
    "dirichlet": "Dirichlet (0.1)",
    "pathological": "3 classes per agent",
}


def subplots(rows: int, columns: int, *, width: float = 4.2, height: float = 3.4) -> tuple[Figure, np.ndarray]:
    """A grid of axes in the house style."""
    try:
        import matplotlib
    except ImportError as error:
        raise SettingError("Figures need matplotlib: pip install 'fedincentive[plots]'.") from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3, linewidth=0.6)
    return figure, axes


BAND = "band: \u00b1 1 standard error over seeds"
RC: Any = {
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.labelsize": 12,
    "legend.fontsize": 11,
    "lines.linewidth": 2.0,
    "lines.markersize": 7,
    "svg.hashsalt": "fedincentive",
    "svg.fonttype": "path",
}


def save(figures: dict[str, Figure], directory: Path) -> list[Path]:
    """name -> name.png and name.svg; no dates inside, so equal records give equal files."""
    import matplotlib

    directory.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.rc_context(RC):
        for name, figure in figures.items():
            for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
                path = directory / f"{name}.{ending}"
                figure.savefig(path, dpi=96, metadata=metadata)
                files.append(path)
    return files


def band(axis: Axes, points: Sequence[tuple[Any, float]], **style: Any) -> None:
    """Mean over seeds with a band of one standard error; `points` are (x, y) in any order."""
    xs = sorted({x for x, _ in points})
    groups = [np.array([y for at, y in points if at == x]) for x in xs]
    mean = np.array([g.mean() for g in groups])
    error = np.array([g.std(ddof=1) / np.sqrt(len(g)) if len(g) > 1 else 0.0 for g in groups])
    axis.plot(xs, mean, **style)
    if error.any():
        axis.fill_between(xs, mean - error, mean + error, color=style.get("color"), alpha=0.15, linewidth=0, gid=BAND)


def cut(axis: Axes, below: float = 0.6) -> None:
    """Keep one collapsed curve from flattening the others: the axis ends at -`below` times its top, and says so."""
    heights = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axis.get_lines()])
    top, low = float(heights.max()), float(heights.min())
    if low >= -below * top:
        return
    axis.set_ylim(-below * top, 1.08 * top)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    words = f"cut off: down to {low:.3g}"
    axis.text(0.98, 0.02, words, transform=axis.transAxes, ha="right", va="bottom", fontsize=9, bbox=box, zorder=9)


def legend_below(figure: Figure, axis: Axes, columns: int = 4) -> None:
    """The curves of one panel, and what a band is where any panel has one."""
    from matplotlib.patches import Patch

    handles, labels = axis.get_legend_handles_labels()
    if any(found.get_gid() == BAND for panel in figure.axes for found in panel.collections):
        handles, labels = [*handles, Patch(color="#7f7f7f", alpha=0.25, linewidth=0)], [*labels, BAND]
        columns += 1
    fits = max(1, int(figure.get_figwidth() // 2.2))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels), fits), frameon=False)
