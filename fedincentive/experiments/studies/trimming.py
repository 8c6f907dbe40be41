"""What trimming costs: why a trimmed mean keeps less of the welfare than the plain one had, and what mends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...adversary import Misreport, attack
from ...messages import Update
from .. import figures
from .base import Bench, Case, Record, Study, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOMENTUM = 0.9
# name -> aggregation, size of the sign flip that the adversaries send (None: they are honest; 0: they send nothing),
# server optimizer. Each is compared with the plain mean of honest agents under the same optimizer. Where the name says
# momentum, all agents send running averages.
VARIANTS: dict[str, tuple[str, float | None, str]] = {
    "mean, all honest": ("mean", None, "adam"),
    "mean, adversaries send 0": ("mean", 0.0, "adam"),
    "trimmed, all honest": ("trimmed-mean", None, "adam"),
    "trimmed, adversaries send 0": ("trimmed-mean", 0.0, "adam"),
    "trimmed, flip x 1": ("trimmed-mean", 1.0, "adam"),
    "trimmed, flip x 3": ("trimmed-mean", 3.0, "adam"),
    "trimmed, flip x 30": ("trimmed-mean", 30.0, "adam"),
    "median, flip x 3": ("median", 3.0, "adam"),
    "NNM and trimmed, flip x 3": ("nnm+trimmed-mean", 3.0, "adam"),
    "momentum and mean, all honest": ("mean", None, "adam"),
    "momentum and trimmed, flip x 3": ("trimmed-mean", 3.0, "adam"),
    "SGD: mean, all honest": ("mean", None, "sgd"),
    "SGD: trimmed, flip x 3": ("trimmed-mean", 3.0, "sgd"),
}
CLEAN = {"adam": "mean, all honest", "sgd": "SGD: mean, all honest"}
COLOURS = {"adam": "#0072B2", "sgd": "#009E73"}


class Averaging:
    """A site whose update is the running average of its own over the rounds, and begins with the first."""

    def __init__(self, site: Any) -> None:
        self._site = site
        self._kept: Update | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def update(self, w: Update, points: float, step: int, s: Mapping[str, float]) -> Update:
        d = self._site.update(w, points, step, s)
        if self._kept is not None:
            d = {name: MOMENTUM * self._kept[name] + (1 - MOMENTUM) * array for name, array in d.items()}
        self._kept = d
        return d


class Trimming(Study):
    """2P-UPBReD at one fraction of adversaries, with one cause of the loss at a time."""

    name = "trimming"
    title = "What trimming costs, and why"

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        study = given["study"]
        kept = [name for name in VARIANTS if not (_averages(name) and given.get("keep_rounds"))]  # it is not on disk
        return [
            {"data": study["data"], "agents": study["agents"], "seed": seed, "economy": "paper", "variant": variant}
            for seed in range(study["seeds"])
            for variant in kept
        ]

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        study, federation = bench.given["study"], bench.federation(case)
        rule, size, optimizer = VARIANTS[case["variant"]]
        bad = federation.names[: round(study["alpha"] * len(federation.names))] if size is not None else []
        site = Averaging if _averages(case["variant"]) else None
        lies = dict.fromkeys(federation.names, Misreport(site=site))
        lies |= dict.fromkeys(bad, Misreport(site=site, update=attack("sign-flip", size or 0.0, seed=case["seed"])))
        # FedAvg's step is eta = 1 under SGD; Adam's is the preset's.
        steps = {"server_optimizer": optimizer, **({"eta": 1.0} if optimizer == "sgd" else {})}
        incentive, cost = bench.incentive(
            case, mechanism="2p-upbred", slope="bounded", aggregation=rule, alpha=study["alpha"], **steps
        )
        played = federation.play(incentive, bench.book, cost=cost, state=bench.state(case), lies=lies)
        return {**summary(played, table=False), "adversaries": len(bad)}

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        figure, axes = figures.subplots(1, 2, width=6.4, height=4.6)
        left, right = axes[0]
        shown = [name for name in VARIANTS if _of(records, name) and name not in CLEAN.values()]
        early, late = marks(records)
        for k, name in enumerate(reversed(shown)):
            colour = COLOURS[VARIANTS[name][2]]
            ends = [float(np.mean([ratios(r, records)[at] for r in _of(records, name)])) for at in (early, late)]
            left.plot(ends, [k, k], color=colour, linewidth=1)
            left.plot(ends[:1], [k], "o", color=colour, label=f"round {early}" if k == 0 else None)
            left.plot(ends[1:], [k], "s", color=colour, fillstyle="none", label=f"round {late}" if k == 0 else None)
        left.set(yticks=range(len(shown)), yticklabels=list(reversed(shown)), xlabel="welfare / plain mean, all honest")
        left.axvline(1, color="#7f7f7f", linewidth=1)
        for drawn in left.legend(loc="upper left", fontsize=9).legend_handles:
            drawn.set_color("#404040")  # the colours are of the server's optimizer
        looks = {
            "trimmed, all honest": "-",
            "trimmed, flip x 3": "--",
            "momentum and trimmed, flip x 3": "-.",
            "NNM and trimmed, flip x 3": ":",
        }
        for name, line in looks.items():
            curves = np.array([list(ratios(r, records).values()) for r in _of(records, name)])
            right.plot(list(ratios(records[0], records)), curves.mean(axis=0), linestyle=line, label=name)
        right.axhline(1, color="#7f7f7f", linewidth=1)
        right.set(xlabel="training round", ylim=(0, 1.15), ylabel="welfare / plain mean, all honest")
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize=9)
        return {self.name: figure}


def marks(records: Sequence[Record]) -> tuple[int, int]:
    """Half of the rounds and all of them: what is only delayed comes back in between."""
    last = int(records[0]["result"]["curve"][-1][0])
    return last // 2, last


def ratios(record: Record, records: Sequence[Record]) -> dict[int, float]:
    """Welfare of all agents after each round, over that of the plain mean with all agents honest."""
    case = record["case"]
    clean = CLEAN[VARIANTS[case["variant"]][2]]
    (base,) = (r["result"]["curve"] for r in _of(records, clean) if r["case"]["seed"] == case["seed"])
    pairs = zip(record["result"]["curve"], base, strict=True)
    return {int(step): mine / other for (step, mine), (_, other) in pairs if step >= 3}  # near 0 before


def table(records: Sequence[Record]) -> str:
    """A Markdown table: the ratio of each variant half-way and at the end, the mean over seeds and their range."""
    early, late = marks(records)
    rows = [f"| aggregation and attack | round {early} | round {late} |", "|---|---|---|"]
    for name in [name for name in VARIANTS if _of(records, name)]:
        found = [ratios(r, records) for r in _of(records, name)]
        cells = [[one[at] for one in found] for at in (early, late)]
        shown = [f"{np.mean(cell):.2f} ({min(cell):.2f} to {max(cell):.2f})" for cell in cells]
        rows.append(f"| {name} | {shown[0]} | {shown[1]} |")
    return "\n".join(rows) + "\n"


def _averages(variant: str) -> bool:
    return variant.startswith("momentum")


def _of(records: Sequence[Record], variant: str) -> list[Record]:
    return [r for r in records if r["case"]["variant"] == variant]
