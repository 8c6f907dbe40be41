"""Sites: where an agent's data and training are. A host implements `Site`; the closed-form game has one too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from .. import draws
from ..contribution import labels_by_effort
from ..game import Game, Search, outside_options
from ..game.games import Pay
from ..game.regret import known_concave
from ..game.search import maximise
from ..messages import Update
from ..payments import felt
from ..provenance import records as commitments
from ..settings import Settings


class Site(Protocol):
    """What an agent can do with its own data. Costs and valuations are private to it."""

    s_max: float
    whole: bool  # points are drawn whole: round(points) of them

    @property
    def w0(self) -> Update | None:
        """The first model where it is known; contribute rounds carry none."""

    def update(self, w: Update, points: float, step: int, s: Mapping[str, float]) -> Update:
        """d_i from w on this many points; `step` seeds the training, `s` is everyone's broadcast contribution."""

    def value(self, w: Update, s: Mapping[str, float]) -> float:
        """v_i(w, s)."""

    def cost(self, points: float) -> float:
        """c_i(points), for the whole run."""

    def cost_slope(self, points: float) -> float:
        """c_i'(points)."""


def alone(site: Site, rounds: int, eta: float = 1.0) -> float | None:
    """What training alone from w0 on all its points is worth to a site, its cost taken off; at least what it has by
    doing nothing. None where it does not know the first model."""
    if (w := site.w0) is None:
        return None
    idle = site.value(w, {})
    for step in range(rounds):
        d = site.update(w, site.s_max, step, {})
        w = {name: array + np.asarray(eta * d[name], dtype=array.dtype) for name, array in w.items()}
    return max(idle, site.value(w, {}) - site.cost(site.s_max))


def worth_alone(site: Site, settings: Settings) -> float | None:
    """What an agent says of training alone when it enrols: measured where agents may decline and the site can tell."""
    measure = getattr(site, "alone", None)
    return measure(settings.rounds, settings.eta) if settings.opt_in and measure is not None else None


class ClosedFormSite:
    """Agent i of a closed-form game. Sites made by `of` share their evaluations of the same broadcast."""

    whole = False

    def __init__(self, game: Game, i: int, board: _Board | None = None) -> None:
        self.game, self.i = game, i
        self.name = game.agents[i]
        self.s_max = float(game.s_max[i])
        self._board = board or _Board(game)
        self.w0 = self._board.w0

    @classmethod
    def of(cls, game: Game) -> list[ClosedFormSite]:
        """One site per agent.

        >>> from fedincentive.game import paper_example
        >>> [site.s_max for site in ClosedFormSite.of(paper_example())]
        [5.0, 5.0]
        """
        board = _Board(game)
        return [cls(game, i, board) for i in range(game.n)]

    def update(self, w: Update, points: float, step: int, s: Mapping[str, float]) -> Update:
        row = self._board.rows("gradients", w, s, self.i, points)
        return {"w": np.array(row, dtype=np.float64)}

    def value(self, w: Update, s: Mapping[str, float]) -> float:
        return float(self._board.rows("values", w, s, self.i))

    def slope(self, w: Update, s: Mapping[str, float], own: float | None = None) -> float:
        """d v_i / d s_i at the broadcast (w, s), or where the agent itself gives `own` points."""
        return float(self._board.rows("slopes", w, s, self.i, own))

    def best_response(self, w: Update, s: Mapping[str, float], pay: Pay) -> float:
        """argmax over t of u_i(w, (t, s_-i)), payments included."""
        return float(self._board.best_responses(w, s, pay)[self.i])

    def expects(self, s: Mapping[str, float]) -> float:
        """v_i at the model that training approaches where everyone gives s."""
        here = self._board.vector(s)
        best = self.game.valuation.optimum(here)
        return float(self.game.values(self.game.w0 if best is None else best, here)[self.i])

    def alone(self, rounds: int = 1, eta: float = 1.0) -> float | None:
        """Its best utility by training alone, or the outside option that the game states."""
        known = outside_options(self.game)
        return None if known is None else float(known[self.i])

    def cost(self, points: float) -> float:
        return float(self._board.alone("value", self.i, points))

    def cost_slope(self, points: float) -> float:
        return float(self._board.alone("slope", self.i, points))


class _Board:
    """One evaluation of the whole game per broadcast, shared by the sites: n agents cost n, not n squared."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.w0 = {"w": game.w0}  # one object for all sites: evaluations are shared where w and s are the same objects
        self._of: dict[str, Callable] = {
            "values": game.values,
            "gradients": game.gradients,
            "slopes": game.valuation.slope,
        }
        self._seen: tuple[object, object] = (None, None)
        self._vector = game.s0
        self._kept: dict[str, np.ndarray] = {}

    def rows(self, what: str, w: Update, s: Mapping[str, float], i: int, own: float | None = None) -> np.ndarray:
        """Row i of a function of (w, s), or of (w, (own, s_-i)) where the agent itself gives something else."""
        self._look(w, s)
        if own is not None and own != self._vector[i]:
            moved = self._vector.copy()
            moved[i] = own
            return self._of[what](w["w"], moved)[i]
        if what not in self._kept:
            self._kept[what] = self._of[what](w["w"], self._vector)
        return self._kept[what][i]

    def alone(self, what: str, i: int, points: float) -> float:
        """A cost function of agent i at its own points and the others' broadcast ones."""
        cost = getattr(self.game.cost, what)
        if points == self._vector[i]:
            if (key := f"cost {what}") not in self._kept:
                self._kept[key] = cost(self._vector)
            return self._kept[key][i]
        moved = self._vector.copy()
        moved[i] = points
        return cost(moved)[i]

    def best_responses(self, w: Update, s: Mapping[str, float], pay: Pay) -> np.ndarray:
        self._look(w, s)
        if "best" not in self._kept:
            game, here = self.game, self._vector
            concave, lowest = known_concave(game, felt(pay)), np.zeros(game.n)
            utilities = partial(game.deviations, w["w"], here, pay=pay)
            self._kept["best"], _ = maximise(utilities, lowest, game.s_max, Search(), concave=concave)
        return self._kept["best"]

    def _look(self, w: Update, s: Mapping[str, float]) -> None:
        if self._seen[0] is not w or self._seen[1] is not s:
            self._seen, self._kept = (w, s), {}
            self._vector = self.vector(s)

    def vector(self, s: Mapping[str, float]) -> np.ndarray:
        """Everyone's points; who does not take part gives none."""
        return np.array([s.get(agent, 0.0) for agent in self.game.agents], dtype=np.float64)


@dataclass(frozen=True)
class GameOracle:
    """All oracles of a closed-form game. `actual(agent)` tells what the agent really contributes."""

    game: Game
    actual: Callable[[str], float]

    def value(self, agent: str, w: Update, s: Mapping[str, float]) -> float:
        return float(self.game.values(w["w"], self._vector(s))[self.game.agents.index(agent)])

    def points(self, agent: str) -> float:
        return self.actual(agent)

    def update(self, agent: str, w: Update, s: Mapping[str, float], step: int) -> Update:
        return {"w": self.game.gradient(self.game.agents.index(agent), w["w"], self._vector(s))}

    def alone(self, agent: str, points: float) -> float:
        """What the agent has by itself on this many points."""
        i, t = self.game.agents.index(agent), np.zeros(self.game.n)
        t[i] = points
        found = self.game.valuation.alone(t)
        return float("nan") if found is None else float(found[i])

    def welfare(self, w: Update) -> float:
        """What a model is worth to all, with what everyone really contributes."""
        return self.game.welfare(w["w"], np.array([self.actual(agent) for agent in self.game.agents]))

    def labels(self, agent: str, w: Update) -> np.ndarray:
        """Of shared items, right in the part of its points that the agent really contributes."""
        most = float(self.game.s_max[self.game.agents.index(agent)])
        return labels_by_effort(agent, self.actual(agent) / most if most else 0.0)

    def _vector(self, s: Mapping[str, float]) -> np.ndarray:
        return np.array([s.get(agent, 0.0) for agent in self.game.agents])


class LossSite:
    """An agent with data: v_i = value_per_nat (r - min(L_i(w), loss_cap)), L_i its loss on held-out data.

    `train(w, points, step)` returns d_i after training on these points (indices into the agent's own data);
    `evaluate(w)` returns L_i(w). The points are the first round(s) of `order`, one fixed shuffle of the agent's data,
    so that a larger s only adds points; `reward` is r, such as ln(#classes). `records` gives the points as bytes, which
    a site commits to in an audited run; their order is then drawn after that.
    """

    whole = True

    def __init__(
        self,
        size: int,
        train: Callable[[Update, np.ndarray, int], Update],
        evaluate: Callable[[Update], float],
        *,
        order: np.ndarray,
        reward: float,
        cost_per_point: float = 0.0,
        value_per_nat: float = 1.0,
        loss_cap: float = 10.0,
        w0: Update | Callable[[], Update | None] | None = None,
        records: Callable[[], Sequence[bytes]] | None = None,
    ) -> None:
        self.s_max = float(size)
        self.order = order
        self._records = records
        self._seed: int | None = None  # of the order, where it was drawn
        self._w0 = w0
        self._train, self._evaluate = train, evaluate
        self.reward, self.cost_per_point = reward, cost_per_point
        self.value_per_nat, self.loss_cap = value_per_nat, loss_cap

    @classmethod
    def of(
        cls,
        settings: Settings,
        agent: str,
        size: int,
        train: Callable[[Update, np.ndarray, int], Update],
        evaluate: Callable[[Update], float],
        *,
        classes: int,
        cost: float | None = None,
        w0: Update | Callable[[], Update | None] | None = None,
        records: Callable[[], Sequence[bytes]] | None = None,
    ) -> LossSite:
        """The site of an agent that classifies, as the settings have it; `cost` is its own where it knows better."""
        return cls(
            size,
            train,
            evaluate,
            order=draws.order(settings.seed, agent, size),
            reward=math.log(max(classes, 2)),
            cost_per_point=settings.cost_of(agent) if cost is None else float(cost),
            value_per_nat=settings.value_per_nat,
            loss_cap=settings.loss_cap,
            w0=w0,
            records=records,
        )

    def records(self) -> Sequence[bytes] | None:
        """The points as bytes, in the order they are stored; None where the site cannot show them."""
        return None if self._records is None else self._records()

    def reorder(self, seed: int) -> None:
        """Take the order that was drawn after the commitment."""
        if seed != self._seed:
            self._seed, self.order = seed, commitments.order(seed, len(self.order))

    @property
    def w0(self) -> Update | None:
        """The first model, read when a strategy asks for it: scalar rounds need not touch it."""
        if callable(self._w0):
            self._w0 = self._w0()
        return self._w0

    def update(self, w: Update, points: float, step: int, s: Mapping[str, float]) -> Update:
        drawn = self.order[: round(points)]
        if not len(drawn):
            return {name: np.zeros_like(array) for name, array in w.items()}
        return self._train(w, drawn, step)

    def value(self, w: Update, s: Mapping[str, float]) -> float:
        loss = float(self._evaluate(w))
        # A diverged model has a loss of NaN or infinity; it is worth what the cap says, not nothing defined.
        loss = min(loss, self.loss_cap) if np.isfinite(loss) else self.loss_cap
        return self.value_per_nat * (self.reward - loss)

    def expects(self, s: Mapping[str, float]) -> float:
        """The most a model can be worth to it: it makes no mistake."""
        return self.value_per_nat * self.reward

    def alone(self, rounds: int, eta: float = 1.0) -> float | None:
        """Measured: trained alone from w0 on all its points."""
        return alone(self, rounds, eta)

    def cost(self, points: float) -> float:
        return self.cost_per_point * points

    def cost_slope(self, points: float) -> float:
        return self.cost_per_point
