"""What an agent is offered before a run begins, as the terms that it is shown tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import payments
from ..payments import Deposit
from .sites import Site


@dataclass(frozen=True)
class Offer:
    """One agent's terms where everyone gives its s_max, in units of money; None where that is not known."""

    s_max: float  # the points it is counted with
    payment: float  # what it would be paid, or charged below 0, lump sums included
    deposit: float
    worst: float | None  # the most it can be charged beside its deposit
    value: float | None  # the most it expects the model to be worth to it
    cost: float
    alone: float | None  # what training alone is worth to it, its cost taken off

    @property
    def utility(self) -> float | None:
        return None if self.value is None else self.value - self.cost + self.payment

    @property
    def refusal(self) -> str:
        """Why the agent is better off alone; nothing where it is not, or cannot know."""
        if self.alone is None or self.utility is None or self.utility >= self.alone - 1e-9 * max(1.0, abs(self.alone)):
            return ""
        return f"{self.utility:.6g} by these terms, {self.alone:.6g} alone"


def offer(told: Mapping[str, Any], agent: str, site: Site, alone: float | None) -> Offer:
    """The offer to an agent in a broadcast's settings of an accept round."""
    terms = told["terms"]
    agents = tuple(terms["agents"])
    s_max = np.array([terms["agents"][name]["s_max"] / terms["scale"] for name in agents])
    made, i = payments.read(told["payments"]), agents.index(agent)
    paid = [payment.floats(agents, s_max) for payment in made]
    worst = [payment.limits(agents, s_max) for payment in made if not isinstance(payment, Deposit)]
    known = [limit for limit in worst if limit is not None]
    expects = getattr(site, "expects", None)
    points = float(s_max[i])
    return Offer(
        s_max=points,
        payment=float(sum(amounts[i] for amounts in paid)),
        deposit=terms["agents"][agent].get("deposit", 0) / terms["minor"],
        worst=float(sum(limit[i] for limit in known)) if len(known) == len(worst) else None,
        value=None if expects is None else expects(dict(zip(agents, s_max.tolist(), strict=True))),
        cost=float(site.cost(points)),
        alone=alone,
    )
