"""Shares: UPBReD, and a budget of the treasury is divided by delivered points, or by what the updates were worth.

p_i = (B / T) score_i / sum_j score_j,   with `contribution: exact | gtg | loo | cgsv` the value of i's update
"""

from __future__ import annotations

from dataclasses import replace

from ..game import Game
from ..payments import Share
from ..settings import Settings
from .upbred import Upbred


class SharedBudget(Upbred):
    name = "shares"
    pays = (Share,)

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        """In a closed-form game the budget is half of what all points cost, unless the settings have one."""
        options = dict(settings.options or {})
        if "budget" in options.get(Share.name, {}):
            return settings
        budget = f"{0.5 * float(game.costs(game.s_max).sum()):.6g}"
        return replace(settings, options={**options, Share.name: {**options.get(Share.name, {}), "budget": budget}})
