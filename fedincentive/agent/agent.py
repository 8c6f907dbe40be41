"""An agent answers each broadcast with a report: strategy, local training, valuation."""

from __future__ import annotations

import copy
from typing import Any

from ..messages import Broadcast, Enrol, Report
from .identity import sign
from .sites import Site
from .strategies import Gradient, Strategy, View, strategy


class Agent:
    """One data owner: a name, a site with its data, and a strategy.

    Asked the same (run, round, phase) twice, it answers the same twice: a center that was killed may ask again.
    """

    def __init__(
        self,
        name: str,
        site: Site,
        strategy: Strategy | str = "gradient",
        *,
        s0: float = 0.0,
        key: bytes | None = None,
        commitment: str | None = None,
    ) -> None:
        self.name, self.site = name, site
        self.strategy: Strategy = _strategy(strategy)
        self.s0, self.key, self.commitment = float(s0), key, commitment
        self._memory: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._asked: list[Any] = []

    def enrol(self) -> Enrol:
        return Enrol(self.name, float(self.site.s_max), self.s0, self.commitment)

    def respond(self, broadcast: Broadcast) -> Report | None:
        """The report for this broadcast; None when the agent stays away or the run is over."""
        if broadcast.phase == "done":
            return None
        self._remember(broadcast)
        view = View(self.name, broadcast, self.site, broadcast.s[self.name], self._memory)
        report = getattr(self, f"_{broadcast.phase}")(view)
        return report if self.key is None else sign(report, self.key)

    def _contribute(self, view: View) -> Report:
        return self._report(view, s=self.strategy.choose(view))

    def _train(self, view: View) -> Report:
        points = self.strategy.deliver(view)
        if self.site.whole:
            points = float(round(points))
        view.update = view.train(points)
        view.memory["delivered"] = points
        s = self.strategy.choose(view) if view.setting("moves") else None
        value = self.site.value(view.w, view.broadcast.s) if self._values(view) else None
        return self._report(view, s=s, delivered=points, update=view.update, valuation=value)

    def _value(self, view: View) -> Report:
        return self._report(view, valuation=self.site.value(view.w, view.broadcast.s))

    def _values(self, view: View) -> bool:
        """The first model is valued once; after that a value exchange follows or the metric wants every round."""
        first = view.broadcast.step == 0
        return bool(view.setting("report_values") and (first or not view.setting("truthful")))

    def _report(self, view: View, **fields: Any) -> Report:
        b = view.broadcast
        return Report(b.run, b.round, b.phase, self.name, **fields)

    def _remember(self, broadcast: Broadcast) -> None:
        """Go on from the last answer, or back to before it when the same question comes again."""
        asked = [broadcast.run, broadcast.round, broadcast.phase]
        if asked == self._asked:
            self._memory = copy.deepcopy(self._before)
        else:
            self._asked, self._before = asked, copy.deepcopy(self._memory)

    def state(self) -> dict[str, Any]:
        """All that must survive a crash, as plain JSON values."""
        return {"asked": self._asked, "before": self._before, "memory": self._memory}

    def restore(self, state: dict[str, Any]) -> None:
        self._asked, self._before, self._memory = state["asked"], state["before"], state["memory"]


def _strategy(given: Strategy | str) -> Strategy:
    return strategy(given) if isinstance(given, str) else given


__all__ = ["Agent", "Gradient"]
