"""What an agent wants: strategies choose the next contribution, and what is really delivered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field

from ..checks import nearest
from ..errors import SettingError
from ..game import Stride, stride
from .offer import Offer
from .slopes import SLOPES, View


class Strategy:
    """An agent's choices. A new strategy overrides `choose`; the rest is what an honest agent does."""

    def choose(self, view: View) -> float:
        """The contribution it wants from the next round on."""
        raise NotImplementedError

    def deliver(self, view: View) -> float:
        """The points it really trains on in this round."""
        return view.own

    def away(self, view: View) -> bool:
        """Whether it does not answer at all."""
        return False

    def declines(self, view: View, offer: Offer) -> str:
        """Why it does not take part on these terms; nothing where it does."""
        return offer.refusal


@dataclass
class Gradient(Strategy):
    """One step up the agent's own utility: clip(s_i + gamma (d v_i/d s_i - c_i' + d p_i/d s_i), 0, s_max_i).

    Where no gamma is set, the agent finds a step size of its own (`game.stride`). The slope is the setting's if it
    names one, the game's own closed form where there is one, else the mechanism's.
    """

    def choose(self, view: View) -> float:
        name = view.setting("slope")
        if not view.setting("slope_given") and hasattr(view.site, "slope"):
            name = "closed-form"
        g = SLOPES[name](view) - view.site.cost_slope(view.own) + view.pay_slope
        gamma = view.broadcast.settings.get("gamma")
        if gamma is not None:
            return float(min(max(view.own + gamma * g, 0.0), view.site.s_max))
        last = view.memory.get("stride")
        s, taken = stride(view.own, float(g), float(view.site.s_max), last and Stride(**last))
        view.memory["stride"] = asdict(taken)
        least = 0.5 if view.site.whole and 0.0 < s < view.site.s_max else 0.0  # a data point cannot be split
        return view.own if abs(s - view.own) < least else s


@dataclass
class BestResponse(Strategy):
    """The best contribution against what the others give now; for sites that know their utility in closed form."""

    def choose(self, view: View) -> float:
        best = getattr(view.site, "best_response", None)
        if best is None:
            raise SettingError(
                f"Agent {view.name!r} trains on data, so its best response is not known: use the strategy 'gradient'."
            )
        return best(view.w, view.broadcast.s, [payment for payment in view.payments if payment.steers])


@dataclass
class Fixed(Strategy):
    """Always the same contribution; where it stands now when no number is given."""

    points: float | None = None

    def choose(self, view: View) -> float:
        return view.own if self.points is None else min(self.points, view.site.s_max)


@dataclass
class FreeRider(Gradient):
    """Commits like everyone else, then trains on a share of it only (on nothing by default)."""

    share: float = 0.0

    def deliver(self, view: View) -> float:
        return self.share * view.own


@dataclass
class Away(Gradient):
    """Like everyone else, but stays away from the rounds of these phases, or from single steps of them."""

    phases: Collection[str] = ("train",)
    steps: Collection[int] | None = field(default=None)

    def away(self, view: View) -> bool:
        b = view.broadcast
        return b.phase in self.phases and (self.steps is None or b.step in self.steps)


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "gradient": Gradient,
    "best-response": BestResponse,
    "fixed": Fixed,
    "free-rider": FreeRider,
    "away": Away,
}


def strategy(name: str) -> Strategy:
    """A strategy by name, with its defaults.

    >>> strategy("free-rider").share
    0.0
    """
    if name not in STRATEGIES:
        raise SettingError(f"There is no strategy {name!r}.{nearest(name, STRATEGIES)}")
    return STRATEGIES[name]()
