"""FedBR and FedBR-BG (Murhekar et al., NeurIPS 2023): best-response dynamics without payment, and with shared costs.

    as UPBReD; in FedBR-BG each of T rounds pays p_i = phi_i - mean_{j != i} phi_j, phi_i = part c_i s_i / T

`part` is 1 - 1/n unless `incentive.options.relative.part` says otherwise: all costs, shared equally.
"""

from __future__ import annotations

from ..payments import Relative
from .upbred import Upbred


class FedBR(Upbred):
    name = "fedbr"


class FedBRBG(Upbred):
    """Budget balanced; stated costs are believed."""

    name = "fedbr-bg"
    pays = (Relative,)
