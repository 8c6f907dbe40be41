"""Example 1 and the step sizes of Theorem 1: no data, seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import GameError
from ...game import contributions, joint, max_regret, paper_example, repaired_example
from ...game.steps import factor
from .. import figures
from .base import Bench, Case, Record, Study, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "frozen": "as printed, w frozen",
    "joint": "as printed, w and s together",
    "repaired": "repaired: $v_i = 1 - (q + 0.5)/(s_1 + s_2)$",
}


class Example1(Study):
    """The paper's two-agent example: what converges where."""

    name = "example1"
    title = "Example 1: a Nash equilibrium that is not the optimum"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        return [{"kind": kind} for kind in KINDS]

    def job(self, case: Case) -> str:
        return "all"

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        study = bench.given["study"]
        game = repaired_example() if case["kind"] == "repaired" else paper_example()
        gamma, eta, rounds = study["gamma"], study["eta"], study["rounds"]
        states = contributions(game, gamma) if case["kind"] == "frozen" else joint(game, gamma, eta)
        path, ending = [], "rounds done"
        keep = {0, *np.unique(np.geomspace(1, rounds, 120).astype(int)).tolist()}
        try:
            for state in islice(states, rounds + 1):
                last = state
                if state.round in keep:
                    path.append([state.round, *map(rounded, (*state.s, *state.w, game.welfare(state.w, state.s)))])
        except GameError as error:
            ending = f"round {last.round + 1}: {error}"
        result: dict[str, Any] = {"path": path, "ending": ending, "s": last.s.tolist(), "w": last.w.tolist()}
        result["welfare"] = rounded(game.welfare(last.w, last.s))
        result["net_welfare"] = rounded(game.net_welfare(last.w, last.s))
        result["regret"] = rounded(max_regret(game, last.w, last.s, 0.0).value or 0.0)
        best = game.optimum()
        result["optimal_welfare"] = None if best is None else rounded(game.welfare(best, game.s_max))
        return result

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        figure, axes = figures.subplots(1, 3)
        for axis, (kind, title) in zip(axes[0], KINDS.items(), strict=True):
            result = next(r["result"] for r in records if r["case"]["kind"] == kind)
            path = np.array(result["path"])
            axis.plot(path[1:, 0], path[1:, 1], color="#0072B2", label="$s_1$")
            axis.plot(path[1:, 0], path[1:, 2], color="#D55E00", linestyle="--", label="$s_2$")
            axis.plot(path[1:, 0], path[1:, 5], color="#009E73", linestyle=":", label="social welfare")
            axis.set(xscale="log", xlabel="round", ylim=(-0.2, 5.3), title=title)
            axis.set_title(title, fontsize=11)
        axes[0, 0].set_ylabel("points, welfare")
        figures.legend_below(figure, axes[0, 0], 3)
        return {"example1": figure}


class StepSizesStudy(Study):
    """Figure 1 of the paper from the formulas: where W1 < 1, and what cannot occur (lambda > L)."""

    name = "step-sizes"
    title = "Step sizes gamma for which Theorem 1 promises convergence"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        return [{"axis": axis, "fixed": value} for axis in ("lambda", "cross") for value in given["study"][axis]]

    def job(self, case: Case) -> str:
        return "all"

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        """For each lambda (with P~ fixed), or each P~ (with lambda fixed): the largest gamma with W1 < 1."""
        study, fixed = bench.given["study"], float(case["fixed"])
        rows = []
        for x in np.linspace(0.0, 2.0, 201)[1:]:
            strength, cross = (x, fixed) if case["axis"] == "lambda" else (fixed, x)
            rows.append([rounded(x), rounded(largest_step(strength, study["agents"] * study["bound"], cross))])
        return {"rows": rows}

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        figure, axes = figures.subplots(1, 2, width=5.0, height=4.0)
        looks = [("#D55E00", "--"), ("#0072B2", "-")]
        for axis, kind, symbol in ((axes[0, 0], "lambda", r"\tilde P"), (axes[0, 1], "cross", r"\lambda")):
            mine = [r for r in records if r["case"]["axis"] == kind]
            for (colour, line), record in zip(looks, mine, strict=False):
                rows, fixed = np.array(record["result"]["rows"]), record["case"]["fixed"]
                axis.fill_between(rows[:, 0], 0, rows[:, 1], color=colour, alpha=0.25)
                axis.plot(rows[:, 0], rows[:, 1], color=colour, linestyle=line, label=f"${symbol} = {fixed:g}$")
            axis.set(ylabel=r"largest step size $\gamma$", xlim=(0, 2), ylim=(0, 0.85))
            axis.legend(loc="upper right" if kind == "cross" else "upper left", frameon=True)
        axes[0, 0].set(xlabel=r"strong concavity $\lambda$", title="$n = 2$, $L = 1$; hatched: impossible")
        axes[0, 0].axvspan(1, 2, facecolor="none", edgecolor="#9f9f9f", hatch="//")  # lambda > L
        axes[0, 1].set(xlabel=r"cross term $\tilde P$", title=r"$\lambda = 1.1 > L = 1$ is impossible")
        return {"step-sizes": figure}


def largest_step(strength: float, bound: float, cross: float) -> float:
    """sup{gamma: sqrt(1 + gamma^2 bound^2 - 2 gamma strength) + cross gamma < 1}; 0 where there is none."""
    if strength <= cross:
        return 0.0
    low, high = 0.0, 2.0 * strength / bound**2
    for _ in range(60):
        middle = (low + high) / 2.0
        small = factor(middle, strength, bound, cross) < 1.0 and math.isfinite(middle)
        low, high = (middle, high) if small else (low, middle)
    return low
