"""Adversaries that send wrong updates, and agents that misreport for their own good."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import engine
from ...adversary import Misreport, attack
from ...agent import FreeRider
from ...game import random_quadratic
from ...payments import MINOR
from .. import figures
from .base import Bench, Case, Record, Study, rounded, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTACKED = ("upbred", "2p-upbred", "trim-2p-upbred")
PHI = {"paper": "as printed", "audited": "audited"}


class Adversarial(Study):
    """Welfare of the honest agents with adversaries over their welfare without, for growing shares of adversaries."""

    name = "adversarial"
    title = "Welfare ratio with and without adversaries"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        return [
            {"data": data, "agents": study["agents"], "seed": seed, "economy": e, "mechanism": name, "alpha": alpha}
            for data in study["data"]
            for seed in range(study["seeds"])
            for e in study["economies"]
            for alpha in [0.0, *study["alphas"]]
            for name in ATTACKED
            if alpha or name != "trim-2p-upbred"
        ]

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        study, federation = bench.given["study"], bench.federation(case)
        bad = federation.names[: round(case["alpha"] * len(federation.names))]
        sent = Misreport(update=attack(study["attack"], study["size"], seed=case["seed"]))
        more = {"alpha": case["alpha"]} if case["mechanism"] == "trim-2p-upbred" else {}
        incentive, cost = bench.incentive(case, slope="paper" if case["mechanism"] == "upbred" else "bounded", **more)
        lies = dict.fromkeys(bad, sent)
        played = federation.play(incentive, bench.book, cost=cost, state=bench.state(case), lies=lies)
        return {
            **summary(played, table=False),
            "nats": [rounded(played.nats[name]) for name in federation.names],  # the first ones are the adversaries
            "adversaries": len(bad),
        }

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        panels = list(dict.fromkeys(r["case"]["data"] for r in records))
        figure, axes = figures.subplots(1, len(panels), width=5.0, height=4.0)
        for axis, panel in zip(axes[0], panels, strict=True):
            mine = [r for r in records if r["case"]["data"] == panel]
            for name in ATTACKED:
                points = [(r["case"]["alpha"], ratio(r, mine)) for r in mine if r["case"]["mechanism"] == name]
                figures.band(axis, [(a, value) for a, value in points if a], **figures.STYLES[name])
            axis.axhline(1, color="#7f7f7f", linewidth=1)
            figures.cut(axis)
            axis.set(xlabel=r"adversarial fraction $\alpha$", title=figures.TITLES.get(panel, panel))
            axis.locator_params(axis="x", nbins=5)
        axes[0, 0].set_ylabel("welfare with / without adversaries")
        figures.legend_below(figure, axes[0, 0])
        return {self.name: figure}


def ratio(record: Record, records: Sequence[Record]) -> float:
    """Welfare over the honest agents, against the same agents in the run without adversaries."""
    case, bad = record["case"], record["result"]["adversaries"]
    name = "2p-upbred" if case["mechanism"] == "trim-2p-upbred" else case["mechanism"]
    (clean,) = (
        r["result"]
        for r in records
        if r["case"]["alpha"] == 0.0 and (r["case"]["mechanism"], r["case"]["seed"]) == (name, case["seed"])
    )
    return float(sum(record["result"]["nats"][bad:]) / sum(clean["nats"][bad:]))


class Misreporting(Study):
    """Does it pay to lie? Under the fine as printed and as audited, and without payments on real data."""

    name = "misreport"
    title = "Gain from misreporting"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        games: list[Case] = [{"game": seed, "phi": phi} for seed in range(study["games"]) for phi in PHI]
        real = [
            {"data": study["data"], "agents": 2, "seed": seed, "economy": "paper", "lie": lie}
            for seed in range(study["seeds"])
            for lie in ("none", "zero-d")
        ]
        return [*games, *real]

    def job(self, case: Case) -> str:
        return "games" if "game" in case else super().job(case)

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        return self._real(case, bench) if "data" in case else self._closed_form(case, bench)

    def _closed_form(self, case: Case, bench: Bench) -> dict[str, Any]:
        """The best of several scalings of d_1 with an honest valuation: phi as printed never notices them."""
        study = bench.given["study"]
        values = {"mechanism": "t-upbred", "rounds": study["rounds"], "phi": case["phi"], "fine": study["fine"],
                  "gamma": 0.05, "eta": 0.1, "loss_cap": 1e6}  # fmt: skip
        honest = truthful_utility(case["game"], values, None)
        lying = {size: truthful_utility(case["game"], values, size) for size in study["scales"]}
        best = max(lying, key=lying.__getitem__)
        return {"honest": rounded(honest), "scale": best, "gain": rounded(lying[best] - honest)}

    def _real(self, case: Case, bench: Bench) -> dict[str, Any]:
        """The paper's example, qualitatively: d = 0 and a lower s under UPBReD, with costs 0.2 and 0.1 per point."""
        federation = bench.federation(case, points=bench.given["study"]["points"])
        liar, other = federation.names
        incentive, _ = bench.incentive(case, mechanism="upbred", cost={liar: 0.2, other: 0.1})
        if case["lie"] == "none":
            played = federation.play(incentive)
        else:
            lies = Misreport(s=lambda s, s_max: s / 2, delivered=lambda committed, s_max: committed)
            played = federation.play(incentive, lies={liar: lies}, strategies={liar: FreeRider()})
        spent = 0.0 if case["lie"] == "zero-d" else played.costs[liar]  # it trains on nothing, whatever it says
        return {
            **summary(played, table=False),
            "value": rounded(played.nats[liar]),
            "cost": rounded(spent),
            "utility": rounded(played.nats[liar] - spent),
        }

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        figure, axes = figures.subplots(1, 3, width=4.2, height=4.0)
        games = [r for r in records if "game" in r["case"]]
        right = axes[0, 2]
        looks = (("paper", "#D55E00", "o"), ("audited", "#0072B2", "s"))
        for axis, (phi, colour, marker) in zip(axes[0], looks, strict=False):  # each on its own linear scale
            gains = sorted(r["result"]["gain"] for r in games if r["case"]["phi"] == phi)
            axis.scatter(range(1, len(gains) + 1), gains, s=30, color=colour, marker=marker)
            axis.axhline(0, color="black", linewidth=0.8)
            wins = sum(gain > 0 for gain in gains)
            axis.set(xlabel="random games, by gain", title=f"fine {PHI[phi]}:\na lie pays in {wins} of {len(gains)}")
            low, high = min(0.0, *gains), max(0.0, *gains)
            axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        axes[0, 0].set_ylabel("gain from scaling d at its best [money]")
        real = [r for r in records if "data" in r["case"]]
        for k, (lie, title) in enumerate((("none", "honest"), ("zero-d", "d = 0,\nreports s/2"))):
            utilities = [r["result"]["utility"] for r in real if r["case"]["lie"] == lie]
            right.bar(k, np.mean(utilities), color=("#0072B2", "#D55E00")[k], width=0.6, label=title)
            right.scatter(np.full(len(utilities), k), utilities, color="black", s=14, zorder=3)
        named = figures.TITLES.get(real[0]["case"]["data"], "")
        right.axhline(0, color="black", linewidth=0.8)
        right.set_xticks([0, 1], ["honest", "d = 0, says s/2"])
        right.set(ylabel="utility of agent 1 [money]", title=f"UPBReD, no payments:\ntwo agents, {named}")
        return {self.name: figure}


def truthful_utility(seed: int, values: Mapping[str, Any], scale: float | None) -> float:
    """Agent 1's v - c + p* at the end of T-UPBReD on a random quadratic game of three agents."""
    game = random_quadratic(seed, 3, 2)
    lies = {} if scale is None else {game.agents[0]: Misreport(update=attack("scaled", scale))}
    outcome = engine.play(game, lies=lies, **values)
    s = np.array([outcome.s[name] for name in game.agents])
    value, cost = game.values(outcome.w["w"], s)[0], game.costs(s)[0]
    utility = float(value - cost) + outcome.payments[game.agents[0]] / MINOR
    assert math.isfinite(utility)
    return utility
