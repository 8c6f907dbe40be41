"""Who is paid what, and what becomes of the equilibrium when everything is paid too early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...agent import FreeRider
from .. import figures
from .base import Bench, Case, Record, Study, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTLEMENTS = {"commitment": "settled when phase 1 ends", "tranches": "paid in tranches, on delivery"}


class Payments(Study):
    """2P-UPBReD with agents of different sizes: payments and utilities against the points contributed."""

    name = "payments-vs-contribution"
    title = "Payments and utilities against contribution"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        return [
            {"data": study["data"], "agents": study["agents"], "seed": seed, "economy": e, "mechanism": "2p-upbred"}
            for e in study["economies"]
            for seed in range(study["seeds"])
        ]

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        federation = bench.federation(case)
        incentive, cost = bench.incentive(case, slope="bounded")
        return summary(federation.play(incentive, bench.book, cost=cost, state=bench.state(case)))

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        figure, axes = figures.subplots(1, 2, width=5.0, height=4.0)
        agents = [agent for r in records for agent in r["result"]["agents"].values()]
        s = np.array([agent["s"] for agent in agents])
        for axis, key, colour in ((axes[0, 0], "payment", "#D55E00"), (axes[0, 1], "utility", "#0072B2")):
            axis.scatter(s, [agent[key] for agent in agents], s=26, color=colour, alpha=0.6, edgecolors="none")
            axis.axhline(0, color="black", linewidth=0.8)
            axis.set(xlabel="contribution [points]", ylabel=f"{key} [money]")
        for r in records:  # one line per run: within a run the payment only rises
            run = sorted((agent["s"], agent["payment"]) for agent in r["result"]["agents"].values())
            axes[0, 0].plot(*zip(*run, strict=True), color="#D55E00", alpha=0.4, linewidth=1.0)
        axes[0, 0].set_title("contributors are paid, consumers pay")
        axes[0, 1].set_title(r"$u_i = v_i - c_i + p_i$")
        return {self.name: figure}


class MoralHazard(Study):
    """One agent commits all its points, then trains on a share of them: what does it gain?"""

    name = "moral-hazard"
    title = "Moral hazard: settling at commitment against tranches"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        return [
            {"data": study["data"], "agents": study["agents"], "seed": seed, "economy": e, "share": share,
             "settlement": settlement}
            for e in study["economies"]
            for seed in range(study["seeds"])
            for share in study["shares"]
            for settlement in SETTLEMENTS
        ]  # fmt: skip

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        federation = bench.federation(case)
        deviator = federation.names[0]
        incentive, cost = bench.incentive(case, mechanism="2p-upbred", slope="bounded", settlement=case["settlement"])
        shirks = {deviator: FreeRider(share=float(case["share"]))}
        played = federation.play(incentive, bench.book, cost=cost, state=bench.state(case), strategies=shirks)
        return {**summary(played), "deviator": deviator}

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        figure, axes = figures.subplots(1, 2, width=5.0, height=4.0)
        looks = {"commitment": ("#D55E00", "o", "--"), "tranches": ("#0072B2", "s", "-")}
        for settlement, title in SETTLEMENTS.items():
            mine = [r for r in records if r["case"]["settlement"] == settlement]
            colour, marker, line = looks[settlement]
            style = {"color": colour, "marker": marker, "linestyle": line, "label": title}
            full = {r["case"]["seed"]: _deviator(r)["utility"] for r in mine if r["case"]["share"] == 1.0}
            gains = [(100 * r["case"]["share"], _deviator(r)["utility"] - full[r["case"]["seed"]]) for r in mine]
            figures.band(axes[0, 0], gains, **style)
            whole = {r["case"]["seed"]: r["result"]["welfare"] for r in mine if r["case"]["share"] == 1.0}
            losses = [(100 * r["case"]["share"], r["result"]["welfare"] - whole[r["case"]["seed"]]) for r in mine]
            figures.band(axes[0, 1], losses, **style)
        for axis in axes[0]:
            axis.axhline(0, color="black", linewidth=0.8)
        axes[0, 0].set(xlabel="delivered [% of committed points]", ylabel="gain over full delivery [money]")
        axes[0, 0].set_title("the deviating agent")
        axes[0, 1].set(
            xlabel="delivered [% of committed points]", ylabel="change of social welfare [nats]", title="everyone"
        )
        figures.legend_below(figure, axes[0, 0])
        return {self.name: figure}


def _deviator(record: Record) -> dict[str, Any]:
    return record["result"]["agents"][record["result"]["deviator"]]
