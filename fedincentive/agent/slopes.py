"""How an agent estimates d v_i / d s_i, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import payments
from ..errors import SettingError
from ..messages import Broadcast, Update
from ..payments import Payment
from .sites import Site


@dataclass
class View:
    """What an agent sees when it decides: the broadcast, its own site, and its memory (plain JSON values)."""

    name: str
    broadcast: Broadcast
    site: Site
    own: float  # what it really contributes now
    memory: dict[str, Any]
    update: Update | None = None  # d_i of this round once it is computed ...
    delivered: float | None = None  # ... on this many points

    @property
    def w(self) -> Update:
        """The broadcast model; the site's first one in contribute rounds, which carry none."""
        w = self.broadcast.w if self.broadcast.w is not None else self.site.w0
        if w is None:
            raise SettingError(
                f"Agent {self.name!r} needs the first model to estimate its slope, but contribute rounds carry none: "
                "give its site w0, or set incentive.slope: bounded."
            )
        return w

    @property
    def payments(self) -> tuple[Payment, ...]:
        """The payments whose terms were broadcast."""
        return _felt_by_all(self.broadcast).payments

    @property
    def pay_slope(self) -> float:
        """d p_i / d s_i where the agent really stands."""
        felt = _felt_by_all(self.broadcast)
        i = felt.index[self.name]
        if self.own == felt.s[i]:
            return float(felt.slopes[i])
        moved = felt.s.copy()
        moved[i] = self.own
        return float(felt.at(moved)[i])

    def setting(self, key: str) -> Any:
        return self.broadcast.settings[key]

    def train(self, points: float) -> Update:
        """d_i on this many points, computed once."""
        if self.update is not None and points == self.delivered:
            return self.update
        return self.site.update(self.w, points, self.broadcast.step, self.broadcast.s)

    def value_after(self, points: float) -> float:
        """v_i after the agent's own work alone: at w + d_i, or one step of size eta along a gradient."""
        size = 1.0 if self.setting("local") == "epochs" else self.setting("eta")
        d = self.train(points)
        local = {name: array + np.asarray(size * d[name], dtype=array.dtype) for name, array in self.w.items()}
        return self.site.value(local, self.broadcast.s)


class _Felt:
    """What a broadcast's payments add to everyone's slope: evaluated once for all agents of a process."""

    def __init__(self, broadcast: Broadcast, payments: tuple[Payment, ...]) -> None:
        self.payments, self.agents = payments, tuple(broadcast.s)
        self.index = {agent: i for i, agent in enumerate(self.agents)}
        self.s = np.array([broadcast.s[agent] for agent in self.agents], dtype=np.float64)
        self.slopes = self.at(self.s)

    def at(self, s: np.ndarray) -> np.ndarray:
        return sum((p.slopes(self.agents, s) for p in self.payments if p.steers), start=np.zeros(len(s)))


_last: tuple[Any, Any, _Felt | None] = (None, None, None)


def _felt_by_all(broadcast: Broadcast) -> _Felt:
    """Of the last broadcast: its agents ask one after the other, with the same objects in one process."""
    global _last
    s, terms, felt = _last
    told = broadcast.settings["payments"]
    if felt is None or s is not broadcast.s or terms is not told:
        known = felt.payments if felt is not None and terms is told else payments.read(told)
        felt = _Felt(broadcast, known)
        _last = (broadcast.s, told, felt)
    return felt


def closed_form(view: View) -> float:
    """d v_i / d s_i of an analytic game."""
    slope = getattr(view.site, "slope", None)
    if slope is None:
        raise SettingError(
            f"incentive.slope is 'closed-form', but agent {view.name!r} trains on data: set it to bounded, paper or "
            "counterfactual."
        )
    return slope(view.w, view.broadcast.s, view.own)


def bounded(view: View) -> float:
    """-tau, the least that d v_i / d s_i can be: never looks at the model."""
    return -view.setting("tau")


def paper(view: View) -> float:
    """(v_i(w_i) - v_i(w)) / (s_i - s_i of the round before), dropped where s moved less than one point.

    The paper divides by a change that can be 0. The rule drives s to a bound: it has no interior equilibrium.
    """
    before = view.memory.get("before")
    view.memory["before"] = view.own
    if before is None or abs(view.own - before) < 1.0:
        return 0.0
    gain = view.value_after(view.own) - view.site.value(view.w, view.broadcast.s)
    return gain / (view.own - before)


def counterfactual(view: View) -> float:
    """Train from the same w on s_i and on s_i + delta points: the difference of the values per point."""
    here, delta = float(round(view.own)), float(view.setting("delta"))
    there = here + delta if here + delta <= view.site.s_max else max(here - delta, 0.0)
    if there == here:
        return 0.0
    return (view.value_after(there) - view.value_after(here)) / (there - here)


SLOPES: dict[str, Callable[[View], float]] = {
    "closed-form": closed_form,
    "bounded": bounded,
    "paper": paper,
    "counterfactual": counterfactual,
}
