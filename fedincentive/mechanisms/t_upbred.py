"""T-UPBReD: UPBReD with payments that make honest reports of (s_i, d_i, v_i) the best ones.

    for t = 0 .. T-1:
        as UPBReD; then center broadcasts the new w
        each agent sends its valuation v^_i
        center pays p*_i = sum_{j != i} v^_j - phi_i - h_i

The dynamics leave p* out of g, as the paper does. p* goes through the treasury: balance, truthfulness and optimality
together are impossible. `payment: groves-d` pays on the updates instead, and balances.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..game import DataValue, Game, Quadratic
from ..payments import GrovesUpdates, Truthful
from ..settings import Settings
from .upbred import Upbred


class TruthfulUpbred(Upbred):
    """UPBReD with a value exchange after every training round and the truthful payment on it."""

    name = "t-upbred"
    pays = (Truthful,)

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        """groves-d asks for curvatures, which a game that is quadratic in w has."""
        k, options = curvatures(game), dict(settings.options or {})
        own, paid = dict(options.get(GrovesUpdates.name, {})), settings.payment or ()
        if GrovesUpdates.name not in (paid, *paid) or "curvature" in own or k is None:
            return settings
        own["curvature"] = {agent: repr(x) for agent, x in zip(game.agents, k.tolist(), strict=True)}
        return replace(settings, options={**options, GrovesUpdates.name: own})


def curvatures(game: Game) -> NDArray[np.float64] | None:
    """k_i, where v_i = ... - k_i |w - x_i|^2 / 2; None where w bends v_i otherwise."""
    valuation = game.valuation
    if isinstance(valuation, DataValue):
        return np.broadcast_to(valuation.fit, (game.n,)).astype(float)
    if isinstance(valuation, Quadratic):
        mean = float(np.trace(valuation.stiffness)) / len(valuation.stiffness)
        return np.full(game.n, mean) if np.allclose(valuation.stiffness, mean * np.eye(game.m)) else None
    return None
