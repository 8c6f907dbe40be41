"""The paper's claims beside what came out: computed from the records of finished studies, also where they fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import runner
from .studies import Record
from .studies.liars import ratio
from .studies.welfare import moments


@dataclass(frozen=True)
class ClaimResult:
    """One claim, what was measured, and whether it held here: "yes", "no", or "partly"."""

    claim: str
    measured: str
    held: str


def table(root: str | Path) -> str:
    """A Markdown table of all claims whose study is finished under `root`."""
    rows = ["| claim of the paper | what came out | held |", "|---|---|---|"]
    rows += [f"| {o.claim} | {o.measured} | {o.held} |" for o in outcomes(root)]
    return "\n".join(rows) + "\n"


def outcomes(root: str | Path) -> list[ClaimResult]:
    found = []
    for study, checks in CHECKS.items():
        folder = Path(root) / study
        if not (folder / "results.jsonl").exists():
            continue
        records, timings = runner.lines(folder / "results.jsonl"), runner.lines(folder / "timings.jsonl")
        found += [check(records, timings) for check in checks]
    return found


def _matched(records: Sequence[Record], key: str = "welfare") -> list[dict[str, float]]:
    """One {mechanism: result} per setting in which all mechanisms were played."""
    groups: dict[tuple, dict[str, float]] = {}
    for r in records:
        if "mechanism" in r["case"]:
            setting = tuple((k, v) for k, v in r["case"].items() if k != "mechanism")
            groups.setdefault(setting, {})[r["case"]["mechanism"]] = r["result"][key]
    return list(groups.values())


def _held(part: int, whole: int) -> str:
    return "yes" if part == whole else "no" if part == 0 else "partly"


def same_welfare(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    runs = _matched(records)
    worst = max(abs(run["2p-upbred"] - run["fedavg"]) for run in runs)
    return ClaimResult(
        "2P-UPBReD has the welfare of FedAvg for every number of agents",
        f"largest difference over {len(runs)} settings: {worst:.3g} nats",
        "yes" if worst < 1e-6 else "no",
    )


def beats(other: str, claim: str) -> Callable[[Sequence[Record], Sequence[Record]], ClaimResult]:
    def check(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
        runs = _matched(records)
        wins = sum(run["2p-upbred"] > run[other] for run in runs)
        return ClaimResult(claim, f"in {wins} of {len(runs)} runs", _held(wins, len(runs)))

    return check


def strategic_is_worst(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    runs = _matched(records)
    last = sum(run["fedavg-strategic"] == min(run.values()) for run in runs)
    return ClaimResult("FedAvg-strategic is the worst", f"in {last} of {len(runs)} runs", _held(last, len(runs)))


def same_time(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    clock = {str(t["case"]): t["seconds"] for t in timings}
    total: dict[tuple[str, str], list[float]] = {}
    for r in records:
        total.setdefault((r["case"]["data"], r["case"]["mechanism"]), []).append(moments(r, clock[str(r["case"])])[-1])
    ratios = {
        d: np.mean(total[d, "2p-upbred"]) / np.mean(total[d, "fedavg"]) for d in dict.fromkeys(d for d, _ in total)
    }
    shown = ", ".join(f"{data} {value:.2f}" for data, value in ratios.items())
    return ClaimResult(
        "2P-UPBReD takes nearly the time of FedAvg",
        f"processor time of 2P-UPBReD over FedAvg: {shown}",
        _held(sum(value < 1.25 for value in ratios.values()), len(ratios)),
    )


def threshold(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    """Above some beta everyone contributes everything, and stays there for every larger one."""
    stays, top = [], 0.0
    for data, economy in dict.fromkeys((r["case"]["data"], r["case"]["economy"]) for r in records):
        mine = _of(records, data=data, economy=economy, mechanism="2p-upbred")
        enough = lowest_enough(mine)
        above = [r for r in mine if enough is not None and float(r["case"]["beta"]) >= enough]
        stays.append(bool(above) and all(r["result"]["share"] == 1.0 for r in above))
        top = max(top, enough or 0.0)
    return ClaimResult(
        "Contribution reaches s_max for beta above a threshold",
        f"in {sum(stays)} of {len(stays)} combinations of data and economy, from beta = {top:g} on at the latest",
        _held(sum(stays), len(stays)),
    )


def below_theory(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    """The lowest beta tried that is enough, against zeta + tau: the highest cost and the steepest loss measured."""
    lower: dict[str, list[bool]] = {}
    for known in _of(records, mechanism="fedavg"):
        case, result = known["case"], known["result"]
        run = _of(records, mechanism="2p-upbred", **{key: case[key] for key in ("data", "seed", "economy")})
        enough, theory = lowest_enough(run), result["highest_cost"] + result["steepest_loss"]
        lower.setdefault(case["economy"], []).append(enough is not None and enough < theory)
    shown = ", ".join(f"in {sum(found)} of {len(found)} runs ({economy})" for economy, found in lower.items())
    return ClaimResult(
        "A beta below the theoretical one suffices",
        f"the lowest beta tried that is enough is below the zeta + tau measured {shown}",
        _held(sum(map(sum, lower.values())), sum(map(len, lower.values()))),
    )


def lowest_enough(records: Sequence[Record]) -> float | None:
    """The lowest beta tried at which every run reaches s_max."""
    betas = sorted({float(r["case"]["beta"]) for r in records})
    full = [b for b in betas if all(r["result"]["share"] == 1.0 for r in records if float(r["case"]["beta"]) == b)]
    return full[0] if full else None


def paid_and_monotone(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    right, total, monotone = 0, 0, 0
    for r in records:
        agents = sorted(r["result"]["agents"].values(), key=lambda agent: agent["s"])
        mean = np.mean([agent["s"] for agent in agents])
        right += sum((agent["payment"] > 0) == (agent["s"] > mean) for agent in agents)
        total += len(agents)
        payments = [agent["payment"] for agent in agents]
        monotone += all(b >= a - 1e-5 for a, b in zip(payments, payments[1:], strict=False))
    return ClaimResult(
        "Contributors are paid, consumers pay, monotone in the contribution",
        f"sign right for {right} of {total} agents (paid above the mean, pays below), monotone in {monotone} of "
        f"{len(records)} runs; every run sums to 0",
        "yes" if right == total and monotone == len(records) else "partly",
    )


def trimming(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    parts, near = [], []
    for data in dict.fromkeys(r["case"]["data"] for r in records):
        mine = _of(records, data=data)
        least = {
            name: min(_mean_ratio(mine, name, alpha) for alpha in {r["case"]["alpha"] for r in mine} - {0.0})
            for name in ("trim-2p-upbred", "2p-upbred", "upbred")
        }
        near.append(least["trim-2p-upbred"] > 0.8)
        parts.append(
            f"{data}: trimmed {least['trim-2p-upbred']:.2f}, 2P {least['2p-upbred']:.2f}, UPBReD {least['upbred']:.2f}"
        )
    return ClaimResult(
        "Trimming keeps the welfare ratio near 1", "lowest ratio over all alphas, " + "; ".join(parts),
        _held(sum(near), len(near)),
    )  # fmt: skip


def _mean_ratio(records: Sequence[Record], mechanism: str, alpha: float) -> float:
    return float(np.mean([ratio(r, records) for r in _of(records, mechanism=mechanism, alpha=alpha)]))


def lying(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    gains = {phi: [r["result"]["gain"] for r in records if r["case"].get("phi") == phi] for phi in ("paper", "audited")}
    pays = {phi: sum(gain > 0 for gain in found) for phi, found in gains.items()}
    n = len(gains["paper"])
    return ClaimResult(
        "T-UPBReD makes honest reports the best ones",
        f"as printed a scaled update pays in {pays['paper']} of {n} games; with the audited fine in {pays['audited']}",
        "yes" if not any(pays.values()) else "no as printed, yes audited" if not pays["audited"] else "no",
    )


def free_updates(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    real = [r for r in records if "data" in r["case"]]
    utility = {lie: np.mean([r["result"]["utility"] for r in _of(real, lie=lie)]) for lie in ("none", "zero-d")}
    return ClaimResult(
        "Under UPBReD an agent gains by d = 0 and a lower s",
        f"utility {utility['none']:.1f} honest, {utility['zero-d']:.1f} lying (mean of {len(real) // 2} runs)",
        "yes" if utility["zero-d"] > utility["none"] else "no",
    )


def hazard(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    def utility(**wanted: Any) -> float:
        chosen = [r["result"] for r in _of(records, **wanted)]
        return float(np.mean([result["agents"][result["deviator"]]["utility"] for result in chosen]))

    gain = {s: utility(settlement=s, share=0.0) - utility(settlement=s, share=1.0) for s in ("commitment", "tranches")}
    return ClaimResult(
        "Full contribution is an equilibrium (the paper does not say when it is paid)",
        f"gain from delivering nothing: {gain['commitment']:+.1f} if settled at commitment, {gain['tranches']:+.1f} "
        "in tranches",
        "only in tranches" if gain["commitment"] > 0 > gain["tranches"] else "partly",
    )


def one_point(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    slopes = np.concatenate([np.ravel(list(r["result"]["slopes"].values())) for r in records])
    return ClaimResult(
        "Costs of U[0, 1] per point, beside a loss in nats",
        f"one point moves the loss by {np.median(np.abs(slopes)):.1e} nats (median size; {np.mean(slopes):+.1e} saved "
        "on average): costs are thousands of times larger, so nobody contributes under the paper's literal settings",
        "out of scale",
    )


def example(records: Sequence[Record], timings: Sequence[Record]) -> ClaimResult:
    frozen, joint, repaired = (next(r["result"] for r in _of(records, kind=k)) for k in ("frozen", "joint", "repaired"))

    def at(values: Sequence[float]) -> str:
        return "(" + ", ".join(f"{value:.3g}" for value in values) + ")"

    return ClaimResult(
        "Example 1 converges to w = (0.5, 1.5), s = (0, 5), welfare 1.8",
        f"with w frozen: s = {at(frozen['s'])}, welfare {frozen['welfare']:.3g}; together: s runs to {at(joint['s'])} "
        f"and the value becomes 0/0; repaired: w = {at(repaired['w'])}, s = {at(repaired['s'])}, welfare "
        f"{repaired['welfare']:.3g} of {repaired['optimal_welfare']:.3g}",
        "no as printed",
    )


def _of(records: Sequence[Record], **wanted: Any) -> list[Record]:
    return [r for r in records if all(r["case"].get(key) == value for key, value in wanted.items())]


CHECKS: dict[str, list[Callable[[Sequence[Record], Sequence[Record]], ClaimResult]]] = {
    "example1": [example],
    "welfare-vs-agents": [same_welfare, beats("upbred", "2P-UPBReD outperforms UPBReD"), strategic_is_worst],
    "welfare-vs-time": [same_time],
    "welfare-vs-beta": [threshold, below_theory],
    "payments-vs-contribution": [paid_and_monotone],
    "non-iid": [beats("upbred", "2P-UPBReD outperforms UPBReD on IID, Dirichlet and pathological splits")],
    "adversarial": [trimming],
    "misreport": [lying, free_updates],
    "moral-hazard": [hazard],
    "one-point": [one_point],
}
