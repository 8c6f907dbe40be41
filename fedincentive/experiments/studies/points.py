"""What one more data point does to the loss: the slope that decides whether agents contribute at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...messages import Update
from .. import figures
from ..federation import Federation
from ..training import Local
from .base import Bench, Case, Record, Study, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class OnePoint(Study):
    """(L(s) - L(s + delta)) / delta after one local epoch from the same w, early and late in FedAvg."""

    name = "one-point"
    title = "What one data point is worth"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        return [
            {"data": study["data"], "agents": study["agents"], "seed": seed, "economy": "paper", "after": after}
            for seed in range(study["seeds"])
            for after in study["after"]
        ]

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        study = bench.given["study"]
        federation = bench.federation(case, points=study["points"])
        incentive, _ = bench.incentive(case, mechanism="fedavg")
        w: Update = federation.w0
        if case["after"]:
            w = federation.play({**incentive, "rounds": case["after"]}).outcome.w
        local = Local(batch=incentive["batch"], learning_rate=incentive["learning_rate"], seed=case["seed"])
        rows = {}
        for size in study["sizes"]:
            drops = losses_after(federation, local, w, size) - losses_after(federation, local, w, size + study["delta"])
            rows[str(size)] = [rounded(x) for x in drops / study["delta"]]
        return {"slopes": rows}

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        figure, axes = figures.subplots(1, 1, width=6.0, height=4.2)
        axis = axes[0, 0]
        looks = [("#0072B2", "s", "-"), ("#D55E00", "o", "--"), ("#009E73", "^", "-.")]
        for (colour, marker, line), after in zip(
            looks, dict.fromkeys(r["case"]["after"] for r in records), strict=False
        ):
            points = [
                (int(size), 1e4 * float(np.mean(slopes)))
                for r in records
                if r["case"]["after"] == after
                for size, slopes in r["result"]["slopes"].items()
            ]
            figures.band(
                axis, points, color=colour, marker=marker, linestyle=line, label=f"after {after} rounds of FedAvg"
            )
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(xlabel="points the agent trains on", ylabel=r"loss saved per point [$10^{-4}$ nats]")
        axis.set_title("CIFAR-10; the paper charges 0 to 1 per point")
        figures.legend_below(figure, axis, 3)
        return {self.name: figure}


def losses_after(federation: Federation, local: Local, w: Update, size: int) -> np.ndarray:
    """Every agent's held-out loss after its own epoch on `size` points from w."""
    requests = [(name, federation.orders[name][:size]) for name in federation.names]
    updates = federation.group(local).trainer.updates(w, requests, 0)
    moved = [{key: w[key] + d[key] for key in w} for d in updates]
    return np.array([federation.losses.one(m, name) for m, name in zip(moved, federation.names, strict=True)])
