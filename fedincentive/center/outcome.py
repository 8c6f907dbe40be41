"""How a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..game.phases import Ending, advice, named
from ..mechanisms import Mechanism, Promises, Run
from ..messages import Update
from ..payments import TREASURY


@dataclass(frozen=True)
class Outcome:
    """The end of a run. `status` is "complete", "rested" or "round limit"; `advice` says what to do then."""

    run: str
    mechanism: str
    status: str
    w: Update
    s0: Mapping[str, float]
    s: Mapping[str, float]
    s_max: Mapping[str, float]
    payments: Mapping[str, int]  # every agent's balance over the run, in minor units
    treasury: int  # its balance in minor units; negative: the center paid
    delivered: Mapping[str, float]  # points per training round, on average
    valuations: Mapping[str, float]  # last reported
    rounds: int  # of any kind
    contributed: int
    trained: int
    short: tuple[str, ...]  # agents that contribute less than all they have
    advice: str
    promises: Promises
    basis: str  # "attested" when every report was signed, else "reported"
    head: str | None
    digest: str  # sha256 of the model
    counts: Mapping[str, int] = field(default_factory=dict)  # reports dropped and refused

    def to_json(self) -> dict[str, Any]:
        """Everything but the model, as plain values."""
        kept = {key: value for key, value in self.__dict__.items() if key not in ("w", "promises")}
        return {**kept, "short": list(self.short), "claims": list(self.promises.claims)}


def advise(run: Run, mechanism: Mechanism, ne: float | None = None, dom: float | None = None) -> str:
    """What an operator reads where phase 1 did not reach its end; without a game beta_dom comes from the settings."""
    if run.status in ("running", "complete"):
        return ""
    settings = run.settings
    slope = 0.0 if run.moved is None else run.moved / settings.scale / settings.gamma
    if not mechanism.contribution:
        return (
            f"Phase 1 did not rest in {run.contributed} rounds (|g| = {slope:.3g}): raise incentive.round_limit, gamma "
            "or tol, or set when_short: train."
        )
    ending: Ending = "rested" if run.status == "rested" else "round limit"
    return advice(ending, run.short, float(mechanism.beta), ne, dom or beta_bound(run), run.contributed, slope)


def beta_bound(run: Run) -> float | None:
    """zeta + tau as far as the settings know them; None where no cost is given."""
    costs = [run.settings.cost_of(agent) for agent in run.agents]
    return max(costs) + run.settings.tau if any(costs) else None


def caution(run: Run, mechanism: Mechanism) -> str:
    """Said before the first round where beta is known to be too small for somebody; not an error."""
    if not mechanism.contribution or beta_bound(run) is None:
        return ""
    settings, beta = run.settings, float(mechanism.beta)
    unwilling = [agent for agent in run.agents if settings.cost_of(agent) + settings.tau >= beta]
    if not unwilling:
        return ""
    return (
        f"incentive.beta = {beta:g} is not above cost + tau: {named(unwilling)} not sure to give everything. "
        f"beta_dom = {beta_bound(run):g}: above it every further point pays."
    )


def outcome(run: Run, mechanism: Mechanism, phi: str, **known: Any) -> Outcome:
    minor = run.settings.minor
    return Outcome(
        run=run.settings.run,
        mechanism=mechanism.name,
        status=run.status,
        s0=run.points(run.s0),
        s=run.points(run.s),
        s_max=dict(run.limits),
        payments={agent: run.balances.get(agent, 0) for agent in run.agents},
        treasury=run.balances.get(TREASURY, 0),
        delivered=delivered(run),
        valuations={agent: value / minor for agent, value in run.valuations.items()},
        rounds=run.round,
        contributed=run.contributed,
        trained=run.trained,
        short=run.short,
        advice=advise(run, mechanism),
        promises=mechanism.promises(phi),
        **known,
    )


def delivered(run: Run) -> dict[str, float]:
    """Points per training round; who always gave all it has gave exactly its s_max."""
    scale, rounds, total = run.settings.scale, run.trained, run.delivered_total
    if not rounds:
        return dict.fromkeys(run.agents, 0.0)
    return {a: run.limits[a] if total[a] == run.s_max[a] * rounds else total[a] / (scale * rounds) for a in run.agents}
