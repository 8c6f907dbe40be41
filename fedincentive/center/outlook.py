"""What to expect of a run before its first round, as far as the center can know: ten lines for the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..mechanisms import Mechanism
from ..messages import Enrol
from ..payments import Deposit

NAMED = 10
UNKNOWN = 10  # classes, where the host does not know how many there are: for an example, never for a verdict
STRIDES = 2  # with a constant price: nine tenths of the way, then all of it


@dataclass(frozen=True)
class Outlook:
    """The page, and the agents that lose even if the model becomes perfect: agent -> at least how much."""

    lines: tuple[str, ...]
    losers: dict[str, float]
    n: int

    @property
    def bad(self) -> bool:
        """Whether most agents lose."""
        return 2 * len(self.losers) > self.n


def outlook(mechanism: Mechanism, enrolled: Sequence[Enrol], classes: int | None = None) -> Outlook:
    """What the settings and the enrolments say of a run in which everyone gives all it has.

        what an agent ends with  <=  most value_per_nat - cost_i s_max_i + payments

    A perfect model has a loss of 0 and is worth ln(classes) nats; where the number of classes is not known here, at
    most `loss_cap`. Whoever is below 0 there loses for certain.
    """
    settings, agents = mechanism.settings, tuple(sorted(e.agent for e in enrolled))
    has = {e.agent: float(e.s_max) for e in enrolled}
    s_max, costs = np.array([has[a] for a in agents]), np.array([settings.cost_of(a) for a in agents])
    everyone = mechanism.gives_all or not (mechanism.two_phases or mechanism.moves)
    most = settings.loss_cap if classes is None else _nats(classes)
    worth, spent = most * settings.value_per_nat, costs * s_max
    deposits = [p for p in mechanism.payments if isinstance(p, Deposit)]
    others = [p for p in mechanism.payments if p not in deposits]
    fixed = [p for p in others if p.steers or p.fixed]
    paid = sum((p.floats(agents, s_max) for p in fixed), start=np.zeros(len(agents)))
    known, stated = everyone and len(fixed) == len(others), bool(spent.any())

    def losing(value: float) -> dict[str, float]:
        ends = value - spent + paid if known and stated else np.zeros(len(agents))
        return {agent: -float(end) for agent, end in zip(agents, ends, strict=True) if end < 0.0}

    losers = losing(worth)
    example = losing(_nats(UNKNOWN) * settings.value_per_nat) if classes is None else {}
    lines = [
        f"Before the first round of {settings.run} ({mechanism.name}, {len(agents)} agents, {s_max.sum():g} points):"
    ]
    lines += _line("phase 1", _rounds(mechanism, enrolled, costs)) if mechanism.two_phases else []
    lines += _line("price", f"{_price(mechanism)}; {_costs(costs)}")
    lines += _line(
        "worth",
        f"a model is worth at most {worth:.6g} to an agent ({_worth(settings.value_per_nat, most, classes)}) and "
        f"{worth * len(agents):.6g} to all; all points together cost {spent.sum():g}",
    )
    if known and others:
        lines += _line("payments", _extremes(agents, paid, "receives", "pays", settings.currency))
    lines += _line("loses", _losers(losers, example, known, stated, settings.currency))
    lines += _line("can owe", _owed(agents, s_max, others, deposits, settings.currency))
    lines += _line("not verified", _unverified(mechanism))
    return Outlook(tuple(lines), losers, len(agents))


def _nats(classes: int) -> float:
    """As a site counts: a model that knows nothing has this loss."""
    return math.log(max(classes, 2))


def _worth(per_nat: float, most: float, classes: int | None) -> str:
    each = f"value_per_nat = {per_nat:g} for each of at most {most:.4g} nats"
    if classes is not None:
        return f"{each}: {classes} classes"
    return f"{each}; at most {_nats(UNKNOWN) * per_nat:.4g} with {UNKNOWN} classes"


def _line(title: str, text: str) -> list[str]:
    return [f"  {title:<14}{text}"]


def _rounds(mechanism: Mechanism, enrolled: Sequence[Enrol], costs: np.ndarray) -> str:
    """A constant price per point moves everyone the same way; what is measured on data cannot be foreseen."""
    settings, limit = mechanism.settings, f"at most {mechanism.settings.round_limit} rounds (round_limit)"
    if (settings.slope or mechanism.slope) != "bounded" or not mechanism.beta:
        return f"agents measure what a point is worth to them: {limit}"
    slopes = float(mechanism.beta) - costs - settings.tau
    if np.any(slopes <= 0.0):
        agents = sorted(e.agent for e in enrolled)
        short = [agents[i] for i in np.flatnonzero(slopes <= 0.0)]
        least = f"{costs.max() + settings.tau:g}"
        return f"ends early: {_first(short)} paid less for a point than it costs; raise incentive.beta above {least}"
    gap = {e.agent: float(e.s_max - e.s0) for e in enrolled}
    gaps = np.array([gap[agent] for agent in sorted(gap)])
    if settings.gamma is None:
        rounds = STRIDES if gaps.any() else 0
    else:
        rounds = math.ceil(float(np.max(gaps / (settings.gamma * slopes))) - 1e-9)
    if rounds > settings.round_limit:
        return f"would take {rounds} rounds, more than round_limit = {settings.round_limit}: leave incentive.gamma out"
    return f"about {rounds} rounds, {rounds * len(gap)} messages each way"


def _price(mechanism: Mechanism) -> str:
    if not mechanism.beta:
        return "; ".join(p.summary() for p in mechanism.payments) or "nothing is paid"
    return f"{float(mechanism.beta):g} {mechanism.settings.currency} per point"


def _costs(costs: np.ndarray) -> str:
    if not costs.any():
        return "no costs are stated (incentive.cost), and the center cannot know them"
    low, high = costs.min(), costs.max()
    between = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"a point costs its owner {between}, as incentive.cost says"


def _extremes(agents: Sequence[str], amounts: np.ndarray, up: str, down: str, unit: str) -> str:
    most, least = int(np.argmax(amounts)), int(np.argmin(amounts))
    if amounts[most] <= 1e-9:
        return "nobody is paid" if amounts[least] >= -1e-9 else f"{agents[least]} {down} {-amounts[least]:g} {unit}"
    return (
        f"if all give everything, {agents[most]} {up} the most, {amounts[most]:.6g} {unit}, and {agents[least]} {down} "
        f"the most, {-amounts[least]:.6g}"
    )


def _losers(losers: dict[str, float], example: dict[str, float], known: bool, stated: bool, unit: str) -> str:
    if not known:
        return "not known: agents choose what they give, or are paid on what happens in training"
    if not stated:
        return "not known without costs"
    if losers:
        return f"even if the model becomes perfect: {_amounts(losers, unit, 'at least ')}"
    if example:
        return f"nobody for certain; with {UNKNOWN} classes or fewer {_amounts(example, unit, 'at least ')}"
    return "nobody for certain; the center does not know what the model will be worth to each"


def _amounts(of: dict[str, float], unit: str, before: str = "") -> str:
    """The largest first, and of the many only a count."""
    worst = sorted(of, key=lambda agent: (-of[agent], agent))
    told = ", ".join(f"{agent} {before}{of[agent]:.6g}" for agent in worst[:NAMED])
    more = f" and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
    return f"{told}{more} {unit}" if not more else f"{told} {unit}{more}"


def _owed(agents: Sequence[str], s_max: np.ndarray, others: Sequence, deposits: Sequence, unit: str) -> str:
    limits = [payment.limits(agents, s_max) for payment in others]
    if any(limit is None for limit in limits):
        return "there is no limit to what an agent can owe"
    owed = sum((limit for limit in limits if limit is not None), start=np.zeros(len(agents)))
    if owed.max() <= 0.0:
        return "nobody can owe anything"
    held = [deposit.limits(agents, s_max) for deposit in deposits]
    beside = f", beside a deposit of up to {max(float(h.max()) for h in held if h is not None):.6g}" if held else ""
    return f"at most {_amounts(dict(zip(agents, owed.tolist(), strict=True)), unit)}{beside}"


def _unverified(mechanism: Mechanism) -> str:
    settings = mechanism.settings
    told = "costs and values are only stated"
    if not settings.audited:
        told += "; how many points an agent has and trains on is reported, not checked (incentive.auditors)"
    return told + ("" if settings.keys else "; nothing is signed (incentive.keys)")


def _first(agents: Sequence[str]) -> str:
    more = f" and {len(agents) - NAMED} more" if len(agents) > NAMED else ""
    return ", ".join(agents[:NAMED]) + more + (" is" if len(agents) == 1 else " are")
