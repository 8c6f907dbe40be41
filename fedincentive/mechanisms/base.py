"""What a mechanism is: which phase comes next, which payments are made, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

from .. import aggregation
from ..errors import SettingError
from ..messages import Phase, Update
from ..settings import Settings


@dataclass
class Run:
    """Where a run stands. The Center writes it; mechanisms read it. Points are integers in fixed point."""

    settings: Settings
    agents: tuple[str, ...]  # in name order
    limits: dict[str, float]  # s_max as enrolled
    s_max: dict[str, int]
    s0: dict[str, int]
    s: dict[str, int]
    commitments: dict[str, str] = field(default_factory=dict)  # digests given at enrolment
    audit_seed: int = 0
    round: int = 0
    step: int = 0
    phase: Phase = "train"
    asked: tuple[str, ...] = ()
    contributed: int = 0  # contribute rounds closed
    trained: int = 0  # training rounds closed
    moved: int | None = None  # largest move of s in the last contribute round; None when somebody was absent
    delivered: dict[str, int] = field(default_factory=dict)  # last, per agent: the unsampled keep theirs
    delivered_total: dict[str, int] = field(default_factory=dict)
    posted: dict[str, int] = field(default_factory=dict)  # contribution payments so far, minor units
    balances: dict[str, int] = field(default_factory=dict)  # all payments so far, the treasury's too
    valuations: dict[str, int] = field(default_factory=dict)  # last reported, minor units
    valued: dict[str, int] = field(default_factory=dict)  # those the next truthful payment subtracts
    failed: dict[str, str] = field(default_factory=dict)  # audits of the last training round that were not passed
    pivots: dict[str, int] = field(default_factory=dict)
    status: str = "running"
    short: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        return len(self.agents)

    @property
    def full(self) -> bool:
        """Everyone contributes all it has."""
        return self.s == self.s_max

    @property
    def resting(self) -> bool:
        """||g||_inf <= tol, read off the step s takes: |s' - s| = gamma |g|."""
        if self.moved is None:
            return False
        return self.moved <= self.settings.gamma * self.settings.tol * self.settings.scale

    @property
    def at_limit(self) -> bool:
        return self.contributed >= self.settings.round_limit

    def copy(self) -> Run:
        """A run that can move on while this one stays as it is."""
        mutable: dict[str, Any] = {
            f.name: dict(v) for f in fields(self) if isinstance(v := getattr(self, f.name), dict)
        }
        return replace(self, **mutable)

    def points(self, fixed: Mapping[str, int]) -> dict[str, float]:
        """Fixed-point points as numbers, in name order; all an agent has is exactly the s_max it enrolled with."""
        scale = self.settings.scale
        return {a: self.limits[a] if fixed[a] == self.s_max[a] else fixed[a] / scale for a in self.agents}


@dataclass(frozen=True)
class Answer:
    """A report that was accepted, with its numbers as the integers that count: fixed-point points, minor units."""

    s: int | None = None
    delivered: int = 0
    update: Update = field(default_factory=dict)
    valuation: int | None = None


@dataclass(frozen=True)
class Promises:
    """What a run of a mechanism promises, for the certificate to check: names from `fedincentive.game.CLAIMS`."""

    claims: tuple[str, ...] = ()
    disclaimed: Mapping[str, str] = field(default_factory=dict)  # expressly not promised -> why
    notes: Mapping[str, str] = field(default_factory=dict)


PUBLIC = (
    "rounds", "gamma", "eta", "settlement", "tau", "delta", "local", "epochs", "batch", "learning_rate",
    "value_per_nat", "loss_cap", "report_values", "seed",
)  # fmt: skip


class Mechanism:
    """A mechanism says what the phases are, which payments are made and what it promises.

    A new one sets the class attributes and overrides `start`, `after_contribute` and `promises`. `moves` says whether
    agents choose a new s with every update; `pays`, `aggregation` and `slope` hold unless the settings say otherwise.
    """

    name: ClassVar[str]
    two_phases: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    pays: ClassVar[str] = "none"
    aggregation: ClassVar[str] = "mean"
    slope: ClassVar[str] = "bounded"  # of agents with data; a closed-form game uses its own

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.payment = settings.payment or self.pays
        self.rule = settings.aggregation or self.aggregation
        aggregation.rule(self.rule)
        if self.contribution and settings.settlement == "commitment" and not self.two_phases:
            raise SettingError(
                f"incentive.settlement is 'commitment', but {self.name} has no phase 1 that ends in a commitment: use "
                "tranches or end."
            )

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
        """A value exchange follows every training round that is paid truthfully, and the last one for the welfare."""
        return self.truthful or (self.settings.report_values and run.trained == self.settings.rounds)

    def promises(self, phi: str) -> Promises:
        """What this run promises; `phi` is the fine that can be charged with the oracles there are."""
        return Promises()

    @property
    def contribution(self) -> bool:
        return self.payment in ("contribution", "both")

    @property
    def truthful(self) -> bool:
        return self.payment in ("truthful", "both")

    @property
    def beta(self) -> Fraction:
        """The price of a point that agents feel: 0 where the contribution payment is not made."""
        return self.settings.beta if self.contribution else Fraction(0)

    def public(self) -> dict[str, Any]:
        """What every agent is told with each broadcast: plain numbers and strings."""
        s = self.settings
        return {
            **{key: getattr(s, key) for key in PUBLIC},
            "mechanism": self.name,
            "payment": self.payment,
            "beta": float(self.beta),
            "slope": s.slope or self.slope,
            "slope_given": s.slope is not None,
            "moves": self.moves,
            "truthful": self.truthful,
        }

    def check(self, n: int) -> None:
        """Refuse settings that make no sense for this number of agents."""
        if n < 2 and self.payment != "none":
            raise SettingError(
                f"incentive.payment is {self.payment!r} with {n} agent: a payment compares an agent with the others. "
                "Enrol at least 2 agents or set payment: none."
            )
        least = self.least(n)
        if n < least:
            raise SettingError(
                f"incentive.aggregation is {self.rule!r} with alpha = {self.settings.alpha:g}: that needs at least "
                f"{least} agents, not {n}. Lower alpha or enrol more agents."
            )

    def least(self, n: int) -> int:
        """How many updates the aggregation rule needs when n agents answer: trimming must leave some."""
        k = aggregation.trim_count(self.settings.alpha, n)
        return {"trimmed-mean": max(3, 2 * k + 1), "krum": 2 * k + 3, "multi-krum": 2 * k + 3}.get(self.rule, 1)
