"""How a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..game import Certificate, Fact
from ..mechanisms import Mechanism
from ..messages import Update
from ..payments import TREASURY, Oracles, Promises
from ..run import Run
from .worth import means

NAMED = 5  # agents named in a sentence before "and k more"


@dataclass(frozen=True)
class Outcome:
    """The end of a run. `status` is "complete", "rested", "round limit", "declined", or "stopped" where audits left too
    few agents to train; `advice` says what to do then.

    >>> from fedincentive import play
    >>> ended = play({"game": {"kind": "repaired"}}, beta="0.01", gamma=20.0, rounds=5)
    >>> ended.status, ended.short
    ('rested', ('agent-1',))
    """

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
    given: Mapping[str, float]  # what counts: delivered in training, not agreed to, unless both move together
    valuations: Mapping[str, float]  # last reported
    rounds: int  # of any kind
    contributed: int
    trained: int
    short: tuple[str, ...]  # agents that contribute less than all they have
    lost: tuple[str, ...]  # agents that phase 1 went on without
    advice: str
    promises: Promises
    basis: str  # "signed" when every report was, else "reported"
    head: str | None
    checkpoint: str | None  # the ledger's COUNT:HASH after the run
    digest: str  # sha256 of the model
    worth: Mapping[str, float] = field(default_factory=dict)  # of each agent's updates on average, where measured
    counts: Mapping[str, int] = field(default_factory=dict)  # reports dropped and refused
    certificate: Certificate | None = None
    declined: Mapping[str, str] = field(default_factory=dict)  # who left before the run began, and why
    withheld: Mapping[str, float] = field(default_factory=dict)  # value of the model that agents were not given
    worked: Mapping[str, float] | None = None  # what each agent really trained on, where a simulation with lies knows

    def to_json(self) -> dict[str, Any]:
        """Everything but the model, as plain values."""
        apart = (
            "w",
            "promises",
            "certificate",
            "checkpoint",
            "worked",
        )  # the manifest has the last two in places of their own
        kept = {key: value for key, value in self.__dict__.items() if key not in apart}
        if not self.withheld:  # only where models are degraded
            del kept["withheld"]
        listed = {"short": list(self.short), "lost": list(self.lost)}
        return {**kept, **listed, "claims": [str(claim) for claim in self.promises.claims]}


def advise(run: Run, mechanism: Mechanism, ne: float | None = None, dom: float | None = None) -> str:
    """What an operator reads where phase 1 did not reach its end, or went on without somebody; without a game the
    bounds come from the settings."""
    if run.status == "declined":
        return f"Too few agents take part: {_reasons(run.declined)}. Nothing was charged."
    if run.status == "stopped":
        who = ", ".join(sorted(run.failed))
        return f"Training stopped after {run.trained} rounds: too few agents are left, as audits failed {who}."
    told = [_lost(run)] if run.lost else []
    if run.status not in ("running", "complete"):
        told += [said for payment in mechanism.payments if (said := payment.advice(run, ne, dom))] or [_restless(run)]
        told += [] if run.trained else ["Nobody trained, so nobody had a cost, and nothing is paid."]
    return " ".join(told)


def _lost(run: Run) -> str:
    """An absent agent is no reason to change the price."""
    s, k = run.points(run.s), run.settings.misses
    gave = ", ".join(f"{name} with {s[name]:g} of {run.limits[name]:g} points" for name in run.lost[:NAMED])
    more = f" and {len(run.lost) - NAMED} more" if len(run.lost) > NAMED else ""
    return (
        f"Phase 1 went on without agents that missed {k} of its rounds in a row; they count with what they said last: "
        f"{gave}{more}. Reach them before the next run, or allow more misses (incentive.misses)."
    )


def _restless(run: Run) -> str:
    wait = f"raise incentive.round_limit{'' if run.settings.gamma is None else ', gamma'} or tol"
    train = "" if run.trained else ", or set when_short: train"
    return f"Phase 1 did not settle in {run.contributed} rounds ({run.speed}): {wait}{train}."


def _reasons(declined: Mapping[str, str]) -> str:
    return "; ".join(f"{agent} declined ({why})" for agent, why in declined.items())


def tau(run: Run, mechanism: Mechanism) -> Fact:
    """The most that a further point is known to take from an agent's value."""
    if run.slope is not None:
        return Fact(
            max(0.0, -run.slope), "reported", "estimated from how agents moved s, with the costs of the settings"
        )
    return Fact(run.settings.tau, "assumed", "incentive.tau; nobody measured it")


def outcome(run: Run, mechanism: Mechanism, oracles: Oracles, **known: Any) -> Outcome:
    minor, s, trained = run.settings.minor, run.points(run.s), delivered(run)
    return Outcome(
        run=run.settings.run,
        mechanism=mechanism.name,
        status=run.status,
        s0=run.points(run.s0),
        s=s,
        s_max=dict(run.limits),
        payments={agent: run.balances.get(agent, 0) for agent in run.agents},
        treasury=run.balances.get(TREASURY, 0),
        delivered=trained,
        given=trained if run.trained and not mechanism.moves else s,
        valuations={agent: value / minor for agent, value in sorted(run.valuations.items())},
        rounds=run.round,
        contributed=run.contributed,
        trained=run.trained,
        short=run.short,
        lost=run.lost,
        advice=advise(run, mechanism),
        promises=mechanism.promises(oracles),
        declined=dict(run.declined),
        worth=means(run),
        **known,
    )


def delivered(run: Run) -> dict[str, float]:
    """Points per training round; who always gave all it has gave exactly its s_max."""
    scale, rounds, total = run.settings.scale, run.trained, run.delivered_total
    if not rounds:
        return dict.fromkeys(run.agents, 0.0)
    return {a: run.limits[a] if total[a] == run.s_max[a] * rounds else total[a] / (scale * rounds) for a in run.agents}
