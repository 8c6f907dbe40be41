"""Claims: what a mechanism promises, in a vocabulary that the certificate can check.

A mechanism declares names from `CLAIMS` (or its own `Claim`); the certificate answers held, broken with the agent,
its deviation and its gain, not verifiable here, or not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import GameError
from ..settings import nearest
from .arrays import Array
from .games import Game
from .regret import Basis, Regret

Status = Literal["held", "broken", "not verifiable", "not claimed"]


@dataclass(frozen=True)
class Misreports:
    """The result of a search for profitable misreports: how it searched, and the best one it found, if any."""

    search: str
    gain: float = 0.0
    agent: str | None = None
    deviation: str | None = None


@dataclass(frozen=True)
class Shortfall:
    """An agent that ends below its outside option, or pays above its budget, with both numbers."""

    agent: str
    amount: float
    limit: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything a claim may be checked against. None means: not known to whoever certifies."""

    agents: tuple[str, ...]
    s: Array
    s_max: Array | None
    game: Game | None
    beta: float
    basis: Basis  # of s
    payments: tuple[Mapping[str, int], ...] | None  # as posted, one mapping per posting, minor units
    treasury: int | None  # what the treasury paid out, minor units
    regret: Regret
    losers: tuple[Shortfall, ...] | None
    losers_basis: Basis
    gap: float | None
    gap_basis: Basis
    misreports: Misreports | None
    tol: float


@dataclass(frozen=True)
class Finding:
    """The verdict on one claim."""

    claim: str
    status: Status
    detail: str
    basis: Basis
    agent: str | None = None
    deviation: str | None = None
    gain: float | None = None

    def __str__(self) -> str:
        who = ""
        if self.status == "broken" and self.agent is not None:
            who = f" [agent {self.agent}, {self.deviation}, gain {self.gain:.6g}]"
        return f"{self.status}: {self.detail}{who}"


@dataclass(frozen=True)
class Claim:
    """A promise: its name, what it says, and how evidence decides it."""

    name: str
    says: str
    check: Callable[[Evidence], Finding]


def claim(which: str | Claim) -> Claim:
    """The claim of that name; a third party's own Claim passes through."""
    if isinstance(which, Claim):
        return which
    if which not in CLAIMS:
        raise GameError(f"No claim {which!r}.{nearest(which, CLAIMS)}")
    return CLAIMS[which]


def _budget_balanced(known: Evidence) -> Finding:
    name = "budget-balanced"
    if known.payments is None:
        return Finding(name, "not verifiable", "no postings were given", "unavailable")
    for index, posting in enumerate(known.payments):
        if sum(posting.values()) != 0:
            detail = f"posting {index} sums to {sum(posting.values())} minor units instead of 0"
            return Finding(name, "broken", detail, "exact")
    if known.treasury:
        return Finding(name, "broken", f"the treasury paid {known.treasury} minor units", "exact")
    return Finding(name, "held", f"each of {len(known.payments)} postings sums to exactly 0", "exact")


def _full_contribution(known: Evidence) -> Finding:
    name = "full-contribution"
    if known.s_max is None:
        return Finding(name, "not verifiable", "s_max is not known", "unavailable")
    short = np.flatnonzero(known.s < known.s_max)
    if short.size == 0:
        return Finding(name, "held", "every agent gives its s_max", known.basis)
    i = int(np.argmax(known.s_max - known.s))
    detail = f"{short.size} of {len(known.agents)} agents are short; "
    detail += f"{known.agents[i]} gives {known.s[i]:g} of {known.s_max[i]:g}"
    return Finding(name, "broken", detail, known.basis)


def _equilibrium(known: Evidence) -> Finding:
    name, regret = "equilibrium", known.regret
    if regret.value is None:
        return Finding(name, "not verifiable", "the agents' utilities are not known here", "unavailable")
    if regret.value > known.tol:
        move = f"s -> {regret.deviation:.6g}"
        detail = "an agent gains by changing its contribution alone"
        return Finding(name, "broken", detail, regret.basis, regret.agent, move, regret.value)
    if regret.lower_bound:
        return Finding(name, "not verifiable", f"no profitable deviation found, search = {regret.search}", regret.basis)
    return Finding(
        name, "held", f"no agent gains more than {known.tol:g} by changing its contribution alone", regret.basis
    )


def _individually_rational(known: Evidence) -> Finding:
    name = "individually-rational"
    if known.losers is None:
        return Finding(name, "not verifiable", "no outside option (training alone) is known", "unavailable")
    if not known.losers:
        return Finding(name, "held", "every agent has at least its outside option", known.losers_basis)
    worst = max(known.losers, key=lambda loser: loser.limit - loser.amount)
    detail = f"{len(known.losers)} of {len(known.agents)} agents would be better off alone"
    move = f"stays out ({worst.amount:.6g} -> {worst.limit:.6g})"
    return Finding(name, "broken", detail, known.losers_basis, worst.agent, move, worst.limit - worst.amount)


def _truthful(known: Evidence) -> Finding:
    name, found = "truthful", known.misreports
    if found is None:
        return Finding(name, "not verifiable", "no search for misreports was run", "unavailable")
    if found.gain > known.tol:
        detail = f"a profitable misreport was found, search = {found.search}"
        return Finding(name, "broken", detail, "exact", found.agent, found.deviation, found.gain)
    # A search that finds nothing is no proof, so this claim is never printed as held.
    return Finding(name, "not verifiable", f"no profitable misreport found, search = {found.search}", "exact")


def _false_name_proof(known: Evidence) -> Finding:
    """Splitting s_i over k names costs it beta (k-1) [S (n-2) + s_i] / ((n-1) (n+k-2)), never a gain."""
    name, n, total = "false-name-proof", len(known.agents), float(np.sum(known.s))
    if n < 2 or known.beta <= 0.0:
        return Finding(name, "not verifiable", "there is no contribution payment to split", "unavailable")
    loss = known.beta * (total * (n - 2) + known.s) / ((n - 1) * n)
    i = int(loss.argmin())
    detail = (
        f"splitting into two names costs every agent, {known.agents[i]} the least ({loss[i]:.6g}); more names cost more"
    )
    return Finding(name, "held", detail, known.basis)


def _merger_proof(known: Evidence) -> Finding:
    """Two agents that merge gain beta [S (n-3) + s_i + s_j] / ((n-2) (n-1)): splitting read backwards."""
    name, n, total = "merger-proof", len(known.agents), float(np.sum(known.s))
    if n < 3 or known.beta <= 0.0:
        return Finding(name, "not verifiable", "a merger needs 3 agents and a contribution payment", "unavailable")
    first, second = (int(i) for i in np.argsort(-known.s, kind="stable")[:2])
    gain = known.beta * (total * (n - 3) + known.s[first] + known.s[second]) / ((n - 2) * (n - 1))
    if gain <= known.tol:
        return Finding(name, "held", "no two agents gain by merging", known.basis)
    move = f"merges with {known.agents[second]}"
    return Finding(name, "broken", "two agents gain by merging", known.basis, known.agents[first], move, gain)


def _optimal_welfare(known: Evidence) -> Finding:
    name = "optimal-welfare"
    if known.gap is None:
        return Finding(name, "not verifiable", "w_OPT is not known", "unavailable")
    if known.gap <= known.tol * len(known.agents):
        return Finding(name, "held", f"welfare is within {known.tol:g} per agent of the optimum", known.gap_basis)
    return Finding(name, "broken", f"welfare is {known.gap:.6g} below the optimum", known.gap_basis)


CLAIMS: dict[str, Claim] = {
    c.name: c
    for c in (
        Claim("budget-balanced", "every posting sums to exactly 0 and the treasury pays nothing", _budget_balanced),
        Claim("full-contribution", "every agent gives its s_max", _full_contribution),
        Claim("equilibrium", "nobody gains by changing its own contribution at the final w", _equilibrium),
        Claim("individually-rational", "nobody would be better off training alone", _individually_rational),
        Claim("truthful", "nobody gains by misreporting s, d or v", _truthful),
        Claim("false-name-proof", "nobody gains by splitting into several names", _false_name_proof),
        Claim("merger-proof", "nobody gains by merging with another agent", _merger_proof),
        Claim("optimal-welfare", "welfare reaches max_w sum_i v_i(w, s_max)", _optimal_welfare),
    )
}


def findings(
    claims: Sequence[str | Claim], known: Evidence, disclaimed: Mapping[str, str], notes: Mapping[str, str]
) -> tuple[Finding, ...]:
    """One finding per claim, then one per claim the mechanism expressly does not make, with its reason."""
    made = []
    for which in claims:
        found = claim(which).check(known)
        note = notes.get(found.claim)
        made.append(found if note is None else Finding(**{**found.__dict__, "detail": f"{found.detail} ({note})"}))
    return (*made, *(Finding(claim(name).name, "not claimed", why, "exact") for name, why in disclaimed.items()))
