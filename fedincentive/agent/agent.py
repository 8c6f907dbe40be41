"""An agent answers each broadcast with a report: strategy, local training, valuation."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..adversary import Misreport, misreport
from ..entry import copied
from ..errors import PaymentError
from ..identity import carries_model_of
from ..messages import Broadcast, Enrol, Report, Update
from ..payments import quantise
from ..provenance.records import order_seed
from .notary import Notary
from .offer import offer
from .sites import Site
from .strategies import Strategy, View, strategy

HONEST = Misreport()
REASON = 200  # characters of why it declines
log = logging.getLogger("fedincentive")


class Agent:
    """One data owner: a name, a site with its data, and a strategy; `lies` makes it say other than it does.

    Asked the same (run, round, phase) twice, it answers the same twice: a center that was killed may ask again.

    >>> from fedincentive.agent import ClosedFormSite
    >>> from fedincentive.game import paper_example
    >>> joins = Agent("agent-1", ClosedFormSite(paper_example(), 0), "free-rider", s0=2.5).enrol()
    >>> joins.agent, joins.s_max, joins.s0
    ('agent-1', 5.0, 2.5)
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
        tags: str | None = None,
        budget: float | None = None,
        alone: float | None = None,
    ) -> None:
        self.name = name
        self.strategy = _strategy(strategy)
        self.lies = misreport(lies) if isinstance(lies, str) else lies or HONEST
        self.site: Site = site if self.lies.site is None else self.lies.site(site)
        self.s0, self.notary, self.commitment = float(s0), notary, commitment
        self.budget, self.alone, self.tags = budget, alone, tags
        self._memory: dict[str, Any] = {}  # plain JSON values
        self._before: dict[str, Any] = {}
        self._asked: list[Any] = []
        self._last: Update | None = None  # the model of the training round before, for a lie that replays its step

    def enrol(self) -> Enrol:
        s_max = float(self.site.s_max)
        said: dict[str, Any] = {"budget": self.budget, "alone": self.alone, "tags": self.tags}
        enrol = Enrol(self.name, s_max, self.s0, self.commitment, **said)
        return enrol if self.notary is None else self.notary.enrol(enrol)

    def enrolment(self, run: str) -> str | None:
        """The signature under its enrolment in a run; None without a key."""
        return None if self.notary is None else self.notary.enrolment(run, self.enrol())

    @property
    def actual(self) -> float:
        """What the agent really contributes from now on, whatever it says: what an auditor at its site would find."""
        return float(self._memory.get("actual", self.s0))

    @property
    def worked(self) -> float:
        """The points it really trained on last, whatever it says."""
        return float(self._memory.get("worked", self.actual))

    def trained(self, step: int) -> float | None:
        """The points it really trained on in a step of an audited run, which its site would show to an auditor."""
        return self._memory.get("trained", {}).get(str(step))

    @property
    def _most(self) -> float:
        """The points it is counted with at most."""
        return float(self._memory.get("most", self.site.s_max))

    @property
    def omniscient(self) -> bool:
        """Whether it wants to see the honest updates of a round before it answers."""
        return self.lies.update is not None and self.lies.update.omniscient

    def respond(self, broadcast: Broadcast, honest: Sequence[Update] = ()) -> Report | None:
        """The report for this broadcast; None when the agent stays away or the run is over.

        With a key it answers only what its center signed for its run, in order: BroadcastRefused otherwise. What
        auditors are asked is not for agents.
        """
        if broadcast.phase == "audit" or (self._memory.get("declined") and broadcast.phase != "accept"):
            return None  # that is for auditors, or it has no part in this run
        if self.notary is not None:
            self.notary.check(broadcast, self.enrol())
        if broadcast.phase == "done":
            return None
        if not carries_model_of(broadcast, self.name):
            log.warning("Agent %s does not answer in round %d: the model is not its own.", self.name, broadcast.round)
            return None
        self._remember(broadcast)
        if self.notary is not None and self.notary.order is not None and hasattr(self.site, "reorder"):
            self.site.reorder(order_seed(self.notary.order, self.name))
        view = View(self.name, broadcast, self.site, self._own(broadcast), self._memory)
        if broadcast.phase == "accept":
            report = self._accept(view)
        elif broadcast.phase == "confirm":
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

    def _accept(self, view: View) -> Report:
        """Take part on these terms, or say why not; a budget may let it count with fewer points than it has."""
        made = offer(view.broadcast.settings, self.name, self.site, self.alone)
        view.memory["most"] = made.s_max
        why = self.strategy.declines(view, made)[:REASON]
        view.memory["declined"] = bool(why)
        return self._report(view, declined=why or None)

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
        actual = min(self.strategy.choose(view), self._most)
        view.memory["actual"] = actual
        return actual if self.lies.s is None else self.lies.s(actual, self._most)

    def _train(self, view: View, honest: Sequence[Update]) -> Report:
        points = min(self.strategy.deliver(view), self._most)
        points = float(round(points)) if self.site.whole else points
        audited = "auditors" in view.broadcast.settings
        if audited:
            points = self._counted(points, view.setting("scale"))
        real = points if self.lies.trains is None else self.lies.trains(points)
        if self.lies.trains is not None:
            view.memory["worked"] = real
        if audited:
            view.memory.setdefault("trained", {})[str(view.broadcast.step)] = real
        view.update, view.delivered = view.train(real), points
        if not view.setting("moves"):
            view.memory["actual"] = real
        s = self._choose(view) if view.setting("moves") else None
        first = view.broadcast.step == 0
        valued = view.setting("report_values") and (first or not view.setting("values"))
        update, said = view.update, points
        if self.lies.update is not None:
            update = self.lies.update(update, honest, step=view.broadcast.step, last=self._global_step(view.w))
        if self.lies.delivered is not None:
            said = self.lies.delivered(view.broadcast.s[self.name], self._most)
        value = self._valuation(view) if valued else None
        return self._report(view, s=s, delivered=said, update=update, valuation=value)

    def _counted(self, points: float, scale: int) -> float:
        """As many points as will be counted, so that an auditor who makes the update again has the same number."""
        whole = quantise(float(self.site.s_max), scale)
        counted = min(quantise(float(points), scale), whole)
        return float(self.site.s_max) if counted == whole else counted / scale

    def _global_step(self, w: Update) -> Update | None:
        """What the last round made of the model, which everybody knows without training."""
        last, self._last = self._last, w
        return None if last is None else {name: w[name] - last[name] for name in w}

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
            self._memory = copied(self._before)
        else:
            if broadcast.round == 0 and self._asked and self._asked[1] > 0:
                self._memory = {}  # another run of the same name begins
            self._asked, self._before = asked, copied(self._memory)

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
