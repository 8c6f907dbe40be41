"""UPBReD: contributions and model move together (Algorithm 1).

    for t = 0 .. T-1:
        center broadcasts w, s
        each agent sends s_i <- clip(s_i + gamma g_i(w, s), 0, s_max_i)  and  d_i = grad_w v_i(w, s)
        w <- w + eta/n sum_i d_i

Both are computed at the broadcast (w, s).
"""

from __future__ import annotations

from ..payments import Promises
from .base import Mechanism


class Upbred(Mechanism):
    """Updated Parameters and Best Response Dynamics: goes to a Nash equilibrium, which may be far from s_max."""

    name = "upbred"
    moves = True
    slope = "counterfactual"

    def claims(self) -> Promises:
        return Promises(("equilibrium",))
