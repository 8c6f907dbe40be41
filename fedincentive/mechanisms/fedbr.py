"""FedBR and FedBR-BG (Murhekar et al., NeurIPS 2023): best-response dynamics without payment, and with shared costs.

    as UPBReD; in FedBR-BG each of T rounds pays p_i = phi_i - mean_{j != i} phi_j, phi_i = part c_i s_i / T

`part` is 1 - 1/n unless `incentive.options.relative.part` says otherwise: all costs, shared equally.
"""

from __future__ import annotations

from ..game import Game
from ..payments import Relative
from ..settings import Settings
from .base import with_costs
from .upbred import Upbred


class FedBR(Upbred):
    name = "fedbr"


class FedBRBG(Upbred):
    """Budget balanced; stated costs are believed."""

    name = "fedbr-bg"
    pays = (Relative,)

    @classmethod
    def prepared(cls, settings: Settings, game: Game) -> Settings:
        return with_costs(settings, game)
