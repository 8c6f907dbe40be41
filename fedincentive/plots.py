"""Pictures of a run: contributions over the rounds, and payments against contribution. Needs the `plots` extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .center import Outcome
from .errors import SettingError
from .messages import RoundResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 12  # beyond this many agents their spread is drawn instead of single lines
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # told apart by colour-blind readers too
TRAINING = "#7f7f7f"


def ready() -> None:
    """Fail early, before a long run, where nothing can be drawn."""
    _matplotlib()


def save(
    directory: str | Path,
    history: Sequence[RoundResult],
    outcome: Outcome,
    minor: int,
    formats: Sequence[str] = ("png", "svg"),
) -> list[Path]:
    """Write contributions.* and payments.* into `directory`; returns the files."""
    plt = _matplotlib()
    Path(directory).mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in (("contributions", contributions), ("payments", payments)):
        figure, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
        draw(axes, history, outcome, minor)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        for ending in formats:
            files.append(Path(directory) / f"{name}.{ending}")
            # A fixed date and salt make the same run the same file.
            metadata = {"Date": None} if ending == "svg" else {}
            figure.savefig(files[-1], dpi=150, metadata=metadata)
        plt.close(figure)
    return files


def contributions(axes: Axes, history: Sequence[RoundResult], outcome: Outcome, minor: int) -> None:
    """Each agent's share of what it has, round by round, or how many agents' shares spread; training is shaded."""
    rounds = [result for result in history if result.phase != "value"]
    begin = rounds[0].round if rounds else 0
    x = [begin, *(result.round + 1 for result in rounds)]
    states = [outcome.s0 if begin == 0 else rounds[0].s, *(result.s for result in rounds)]
    shares = {agent: [s[agent] / limit for s in states] for agent, limit in outcome.s_max.items()}
    if len(shares) <= MANY:
        for k, (agent, path) in enumerate(shares.items()):
            label, colour = f"{agent} ({outcome.s_max[agent]:g})", COLOURS[k % len(COLOURS)]
            axes.plot(x, path, color=colour, linestyle=_dash(k), linewidth=1.8, label=label)
    else:
        _spread(axes, x, list(shares.values()))
    training = [result.round for result in rounds if result.phase == "train"]
    if training and training[0] > 0:
        axes.axvspan(training[0], training[-1] + 1, color=TRAINING, alpha=0.10, linewidth=0)
        place: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points"}
        axes.annotate("training", (training[0], 0.02), color=TRAINING, fontsize=9, **place)
    axes.set(xlabel="round", ylabel="contribution, share of s_max", ylim=(-0.03, 1.05))
    axes.set_title(f"Contributions under {outcome.mechanism}", loc="left")
    title = "agent (s_max)" if len(shares) <= MANY else f"{len(shares)} agents"
    axes.legend(title=title, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _spread(axes: Axes, x: list[int], paths: list[list[float]]) -> None:
    """Many agents: the median, and the bands that hold 80 % and all of them."""
    lowest, tenth, middle, ninetieth, highest = np.quantile(np.array(paths), [0.0, 0.1, 0.5, 0.9, 1.0], axis=0)
    axes.fill_between(x, lowest, highest, color=COLOURS[0], alpha=0.15, linewidth=0, label="all")
    axes.fill_between(x, tenth, ninetieth, color=COLOURS[0], alpha=0.30, linewidth=0, label="80 %")
    axes.plot(x, middle, color=COLOURS[0], linewidth=2.0, label="median")


def payments(axes: Axes, history: Sequence[RoundResult], outcome: Outcome, minor: int) -> None:
    """What each agent was paid or charged over the run, against the points it delivered per training round."""
    given = outcome.delivered if outcome.trained else outcome.s
    x = [given[agent] for agent in outcome.s]
    y = [outcome.payments[agent] / minor for agent in outcome.s]
    colours = [COLOURS[0] if amount >= 0 else COLOURS[1] for amount in y]
    axes.axhline(0.0, color="black", linewidth=0.8)
    if outcome.trained:
        mean = sum(x) / len(x)
        axes.axvline(mean, color=TRAINING, linewidth=0.8, linestyle="--")
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top"}
        axes.annotate("mean", (mean, 0.98), xytext=(4, 0), color=TRAINING, fontsize=9, **place)
    axes.scatter(x, y, c=colours, s=46 if len(x) <= MANY else 14, zorder=3)
    if len(x) <= MANY:
        at: dict[tuple[float, float], list[str]] = {}
        for agent, point in zip(outcome.s, zip(x, y, strict=True), strict=True):
            at.setdefault(point, []).append(agent)
        for point, names in at.items():
            axes.annotate(", ".join(names), point, xytext=(7, 5), textcoords="offset points", fontsize=9)
        axes.margins(x=0.2, y=0.15)
    axes.set(xlabel="points delivered per training round", ylabel="paid (+) or charged (-), units of money")
    axes.set_title(f"Payments under {outcome.mechanism}, sum {sum(outcome.payments.values()) / minor:g}", loc="left")


def _dash(k: int) -> Any:
    """Neighbours differ by their dashes, so that lines on top of each other can be told apart."""
    return ("-", (0, (6, 3)), (0, (2, 3)))[k % 3]


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise SettingError("A plot needs matplotlib: pip install 'fedincentive[plots]'.") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fedincentive"
    import matplotlib.pyplot as plt

    return plt
