"""What a mechanism is: which phase comes next, who is paid what, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

from ..errors import SettingError
from ..messages import Phase
from .settings import Settings


@dataclass
class Run:
    """Where a run stands. The Center writes it; mechanisms read it. Points are integers in fixed point."""

    settings: Settings
    agents: tuple[str, ...]  # in name order
    s_max: dict[str, int]
    s: dict[str, int]
    commitments: dict[str, str] = field(default_factory=dict)  # digests given at enrolment
    round: int = 0
    step: int = 0
    phase: Phase = "train"
    contributed: int = 0  # contribute rounds closed
    trained: int = 0  # training rounds closed
    moved: int | None = None  # largest move of s in the last contribute round; None when somebody was absent
    delivered: dict[str, int] = field(default_factory=dict)  # in the last training round; the unsampled keep theirs
    delivered_total: dict[str, int] = field(default_factory=dict)
    posted: dict[str, int] = field(default_factory=dict)  # contribution payments so far, minor units
    balances: dict[str, int] = field(default_factory=dict)  # all payments so far, with the treasury's
    valuations: dict[str, int] = field(default_factory=dict)  # last reported, minor units
    paid_valuations: dict[str, int] = field(default_factory=dict)  # those the last truthful payment was made on
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
        mutable = {f.name: dict(v) for f in fields(self) if isinstance(v := getattr(self, f.name), dict)}
        return replace(self, **mutable)

    def points(self, fixed: Mapping[str, int]) -> dict[str, float]:
        """Fixed-point points as numbers, in name order."""
        return {agent: fixed[agent] / self.settings.scale for agent in self.agents}


PUBLIC = (
    "rounds", "gamma", "eta", "settlement", "tau", "delta", "local", "epochs", "batch", "learning_rate",
    "value_per_nat", "loss_cap", "report_values", "seed",
)  # fmt: skip


class Mechanism:
    """A mechanism says what the phases are and how the payments follow.

    Subclasses set the class attributes and override `start` and `after_contribute`. `moves` says whether agents choose
    a new s with every update; `pays` and `aggregation` are used unless the settings say otherwise.
    """

    name: ClassVar[str]
    moves: ClassVar[bool] = False
    pays: ClassVar[str] = "none"
    aggregation: ClassVar[str] = "mean"
    slope: ClassVar[str] = "bounded"  # what agents with data use unless the settings say otherwise

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.payment = settings.payment or self.pays
        self.rule = settings.aggregation or self.aggregation

    def start(self, run: Run) -> Phase:
        """The first phase."""
        return "train"

    def after_contribute(self, run: Run) -> Phase:
        """The phase after a contribute round."""
        return "train"

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
        given = {key: getattr(s, key) for key in PUBLIC}
        return {
            **given,
            "mechanism": self.name,
            "payment": self.payment,
            "beta": float(self.beta),
            "slope": s.slope or self.slope,
            "slope_given": s.slope is not None,
            "moves": self.moves,
            "truthful": self.truthful,
        }

    def check(self, n: int) -> None:
        """Settings that only make sense for some numbers of agents."""
        if n < 2 and self.payment != "none":
            raise SettingError(
                f"incentive.payment is {self.payment!r} with {n} agent: a payment compares an agent with the others. "
                "Enrol at least 2 agents or set payment: none."
            )
