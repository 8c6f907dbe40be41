"""How good a model each agent is given: accuracy shaping (Karimireddy et al. 2022) and RealFM (Bornstein et al. 2023).

    level_i = min(V_i, A_i(s_i))                                 up to m_i, what i would train on alone
            = min(V_i, A_i(m_i) + (1 + epsilon) c_i (s_i - m_i))      beyond it: a further point just pays for itself

A_i is what i has alone, c_i its stated cost. RealFM (`shape: taylor`) grants accuracy a with value phi(a): the grant is
g = (-phi' + sqrt(phi'^2 + 2 phi'' (1 + epsilon) c_i (s_i - m_i))) / phi'',  phi(a) = 1/(1-a)^2 - 1 over A_i(0).
No money moves: the ledger has a memo of everybody's level in each training round.

In a closed-form game the level is a cap on V_i (`models: capped`). Where agents train (`models: masked/1`), V is what
the center's utility says of a model, the same for all, and each agent is sent a model of its own that is worth no more
than it has earned (`center/own_models.py`). Nobody knows A_i there: below m_i it is the line from A_i(0) to A_i(m_i).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..entry import Entry
from ..errors import SettingError
from ..run import Run
from ..settings import Settings
from ..terms import Terms
from .base import Array, Body, Event, Game, Memory, Payment, Promises, When, points_within
from .exact import MINOR, SCALE, Amounts, quantise
from .oracles import Oracles
from .pooled import levels

ASKED = ("targets", "bases", "floors")
CAPPED, MASKED = "capped", "masked/1"


def taylor(floor: Array, level: Array, worth: Array) -> Array:
    """RealFM's grant: `level`, and on top of it the accuracy that is worth `worth` by the second-order expansion."""
    a = 1.0 - (1.0 + np.maximum(level - floor, 0.0)) ** -0.5
    slope, bend = 2.0 / (1.0 - a) ** 3, 6.0 / (1.0 - a) ** 4
    more = (np.sqrt(slope**2 + 2.0 * bend * worth) - slope) / bend
    reached = np.minimum(a + more, 1.0 - 1e-9)
    return np.where(worth > 0.0, floor + (1.0 - reached) ** -2.0 - 1.0, level)


@dataclass(frozen=True)
class Levels(Payment):
    targets: dict[str, Fraction] | None = None  # m_i, in points
    bases: dict[str, Fraction] | None = None  # A_i(m_i)
    floors: dict[str, Fraction] | None = None  # A_i(0), for `taylor` and where agents train
    shape: str = "value"
    epsilon: Fraction = Fraction(1, 100)
    models: str = MASKED  # how they are degraded
    cost: float | dict[str, float] = 0.0  # per point, as the settings state it
    scale: int = SCALE
    minor: int = MINOR

    name, kinds, rules, degrades = "level", ("level",), ("level/1",), True

    def __post_init__(self) -> None:
        if self.shape not in ("value", "taylor"):
            raise SettingError(f"incentive.options.level.shape is {self.shape!r}; known: value, taylor.")
        if self.epsilon < 0:
            raise SettingError(f"incentive.options.level.epsilon is {self.epsilon}: it must be at least 0.")
        if self.models not in (CAPPED, MASKED):
            raise SettingError(f"incentive.options.level.models is {self.models!r}; known: {MASKED}, {CAPPED}.")

    @classmethod
    def of(cls, settings: Settings) -> Levels:
        """`realfm` expands in accuracy, unless the options say otherwise."""
        own = dict((settings.options or {}).get(cls.name, {}))
        if settings.mechanism == "realfm":
            own.setdefault("shape", "taylor")
        made = super().of(replace(settings, options={**(settings.options or {}), cls.name: own}))
        if made.masks and settings.audited:
            raise SettingError(
                "incentive.auditors make training passes again from the model that all were sent, but payment 'level' "
                "sends every agent another one: leave the auditors out, or choose a mechanism that pays money."
            )
        return made

    @property
    def masks(self) -> bool:
        """Whether each agent is sent a model of its own."""
        return self.models == MASKED

    @property
    def asked(self) -> tuple[str, ...]:
        return ASKED if self.masks or self.shape == "taylor" else ASKED[:2]

    def check(self, n: int, oracles: Oracles) -> None:
        super().check(n, oracles)
        if self.masks and oracles.utility is None:
            raise SettingError(
                "Payment 'level' gives every agent a model of its own, only as good as its points have earned, so the "
                "center must know what a model is worth: give it Oracles(utility=...), in FedML test data at the "
                "server, in Flower an evaluate_fn, in NVFlare a validator. FLUTE has none."
            )
        if not self.masks and (oracles.valuation is None or oracles.alone is None):
            raise SettingError(
                f"incentive.options.level.models is {CAPPED!r}, which is for closed-form games: leave it out where "
                "agents train."
            )
        for name in self.asked:
            if getattr(self, name) is None:
                raise SettingError(f"incentive.options.level.{name} is required, a number for each agent.")

    def caution(self, run: Run) -> str:
        for agent in run.agents:
            run.settings.cost_of(agent)  # refused before the first round
            for name in self.asked:
                if agent not in getattr(self, name):
                    raise SettingError(f"incentive.options.level.{name} has no number for agent {agent!r}.")
            if self.masks and self.floors[agent] > self.bases[agent]:  # type: ignore[index]
                raise SettingError(
                    f"incentive.options.level.bases of agent {agent!r} is below its floor: what it has on m points "
                    "alone cannot be less than what it has without data."
                )
        return ""

    def _numbers(self, name: str, agents: tuple[str, ...]) -> Array:
        given = getattr(self, name)
        return np.array([float((given or {}).get(a, 0) if isinstance(given, Mapping) else given or 0) for a in agents])

    def caps(self, agents: tuple[str, ...], points: Array, alone: Array) -> Array:
        """The most that each agent's model is worth to it; `alone` is A_i at its points, which counts up to m_i."""
        target = self._numbers("targets", agents)
        beyond = np.maximum(points - target, 0.0)
        worth = (1.0 + float(self.epsilon)) * self._numbers("cost", agents) * beyond
        base = np.where(beyond > 0.0, self._numbers("bases", agents), alone)
        return taylor(self._numbers("floors", agents), base, worth) if self.shape == "taylor" else base + worth

    def earned(self, run: Run) -> dict[str, float]:
        """What the model of each agent may be worth after what it delivered, where agents train."""
        points = run.points(run.delivered)
        given = np.array([points[agent] for agent in run.agents])
        return dict(zip(run.agents, self.caps(run.agents, given, self._line(run.agents, given)).tolist(), strict=True))

    def _line(self, agents: tuple[str, ...], points: Array) -> Array:
        """From A_i(0) to A_i(m_i): no more than a concave A_i is."""
        target, base, floor = (self._numbers(name, agents) for name in ("targets", "bases", "floors"))
        part = np.divide(points, target, out=np.ones_like(points), where=target > 0.0)
        return floor + (base - floor) * np.minimum(part, 1.0)

    def due(self, run: Run, event: Event) -> Entry | None:
        """With what was delivered: of the model that was broadcast in closed-form games, else of the new one."""
        if event.phase != "train":
            return None
        if self.masks:
            worth = {agent: quantise(event.levels[agent], self.minor) for agent in run.agents}
            return self.entry(run, {"levels": worth, "points": {a: run.delivered[a] for a in run.agents}})
        known, alone = event.oracles.valuation, event.oracles.alone
        assert known is not None and alone is not None
        points = run.points(run.delivered)
        given = np.array([points[agent] for agent in run.agents])
        by_itself = np.array([alone(agent, points[agent]) for agent in run.agents])
        caps = self.caps(run.agents, given, by_itself)
        found = {a: min(known.value(a, event.w, points), float(cap)) for a, cap in zip(run.agents, caps, strict=True)}
        for agent, level in found.items():
            if not np.isfinite(level):
                raise SettingError(
                    f"Agent {agent!r} delivered {points[agent]:g} points, and its model is worth {level} then, which "
                    "no ledger can note: degraded models need a game in which what an agent has alone is finite."
                )
        told = {agent: quantise(level, self.minor) for agent, level in found.items()}
        return self.entry(run, {"levels": told, "points": {a: run.delivered[a] for a in run.agents}})

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        return levels(body["inputs"]["levels"])

    def schedule(self) -> Mapping[str, When]:
        return {"level": "step"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        """No level is above what the points have earned; up to m_i that is known to be at most A_i(m_i)."""
        given, agents = body["inputs"], tuple(sorted(terms.s_max))
        yield from (wrong := list(points_within(given["points"], terms.s_max, "points")))
        if wrong or set(given["levels"]) != set(agents):
            yield from () if wrong else ("its levels are not of the agents in the terms",)
            return
        points = np.array([given["points"][agent] / self.scale for agent in agents])
        caps = self.caps(agents, points, self._numbers("bases", agents)) * self.minor
        for agent, cap in zip(agents, caps, strict=True):
            if given["levels"][agent] > cap + 1.0:
                yield f"{agent!r} was given {given['levels'][agent]}, its points have earned at most {cap:.0f}"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        if account not in entry.inputs["levels"]:
            return entry.rule
        return f"memo, a model worth {entry.inputs['levels'][account] / minor:.6g}"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        return {"delivered": entry.inputs["points"]} if "points" in entry.inputs else {}

    def slopes(self, agents: Sequence[str], s: Array) -> Array:
        """What a further point earns where agents train; agents of closed-form games see it in `deviations`."""
        if not self.masks:
            return super().slopes(agents, s)
        names = tuple(agents)
        target, base, floor = (self._numbers(name, names) for name in ("targets", "bases", "floors"))
        below = np.divide(base - floor, target, out=np.zeros_like(s, dtype=float), where=target > 0.0)
        return np.where(s < target, below, (1.0 + float(self.epsilon)) * self._numbers("cost", names))

    def withheld(self, game: Game, w: Array, s: Array, t: Array | None = None) -> Array:
        own = s if t is None else t
        value = game.valuation.unilateral(w, s, own)
        caps = self.caps(game.agents, own, game.valuation.alone(own))
        with np.errstate(invalid="ignore"):  # minus infinity less itself, where nothing is withheld
            return np.where(value > caps, value - np.minimum(value, caps), 0.0)

    def deviations(self, game: Game, w: Array, s: Array, t: Array) -> Array:
        return -self.withheld(game, w, s, t)

    def limits(self, agents: object, s_max: Array) -> Array:
        return np.zeros(len(s_max))

    def summary(self, oracles: Oracles | None = None) -> str:
        return "no money: each agent's model is only as good as its points have earned" + (
            " (RealFM's expansion)" if self.shape == "taylor" else ""
        )

    def promises(self, oracles: Oracles) -> Promises:
        return Promises((), {"truthful": "whoever overstates its cost is given a better model for its points"})
