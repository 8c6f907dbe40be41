"""Gradient-relative (Chakarov et al. 2024): UPBReD, and whoever sends longer updates than the others pays them.

p_i = phi_i - mean_{j != i} phi_j,   phi_i = -(eta / 2n) |d_i|^2,   in every training round
"""

from __future__ import annotations

from ..payments import Relative
from .upbred import Upbred


class GradientRelativeUpbred(Upbred):
    name = "gradient-relative"
    pays = (Relative,)
