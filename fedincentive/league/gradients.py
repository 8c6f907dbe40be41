"""Payments on the updates: gradient-relative (Chakarov et al. 2024) and groves-d; contributions move as in UPBReD.

    gradient-relative:  p_i = -C |d_i|^2, relative to the others' mean, C = eta/(2n)
    groves-d:           adds what the curvature of v_i takes from the linear view: docs/truthful.md

What agents gain by other updates than grad v_i is searched in `lies.updates`.
"""

from __future__ import annotations

import numpy as np

from ..game.arrays import Array
from ..payments import quantise
from . import lies
from .base import Posting, Promise, Reports, by_agent
from .ours import UpbredRow
from .stage import Stage

UNIT = 10**9  # steps per unit of <d_i, d_j>


class PaidUpdates(UpbredRow):
    """Contributions as in UPBReD, and a payment on the updates of every training round."""

    def settled(self, stage: Stage, s: Array) -> Array:
        return lies.train(self, stage, s, np.eye(stage.n))[1]


class GradientRelative(PaidUpdates):
    name, source = "gradient-relative", "Chakarov et al. 2024 (arXiv 2412.00980), rule recalled; C derived"
    pays_d = "relative"
    promises = (Promise("equilibrium"), Promise("budget balanced"), Promise("truthful updates", note="up to eps"))

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        found: list[Posting] = []
        for step in lies.steps(self, stage, s, np.eye(stage.n)):
            rates = dict.fromkeys(stage.game.agents, repr(-0.5 * step.h * step.weight))
            squares = by_agent(stage, np.sum(step.d**2, axis=1), UNIT)
            found.append(("relative/1", {"rates": rates, "amounts": squares, "unit": UNIT}))
        return found


class GrovesD(PaidUpdates):
    name, source = "groves-d", "ours, docs/truthful.md"
    pays_d = "groves-d"
    promises = (
        Promise("equilibrium"),
        Promise("budget balanced"),
        Promise("truthful updates", ("quadratic in w", "n at least 3")),
    )

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or ("" if stage.n >= 3 else "needs three agents")

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        agents, found = stage.game.agents, []
        order = sorted(range(stage.n), key=lambda i: agents[i])
        for step in lies.steps(self, stage, s, np.eye(stage.n)):
            products = step.d @ step.d.T
            gram = {
                agents[i]: {agents[j]: quantise(float(products[i, j]), UNIT) for j in order[: place + 1]}
                for place, i in enumerate(order)
            }
            told = {"gram": gram, "unit": UNIT, "h": repr(step.h), "weight": repr(step.weight)}
            found.append(("pair/1", {**told, "k": {a: repr(float(k)) for a, k in zip(agents, step.k, strict=True)}}))
        return found
