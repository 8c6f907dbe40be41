"""CGSV (Xu et al. 2021): whoever's updates go with everybody's is given more of the model's changes.

as UPBReD, with a model w_i of each agent's own, from which it trains, and with the center's

    w   <- w + eta D,   D = sum_i r_i d_i / |d_i|
    r_i <- keep r_i + (1 - keep) cos(d_i, D)
    w_i <- w_i + the largest part q_i = tanh(altruism r_i) / max_j tanh(altruism r_j) of each layer of eta D

An agent does not add its own update to w_i, so the center knows every w_i and can send it.
"""

from __future__ import annotations

from ..payments import Promises
from ..payments.downloads import Downloads
from .upbred import Upbred


class CosineRewards(Upbred):
    name = "cgsv"
    pays = (Downloads,)

    def claims(self) -> Promises:
        return Promises()
