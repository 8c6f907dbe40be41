"""The yardsticks: the efficient planner, and FedAvg, in which everyone gives all it has."""

from __future__ import annotations

import numpy as np

from ..game.arrays import Array
from .base import LeagueRow, Moves, Promise, Reports
from .stage import CLOSE, Stage, rest


class Planner(LeagueRow):
    """s = argmax sum_i (V_i - c_i s_i): what an all-knowing planner would assign, and nobody is paid."""

    name, source, asks, chooses = "planner", "yardstick", (), False

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        def everyones(S: Array) -> Array:
            net = (stage.values(S) - reports.c * S).sum(axis=-1, keepdims=True)
            return np.broadcast_to(net, S.shape)

        s, _ = rest(everyones, stage.s_max, 0.5 * stage.s_max if start is None else start)
        return Moves(np.where(s <= CLOSE * stage.s_max, 0.0, s), 1, 2 * stage.n)


class Everything(LeagueRow):
    """FedAvg: s = s_max."""

    name, source, chooses = "fedavg", "McMahan et al. 2017", False
    promises = (Promise("full contribution", note="not a choice"),)

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        return Moves(stage.s_max.copy(), 0, 0)
