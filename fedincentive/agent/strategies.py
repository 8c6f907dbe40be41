"""What an agent wants to give: strategies choose the next contribution and what is really delivered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..errors import SettingError
from ..messages import Broadcast, Update
from ..settings import nearest
from .sites import Site


@dataclass
class View:
    """What an agent sees when it decides: the broadcast, its own site, and its memory (plain JSON values)."""

    name: str
    broadcast: Broadcast
    site: Site
    own: float  # what it really contributes now
    memory: dict[str, Any]
    update: Update | None = field(default=None)  # d_i of this round once it is computed

    @property
    def w(self) -> Update:
        """The broadcast model; the site's first one in contribute rounds, which carry none."""
        w = self.broadcast.w if self.broadcast.w is not None else self.site.w0
        if w is None:
            raise SettingError(
                f"Agent {self.name!r} needs the first model for the slope {self.setting('slope')!r}, but contribute rounds "
                "carry none: give its site w0, or set slope: bounded."
            )
        return w

    def setting(self, key: str) -> Any:
        return self.broadcast.settings[key]

    @property
    def s(self) -> dict[str, float]:
        return dict(self.broadcast.s)

    def train(self, points: float) -> Update:
        return self.site.update(self.w, points, self.broadcast.step, self.broadcast.s)

    def local(self, update: Update) -> Update:
        """The model after the agent's own work alone: w + d_i, or one step of size eta along a gradient."""
        size = 1.0 if self.setting("local") == "epochs" else self.setting("eta")
        return {name: array + np.asarray(size * update[name], dtype=array.dtype) for name, array in self.w.items()}


# How d v_i / d s_i is estimated: name -> slope(view).


def closed_form(view: View) -> float:
    """d v_i / d s_i of an analytic game."""
    slope = getattr(view.site, "slope", None)
    if slope is None:
        raise SettingError(
            f"Agent {view.name!r} has no closed-form slope: set slope to bounded, paper or counterfactual."
        )
    return slope(view.w, view.broadcast.s, view.own)


def bounded(view: View) -> float:
    """-tau, the least that d v_i / d s_i can be: never looks at the model."""
    return -view.setting("tau")


def quotient(view: View) -> float:
    """The paper's (v_i(w_i) - v_i(w)) / (s_i - s_i of the round before), 0 where s moved less than one point."""
    before = view.memory.get("before")
    view.memory["before"] = view.own
    if before is None or abs(view.own - before) < 1.0:
        return 0.0
    update = view.update if view.update is not None else view.train(view.own)
    gain = view.site.value(view.local(update), view.broadcast.s) - view.site.value(view.w, view.broadcast.s)
    return gain / (view.own - before)


def counterfactual(view: View) -> float:
    """Train from the same w on s_i and on s_i + delta points: difference of the values per point."""
    here, delta = min(view.own, view.site.s_max), view.setting("delta")
    there = here + delta if here + delta <= view.site.s_max else max(here - delta, 0.0)
    if there == here:
        return 0.0
    update = view.update if view.update is not None and view.memory.get("delivered") == here else view.train(here)
    other = view.local(view.train(there))
    gain = view.site.value(other, view.broadcast.s) - view.site.value(view.local(update), view.broadcast.s)
    return gain / (there - here)


SLOPES: dict[str, Callable[[View], float]] = {
    "closed-form": closed_form,
    "bounded": bounded,
    "paper": quotient,
    "counterfactual": counterfactual,
}


class Strategy(Protocol):
    """An agent's choices."""

    def choose(self, view: View) -> float:
        """The contribution it wants from the next round on."""

    def deliver(self, view: View) -> float:
        """The points it really trains on in this round."""


@dataclass
class Gradient:
    """One step up the agent's own utility: s_i + gamma (d v_i/d s_i - c_i' + beta), masked and clipped."""

    slope: str | None = None

    def choose(self, view: View) -> float:
        name = self.slope or ("closed-form" if hasattr(view.site, "slope") else view.setting("slope"))
        if view.setting("slope_given"):
            name = view.setting("slope")
        g = SLOPES[name](view) - view.site.cost_slope(view.own) + view.setting("beta")
        return float(min(max(view.own + view.setting("gamma") * g, 0.0), view.site.s_max))

    def deliver(self, view: View) -> float:
        return view.own


@dataclass
class Fixed:
    """Always the same contribution; where it stands now when no number is given."""

    points: float | None = None

    def choose(self, view: View) -> float:
        return view.own if self.points is None else min(self.points, view.site.s_max)

    def deliver(self, view: View) -> float:
        return view.own


@dataclass
class FreeRider(Gradient):
    """Commits like everyone else and then trains on a part of it only (none by default)."""

    share: float = 0.0

    def deliver(self, view: View) -> float:
        return self.share * view.own


STRATEGIES: dict[str, Callable[[], Strategy]] = {"gradient": Gradient, "fixed": Fixed, "free-rider": FreeRider}


def strategy(name: str) -> Strategy:
    """A strategy by name, with its defaults.

    >>> strategy("free-rider").share
    0.0
    """
    if name not in STRATEGIES:
        raise SettingError(f"There is no strategy {name!r}.{nearest(name, STRATEGIES)}")
    return STRATEGIES[name]()
