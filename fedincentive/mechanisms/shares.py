"""Shares: UPBReD, and a budget of the treasury is divided by delivered points, or by what the updates were worth.

p_i = (B / T) score_i / sum_j score_j,   with `contribution: exact | gtg | loo | cgsv` the value of i's update
"""

from __future__ import annotations

from ..payments import Share
from .upbred import Upbred


class SharedBudget(Upbred):
    name = "shares"
    pays = (Share,)
