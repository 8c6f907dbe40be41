"""Payments on the updates: gradient-relative (Chakarov et al. 2024) and groves-d; contributions move as in UPBReD.

    gradient-relative:  p_i = -C |d_i|^2, relative to the others' mean, C = eta/(2n)
    groves-d:           adds what the curvature of v_i takes from the linear view: docs/truthful.md

What agents gain by other updates than grad v_i is searched in `lies.updates`.
"""

from __future__ import annotations

from ..game.arrays import Array
from .base import Posting, Promise, Reports
from .ours import UpbredRow
from .stage import Stage


class GradientRelative(UpbredRow):
    name, source = "gradient-relative", "Chakarov et al. 2024 (arXiv 2412.00980), rule recalled; C derived"
    pays_d = "relative"
    promises = (Promise("equilibrium"), Promise("budget balanced"), Promise("truthful updates", note="up to eps"))


class GrovesD(UpbredRow):
    name, source = "groves-d", "ours, docs/truthful.md"
    pays_d = "groves-d"
    promises = (
        Promise("equilibrium"),
        Promise("budget balanced"),
        Promise("truthful updates", ("quadratic in w", "n at least 3")),
    )
