"""What a mechanism is: which phase comes next, which payments are made, and what it promises."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from .. import aggregation, payments
from ..checks import nearest
from ..contribution import METHODS, MOST_EXACT
from ..errors import SettingError
from ..game import Game
from ..messages import Phase
from ..payments import Deposit, LumpSum, Oracles, Payment, Promises
from ..run import Run
from ..settings import Settings

PUBLIC = (
    "rounds", "eta", "tau", "delta", "local", "epochs", "batch", "learning_rate",
    "value_per_nat", "loss_cap", "report_values", "seed", "scale", "minor",
)  # fmt: skip
GAMMA = 0.5  # the paper's, where s and w move together
AUDITED = (
    "auditors", "audit", "rechecks", "detection", "openings", "steering", "colluding", "threads",
)  # fmt: skip


class Mechanism:
    """A mechanism says what the phases are, which payments are made and what it promises.

    A new one sets the class attributes and overrides `start`, `after_contribute` and `claims`. `moves` says whether
    agents choose a new s with every update; `pays` (payments or their names), `aggregation` and `slope` hold unless the
    settings say otherwise.
    """

    name: ClassVar[str]
    two_phases: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    gives_all: ClassVar[bool] = False  # where it works, everyone ends at s_max
    pays: ClassVar[tuple[type[Payment] | str, ...] | str] = ()
    aggregation: ClassVar[str] = "mean"
    slope: ClassVar[str] = "bounded"  # of agents with data; a closed-form game uses its own
    strategy: ClassVar[str] = "gradient"  # of agents of a closed-form game that are given no other

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.payments = _payments(self, settings)
        self._terms = {payment.name: payment.terms() for payment in self.payments}
        plain = settings.plain() if settings.audited else {}
        self._audited = {key: plain[key] for key in AUDITED if key in plain}
        self.rule = settings.aggregation or self.aggregation
        self.aggregator = aggregation.rule(self.rule)
        for payment in self.payments if not self.two_phases else ():
            if not payment.live:
                raise SettingError(
                    f"Payment {payment.name!r} is made on a commitment (incentive.settlement: commitment), but "
                    f"{self.name} has no phase 1 that ends in one: use tranches or end."
                )

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        """The settings with what it has to know of a closed-form game; what they say already stays."""
        return settings

    def start(self, run: Run) -> Phase:
        """The first phase."""
        return "train"

    def after_contribute(self, run: Run) -> Phase:
        """The phase after a contribute round."""
        raise NotImplementedError

    def next(self, run: Run) -> Phase:
        """The phase after the one that was just closed."""
        if run.phase == "contribute":
            return self.after_contribute(run)
        if run.phase == "train" and self.asks_values(run):
            return "value"
        return "train" if run.trained < self.settings.rounds else "done"

    def asks_values(self, run: Run) -> bool:
        """A value exchange follows every training round that is paid on values, and the last one for the welfare."""
        return self.values or (self.settings.report_values and run.trained == self.settings.rounds)

    def claims(self) -> Promises:
        """What the mechanism itself promises; its payments add theirs."""
        return Promises()

    def promises(self, oracles: Oracles = Oracles()) -> Promises:  # noqa: B008
        """What a run promises, with what its center can check."""
        robust = Promises(("robust",)) if self.tolerated(2) is not None else Promises()
        willing = Promises(("individually-rational",)) if self.settings.opt_in else Promises()
        return sum((payment.promises(oracles) for payment in self.payments), start=self.claims() + robust + willing)

    def tolerated(self, n: int) -> int | None:
        """How many of n updates in a round may be anything; None where the aggregation rule promises none."""
        return self.aggregator.withstands(n, self.settings.alpha) if self.aggregator.robust else None

    @property
    def values(self) -> bool:
        """Whether money hangs on what agents say the model is worth to them."""
        return any(payment.values for payment in self.payments)

    @property
    def degrades(self) -> bool:
        """Whether agents are given worse models than there are."""
        return any(payment.degrades for payment in self.payments)

    @property
    def gamma(self) -> float | None:
        """The step size of s that everybody uses; None where each agent finds its own."""
        return GAMMA if self.settings.gamma is None and self.moves else self.settings.gamma

    @property
    def beta(self) -> Fraction:
        """The price of a point that agents feel everywhere: 0 where no payment sets one."""
        return sum((payment.price for payment in self.payments), start=Fraction(0))

    def public(self) -> dict[str, Any]:
        """What every agent is told with each broadcast: plain numbers and strings."""
        s = self.settings
        return {
            **{key: getattr(s, key) for key in PUBLIC},
            **({} if self.gamma is None else {"gamma": self.gamma}),
            **self._audited,
            "mechanism": self.name,
            "payments": self._terms,
            "slope": s.slope or self.slope,
            "slope_given": s.slope is not None,
            "moves": self.moves,
            "values": self.values,
        }

    def check(self, n: int, oracles: Oracles = Oracles()) -> None:  # noqa: B008
        """Refuse settings that make no sense for this number of agents, or with what the center can check."""
        for payment in self.payments:
            payment.check(n, oracles)
        asked = min(self.settings.sampled or n, n)
        self._check_contribution(asked, oracles)
        if asked < (least := self.least(asked)):
            more = "enrol more agents" if asked == n else "raise incentive.sampled"
            raise SettingError(
                f"incentive.aggregation is {self.rule!r} with alpha = {self.settings.alpha:g}: that needs at least "
                f"{least} agents, not {asked}. Lower alpha or {more}."
            )

    def _check_contribution(self, asked: int, oracles: Oracles) -> None:
        how = self.settings.contribution
        if how in METHODS and oracles.utility is None:
            raise SettingError(
                f"incentive.contribution is {how!r}, which evaluates models: give the center Oracles(utility=...), a "
                "function from a model to what it is worth, or set contribution: cgsv."
            )
        if how == "agreement" and oracles.labels is None:
            raise SettingError(
                "incentive.contribution is 'agreement', which compares what agents' models say of shared items: give "
                "the center Oracles(labels=...), a function from an agent and its model to labels, or set "
                "contribution: cgsv."
            )
        if how == "exact" and asked > MOST_EXACT:
            raise SettingError(
                f"incentive.contribution is 'exact' with {asked} agents in a round: that takes 2^{asked} evaluations; "
                f"use gtg, loo or cgsv above {MOST_EXACT} agents."
            )

    def least(self, n: int) -> int:
        """How many updates the aggregation rule needs when n agents answer: trimming must leave some."""
        return self.aggregator.least(n, aggregation.trim_count(self.settings.alpha, n))


def _beside(made: tuple[Payment, ...], settings: Settings) -> tuple[Payment, ...]:
    """What comes with the settings, whatever is paid: lump sums, and deposits that cover the price of a point."""
    given, beside = {payment.name for payment in made}, list[Payment]()
    if settings.lump_sums is not None and LumpSum.name not in given:
        beside.append(LumpSum.of(settings))
    if settings.auditors is not None and Deposit.name not in given:
        price = sum((payment.price for payment in made), start=Fraction(0))
        beside.append(replace(Deposit.of(settings), beta=price))
    return tuple(beside)


def _payments(mechanism: Mechanism, settings: Settings) -> tuple[Payment, ...]:
    """The payments of a run: those that the settings name, or the mechanism's own."""
    wanted = mechanism.pays if settings.payment is None else settings.payment
    if isinstance(wanted, str) or settings.payment is not None:
        wanted = payments.chosen(wanted)  # type: ignore[arg-type]
    for name in (p for p in wanted if isinstance(p, str) and p not in payments.names()):
        whose = f"Mechanism {mechanism.name!r} pays" if settings.payment is None else "incentive.payment is"
        raise SettingError(f"{whose} {name!r}.{nearest(name, [*payments.names(), *payments.TOGETHER])}")
    made = tuple(payments.get(p, settings) if isinstance(p, str) else p.of(settings) for p in wanted)
    made += _beside(made, settings)
    for name in settings.options or {}:
        if name not in (payment.name for payment in made):
            known = [payment.name for payment in made]
            raise SettingError(f"incentive.options is for {name!r}, which this run does not pay.{nearest(name, known)}")
    kinds: dict[str, str] = {}
    for payment in made:
        for kind in payment.kinds:
            if kind in kinds:
                raise SettingError(
                    f"incentive.payment names {kinds[kind]!r} and {payment.name!r}, which both write {kind!r} entries: "
                    "choose one of them."
                )
            kinds[kind] = payment.name
    return made


def with_costs(settings: Settings, game: Game) -> Settings:
    """The settings with the costs of a closed-form game's points, where they state none."""
    if settings.cost != 0.0:
        return settings
    own = dict(zip(game.agents, game.cost.slope(game.s_max).tolist(), strict=True))
    return replace(settings, cost=own)
