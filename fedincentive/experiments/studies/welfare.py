"""Social welfare against the number of agents, against beta, against time, and on splits that are not IID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import figures, partition
from ..federation import Federation, Play, lead
from ..training import Local
from .base import MECHANISMS, Bench, Case, Record, Study, rounded, summary
from .points import losses_after

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WELFARE = "social welfare [nats]"


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def agents_of(given: Mapping[str, Any], data: str) -> list[int]:
    """The numbers of agents to play with, none above what there is data for.

    >>> agents_of({"study": {"agents": [10, 20, 40]}, "data": {"tweets": {"most_agents": 18}}}, "tweets")
    [10, 18]
    """
    most = given["data"][data].get("most_agents")
    return sorted({agents if most is None else min(agents, most) for agents in as_list(given["study"]["agents"])})


class Welfare(Study):
    """All mechanisms on each data set, economy, number of agents and seed."""

    splits: tuple[str, ...] = ()

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        return [
            {
                "data": data,
                **({"split": split} if split else {}),
                "agents": agents,
                "seed": seed,
                "economy": economy,
                "mechanism": mechanism,
            }
            for data in as_list(study["data"])
            for split in study.get("splits", [""])
            for agents in agents_of(given, data)
            for seed in range(study["seeds"])
            for economy in study["economies"]
            for mechanism in MECHANISMS
        ]

    def follows(self, case: Case) -> bool:
        return case.get("mechanism") == "2p-upbred"

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        played = self._begin(case, bench)
        if bench.states is not None and case["mechanism"] == "fedavg":
            ended = lead(played, self._begin({**case, "mechanism": "2p-upbred"}, bench))
        else:
            ended = played.end()
        self.note(ended.seconds, bench)
        return summary(ended, table=case["seed"] == 0)

    def _begin(self, case: Case, bench: Bench) -> Play:
        incentive, cost = bench.incentive(case)
        if case["mechanism"] == "2p-upbred":
            incentive["slope"] = "bounded"  # phase 1 never needs the model
        return bench.federation(case).begin(incentive, bench.book, cost=cost, state=bench.state(case))

    def note(self, seconds: list[float], bench: Bench) -> None:
        """Seconds mean nothing where runs share what they train."""


class WelfareVsAgents(Welfare):
    name = "welfare-vs-agents"
    title = "Social welfare against the number of agents"
    panel = "data"

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        panels = list(dict.fromkeys(r["case"][self.panel] for r in records))
        economies = list(dict.fromkeys(r["case"]["economy"] for r in records))
        figure, axes = figures.subplots(len(economies), len(panels))
        for row, economy in zip(axes, economies, strict=True):
            for axis, panel in zip(row, panels, strict=True):
                for mechanism in MECHANISMS:
                    points = [
                        (r["case"]["agents"], r["result"]["welfare"])
                        for r in records
                        if (r["case"]["economy"], r["case"][self.panel], r["case"]["mechanism"])
                        == (economy, panel, mechanism)
                    ]
                    figures.band(axis, points, **figures.STYLES[mechanism])
                figures.cut(axis)
                titled = f"{figures.TITLES.get(panel, panel)}\n{figures.TITLES.get(economy, economy)}"
                axis.set(xlabel="agents", title=titled, xticks=sorted({r["case"]["agents"] for r in records}))
            row[0].set_ylabel(WELFARE)
        figures.legend_below(figure, axes[0, 0])
        return {self.name: figure}


class NonIid(WelfareVsAgents):
    name = "non-iid"
    title = "Social welfare on IID, Dirichlet and pathological splits"
    panel = "split"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        labels = {"data": given["study"]["data"], "labels": "distribution", "agents": 10, "seed": 0}
        return [labels, *super().cases(given)]

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        if "labels" not in case:
            return super().play(case, bench)
        data = bench.dataset(case["data"])
        draws: dict[str, Any] = {"pathological": partition.pathological, "dirichlet": partition.dirichlet}
        return {
            split: partition.counts(data.y, draw(data.y, case["agents"], seed=case["seed"]), data.classes).tolist()
            for split, draw in draws.items()
        }

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        runs = [r for r in records if "labels" not in r["case"]]
        found = super().draw(runs, timings)
        tables = [r["result"] for r in records if "labels" in r["case"]]
        return {**found, **({"label-distributions": distributions(tables[0])} if tables else {})}


def distributions(tables: Mapping[str, Any]) -> Figure:
    """The paper's label-distribution figure: one bar per agent, one colour per class."""
    figure, axes = figures.subplots(1, len(tables), width=5.5)
    for axis, (split, rows) in zip(axes[0], tables.items(), strict=True):
        table = np.array(rows)
        axis.set_axisbelow(True)
        below = np.zeros(len(table))
        for label in range(table.shape[1]):
            colour = figures.CLASSES[label % len(figures.CLASSES)]
            axis.bar(np.arange(len(table)), table[:, label], bottom=below, color=colour, label=str(label),
                     edgecolor="white", linewidth=0.4)  # fmt: skip
            below += table[:, label]
        axis.set(xlabel="agent", title=figures.TITLES[split], xticks=range(len(table)))
    axes[0, 0].set_ylabel("examples")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, title="class",
                  columnspacing=0.8, handlelength=1.0)  # fmt: skip
    return figure


class WelfareVsBeta(Welfare):
    """2P-UPBReD with agents that look at their own slope: which beta is enough?"""

    name = "welfare-vs-beta"
    title = "Social welfare and contribution against beta"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        return [
            {"data": data, "agents": agents, "seed": seed, "economy": economy, "mechanism": name, "beta": beta}
            for data in as_list(study["data"])
            for agents in agents_of(given, data)
            for seed in range(study["seeds"])
            for economy in study["economies"]
            for name, beta in [("fedavg", "2"), *(("2p-upbred", beta) for beta in study["betas"])]
        ]

    def follows(self, case: Case) -> bool:
        return False  # several runs of 2P-UPBReD would mix their entries in the ledger

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        federation = bench.federation(case)
        incentive, cost = bench.incentive(case)
        played = federation.play(incentive, bench.book, cost=cost, state=bench.state(case))
        found = {**summary(played, table=False), "highest_cost": rounded(cost * max(federation.cost.values()))}
        if case["mechanism"] == "fedavg":  # once per federation
            found["steepest_loss"] = rounded(incentive["value_per_nat"] * steepest_loss(federation, incentive))
        return found

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        panels = list(dict.fromkeys(r["case"]["data"] for r in records))
        economies = list(dict.fromkeys(r["case"]["economy"] for r in records))
        figure, axes = figures.subplots(2, len(panels))
        looks = {"paper": ("#0072B2", "s", "--"), "calibrated": ("#D55E00", "o", "-")}
        for column, panel in enumerate(panels):
            for economy in economies:
                mine = [r for r in records if (r["case"]["data"], r["case"]["economy"]) == (panel, economy)]
                colour, marker, line = looks.get(economy, ("#009E73", "^", "-"))
                style = {"color": colour, "marker": marker, "linestyle": line, "label": figures.TITLES[economy]}
                for row, key in enumerate(("welfare", "share")):
                    points = [
                        (float(r["case"]["beta"]), r["result"][key] * (100.0 if key == "share" else 1.0))
                        for r in mine
                        if r["case"]["mechanism"] == "2p-upbred"
                    ]
                    figures.band(axes[row, column], points, **style)
            best = [r["result"]["welfare"] for r in mine if r["case"]["mechanism"] == "fedavg"]
            bound = np.mean([r["result"]["highest_cost"] for r in mine])
            axes[0, column].axhline(np.mean(best), color="#7f7f7f", linestyle=":", label="FedAvg, all data given")
            for row in (0, 1):
                axes[row, column].axvline(bound, color="black", linewidth=1, label="highest cost per point")
            axes[0, column].set_title(figures.TITLES.get(panel, panel))
            figures.cut(axes[0, column])
            axes[1, column].set(xlabel=r"$\beta$ [money per point]", ylim=(-3, 103))
        axes[0, 0].set_ylabel(WELFARE)
        axes[1, 0].set_ylabel("contributed [% of all points]")
        figures.legend_below(figure, axes[0, 0])
        return {self.name: figure}


def steepest_loss(federation: Federation, incentive: Mapping[str, Any], delta: int = 32) -> float:
    """The most that one point more costs an agent in nats, max_i -d v_i/d s_i: a lower bound of tau.

    Measured as agents do (one epoch from w0 on s and on s + delta points), at four contributions each.
    """
    local = Local(batch=incentive["batch"], learning_rate=incentive["learning_rate"], seed=federation.seed)
    least = min(len(order) for order in federation.orders.values())
    worst = 0.0
    for part in (0.25, 0.4, 0.55, 0.7):
        size = min(round(part * least), least - delta)
        fewer, more = (losses_after(federation, local, federation.w0, points) for points in (size, size + delta))
        rise = more - fewer
        worst = max(worst, float(rise.max()) / delta)
    return worst


class WelfareVsTime(Welfare):
    """Each mechanism trains for itself here: nothing is shared between runs, so that the seconds are real.

    Only where the preset keeps rounds, 2P-UPBReD has FedAvg's training, and counts it with the seconds it took there.
    """

    name = "welfare-vs-time"
    title = "Social welfare against processor time"

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        if bench.states is None or not self.follows(case):
            bench.forget()
        return super().play(case, bench)

    def note(self, seconds: list[float], bench: Bench) -> None:
        bench.seconds = seconds

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        panels = list(dict.fromkeys(r["case"]["data"] for r in records))
        figure, axes = figures.subplots(1, len(panels))
        clock = {str(t["case"]): t["seconds"] for t in timings}
        for axis, panel in zip(axes[0], panels, strict=True):
            for mechanism in MECHANISMS:
                mine = [r for r in records if (r["case"]["data"], r["case"]["mechanism"]) == (panel, mechanism)]
                x = np.mean([moments(r, clock[str(r["case"])]) for r in mine], axis=0)
                y = np.mean([[value for _, value in r["result"]["curve"]] for r in mine], axis=0)
                style = {**figures.STYLES[mechanism], "markevery": max(1, len(x) // 8)}
                axis.plot(x, y, **style)
            figures.cut(axis, below=1.2)
            axis.set(xlabel="processor time [s]", title=figures.TITLES.get(panel, panel))
        axes[0, 0].set_ylabel(WELFARE)
        figures.legend_below(figure, axes[0, 0])
        return {self.name: figure}


def moments(record: Record, seconds: Sequence[float]) -> list[float]:
    """When each point of a curve was reached: after phase 1, if there is one, and after each training round.

    Older files have every round of phase 1; in the last round of all the model is only valued.
    """
    return [0.0, *seconds][-record["result"]["training_rounds"] - 2 : -1]
