"""T-UPBReD: UPBReD with payments that make honest reports of (s_i, d_i, v_i) the best ones.

    for t = 0 .. T-1:
        as UPBReD; then center broadcasts the new w
        each agent sends its valuation v^_i
        center pays p*_i = sum_{j != i} v^_j - phi_i - h_i

The dynamics leave p* out of g, as the paper does. p* goes through the treasury: balance, truthfulness and optimality
together are impossible.
"""

from __future__ import annotations

from ..payments import Truthful
from .upbred import Upbred


class TruthfulUpbred(Upbred):
    """UPBReD with a value exchange after every training round and the truthful payment on it."""

    name = "t-upbred"
    pays = (Truthful,)
