"""An agent answers each broadcast with a report: strategy, local training, valuation."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

from ..adversary import Misreport, misreport
from ..errors import PaymentError
from ..messages import Broadcast, Enrol, Report, Update
from .notary import Notary
from .sites import Site
from .strategies import Strategy, View, strategy

HONEST = Misreport()
log = logging.getLogger("fedincentive")


class Agent:
    """One data owner: a name, a site with its data, and a strategy; `lies` makes it say other than it does.

    Asked the same (run, round, phase) twice, it answers the same twice: a center that was killed may ask again.

    >>> from fedincentive.agent import ClosedFormSite
    >>> from fedincentive.game import paper_example
    >>> Agent("agent-1", ClosedFormSite(paper_example(), 0), "free-rider", s0=2.5).enrol()
    Enrol(agent='agent-1', s_max=5.0, s0=2.5, commitment=None, key=None, seen=None)
    """

    def __init__(
        self,
        name: str,
        site: Site,
        strategy: Strategy | str = "gradient",
        *,
        s0: float = 0.0,
        lies: Misreport | str | None = None,
        notary: Notary | None = None,
        commitment: str | None = None,
    ) -> None:
        self.name, self.site = name, site
        self.strategy = _strategy(strategy)
        self.lies = misreport(lies) if isinstance(lies, str) else lies or HONEST
        self.s0, self.notary, self.commitment = float(s0), notary, commitment
        self._memory: dict[str, Any] = {}  # plain JSON values
        self._before: dict[str, Any] = {}
        self._asked: list[Any] = []

    def enrol(self) -> Enrol:
        enrol = Enrol(self.name, float(self.site.s_max), self.s0, self.commitment)
        return enrol if self.notary is None else self.notary.enrol(enrol)

    def enrolment(self, run: str) -> str | None:
        """The signature under its enrolment in a run; None without a key."""
        return None if self.notary is None else self.notary.enrolment(run, self.enrol())

    @property
    def actual(self) -> float:
        """What the agent really contributes from now on, whatever it says: what an auditor at its site would find."""
        return float(self._memory.get("actual", self.s0))

    @property
    def omniscient(self) -> bool:
        """Whether it wants to see the honest updates of a round before it answers."""
        return self.lies.update is not None and self.lies.update.omniscient

    def respond(self, broadcast: Broadcast, honest: Sequence[Update] = ()) -> Report | None:
        """The report for this broadcast; None when the agent stays away or the run is over.

        With a key it answers only what its center signed for its run, in order: BroadcastRefused otherwise.
        """
        if self.notary is not None:
            self.notary.check(broadcast, self.enrol())
        if broadcast.phase == "done":
            return None
        self._remember(broadcast)
        view = View(self.name, broadcast, self.site, self._own(broadcast), self._memory)
        if broadcast.phase in ("accept", "confirm"):
            report = self._report(view)
        elif self.strategy.away(view):
            return None
        elif broadcast.phase == "contribute":
            report = self._report(view, s=self._choose(view))
        elif broadcast.phase == "train":
            report = self._train(view, honest)
        else:
            report = self._report(view, valuation=self._valuation(view))
        return report if self.notary is None else self._signed(report, broadcast)

    def _signed(self, report: Report, broadcast: Broadcast) -> Report | None:
        assert self.notary is not None
        try:
            return self.notary.sign(report, broadcast)
        except PaymentError as error:
            log.warning("Agent %s does not answer in round %d: %s", self.name, broadcast.round, error)
            return None

    def _own(self, broadcast: Broadcast) -> float:
        """What it really contributes now: what was broadcast, unless it lied about it."""
        return self.actual if self.lies.s is not None else broadcast.s[self.name]

    def _choose(self, view: View) -> float:
        actual = self.strategy.choose(view)
        view.memory["actual"] = actual
        return actual if self.lies.s is None else self.lies.s(actual, self.site.s_max)

    def _train(self, view: View, honest: Sequence[Update]) -> Report:
        points = self.strategy.deliver(view)
        points = float(round(points)) if self.site.whole else points
        view.update, view.delivered = view.train(points), points
        if not view.setting("moves"):
            view.memory["actual"] = points
        s = self._choose(view) if view.setting("moves") else None
        first = view.broadcast.step == 0
        valued = view.setting("report_values") and (first or not view.setting("values"))
        update, said = view.update, points
        if self.lies.update is not None:
            update = self.lies.update(update, honest, step=view.broadcast.step)
        if self.lies.delivered is not None:
            said = self.lies.delivered(view.broadcast.s[self.name], self.site.s_max)
        value = self._valuation(view) if valued else None
        return self._report(view, s=s, delivered=said, update=update, valuation=value)

    def _valuation(self, view: View) -> float:
        value = self.site.value(view.w, view.broadcast.s)
        return value if self.lies.valuation is None else self.lies.valuation(value)

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
        notary = {} if self.notary is None else {"notary": self.notary.state}
        return {"asked": self._asked, "before": self._before, "memory": self._memory, **notary}

    def restore(self, state: dict[str, Any]) -> None:
        self._asked, self._before, self._memory = state["asked"], state["before"], state["memory"]
        if self.notary is not None:
            self.notary.restore(state.get("notary", {}))


def _strategy(given: Strategy | str) -> Strategy:
    return strategy(given) if isinstance(given, str) else given
