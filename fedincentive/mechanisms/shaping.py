"""Accuracy shaping (Karimireddy et al. 2022) and RealFM (Bornstein et al. 2023): a degraded model instead of money.

as UPBReD; agent i's model is worth to it at most what its points have earned: A_i(s_i) up to m_i, and beyond it
A_i(m_i) plus the stated cost of its further points, so that giving more pays as long as the model is worth it
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import SettingError
from ..game import Game, Search
from ..game.search import maximise
from ..payments import Levels
from ..payments.levels import CAPPED
from ..settings import Settings
from .base import with_costs
from .upbred import Upbred

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StandAlone:
    """What the agents of a game would do alone at their stated costs, which are the game's where none are stated."""

    settings: Settings
    game: Game
    cost: Array
    targets: Array  # m_i = argmax A_i(t) - c_i t

    @classmethod
    def of(cls, mechanism: str, settings: Settings, game: Game) -> StandAlone:
        if game.valuation.alone(game.s_max) is None:
            raise SettingError(
                f"Mechanism {mechanism!r} asks what agents have alone, which is not known in this game: choose another "
                "mechanism or another valuation."
            )
        settings = with_costs(settings, game)
        cost = np.array([settings.cost_of(agent) for agent in game.agents])

        def utility(t: Array) -> Array:
            value = game.valuation.alone(t)
            assert value is not None
            return value - cost * t

        concave = bool(game.valuation.concave_alone)
        targets, _ = maximise(utility, np.zeros(game.n), game.s_max, Search(), concave=concave)
        return cls(settings, game, cost, targets)

    def alone(self, t: Array) -> Array:
        value = self.game.valuation.alone(t)
        assert value is not None
        return value

    def filled(self, payment: str, **numbers: Array) -> Settings:
        """The settings with these options by agent, as texts; what the settings have stays."""
        worked_out = {
            name: {agent: f"{x:.12g}" for agent, x in zip(self.game.agents, values.tolist(), strict=True)}
            for name, values in numbers.items()
        }
        options = dict(self.settings.options or {})
        return replace(self.settings, options={**options, payment: {**worked_out, **options.get(payment, {})}})


class AccuracyShaping(Upbred):
    name = "accuracy-shaping"
    pays = (Levels,)
    strategy = "best-response"

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        known = StandAlone.of(cls.name, settings, game)
        nothing = known.alone(np.zeros(game.n))
        floors = {"floors": nothing} if np.isfinite(nothing).all() else {}
        filled = known.filled(Levels.name, targets=known.targets, bases=known.alone(known.targets), **floors)
        options = dict(filled.options or {})
        return replace(filled, options={**options, Levels.name: {"models": CAPPED, **options[Levels.name]}})


class RealFMMechanism(AccuracyShaping):
    """The same cap, expanded in accuracy."""

    name = "realfm"

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        nothing = game.valuation.alone(np.zeros(game.n))
        if nothing is not None and not np.isfinite(nothing).all():
            raise SettingError(
                "Mechanism 'realfm' measures accuracy from what an agent has without data, which is not finite in this "
                "game: play accuracy-shaping."
            )
        return super().prepared(settings, game)
