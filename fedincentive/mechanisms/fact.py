"""FACT (Bornstein et al. 2024): UPBReD, a penalty that makes m_i the best contribution, a prize for the middle cost.

m_i = argmax A_i(t) - c_i t        what i would train on alone at its stated cost
every training round: fee D_i / T and penalty lam (K + m_i - s_i)^2 / T; in trios the middle stated cost wins
"""

from __future__ import annotations

import numpy as np

from ..game import Game
from ..game.quoting import model
from ..payments import Sandwich
from ..settings import Settings
from .shaping import StandAlone
from .upbred import Upbred


class FactMechanism(Upbred):
    """Fees D_i = V_i - A_i at m; gap_i = c_i - V_i' there, with A_i' instead of c_i where m_i is all there is."""

    name = "fact"
    pays = (Sandwich,)
    strategy = "best-response"

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        known = StandAlone.of(cls.name, settings, game)
        m, w, step = known.targets, model(game, game.s_max), 1e-6 * game.s_max
        fees = np.maximum(game.values(w, m) - known.alone(m), 0.0)
        more = np.divide(known.alone(m) - known.alone(m - step), step, out=np.zeros_like(m), where=step > 0.0)
        rising = np.where(m >= game.s_max - step, more, 0.0)
        gaps = np.maximum(np.maximum(known.cost, rising) - game.valuation.slope(w, m), 0.0)
        return known.filled(Sandwich.name, targets=m, fees=fees, gaps=gaps)
