"""UPBReD, T-UPBReD and 2P-UPBReD as rows; the algorithms are in fedincentive.mechanisms."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..game import beta_dom
from ..game.arrays import Array
from .base import LeagueRow, Moves, Posting, Promise, Reports, by_agent, compared, points, texts
from .stage import Stage

MARGIN = 1.05  # over zeta + tau, so that giving more pays strictly


class UpbredRow(LeagueRow):
    """Nobody is paid; s rests where nobody gains alone. FedBR and FedAvg-strategic rest at the same point."""

    name, source = "upbred", "the paper, Algorithm 1; FedBR: Murhekar et al. 2023"
    promises: ClassVar[tuple[Promise, ...]] = (Promise("equilibrium"), Promise("budget balanced"))


class TruthfulRow(UpbredRow):
    """p*_i = the others' improvement since (w0, s0), as `h: previous` telescopes to; updates are audited."""

    name, source, pays_d = "t-upbred", "the paper, T-UPBReD with audits", "audited"
    promises = (
        Promise("truthful", note="epsilon per round, with audits, which the league does not play"),
        Promise("equilibrium"),
    )

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        return UpbredRow().moves(stage, reports, start)  # the paper leaves p* out of the slope of s

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        better = stage.values(S) - self._first(stage)
        return better.sum(axis=-1, keepdims=True) - better

    def named(self, stage: Stage, reports: Reports, held: Array) -> None:
        return None  # a second name's valuation is a word that no rule limits

    def _first(self, stage: Stage) -> Array:
        return stage.game.values(stage.game.w0, stage.game.s0)

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        inputs = {
            "valuations": by_agent(stage, stage.values(s)),
            "previous": by_agent(stage, self._first(stage)),
            **{"h": "previous", "phi": "none", "fine": 0, "tolerance": 0},
        }
        return [("truthful/1", inputs)]


class TwoPhaseRow(LeagueRow):
    """p_i = beta (s_i - mean_{j != i} s_j) with beta above zeta + tau: everyone gives s_max."""

    name, source = "2p-upbred", "the paper, Algorithm 2"
    promises = (
        Promise("full contribution"),
        Promise("equilibrium"),
        Promise("budget balanced"),
        Promise("delivered", note="the paper takes s as observed"),
    )

    def beta(self, stage: Stage) -> float:
        bound = beta_dom(stage.game, stage.w)
        return MARGIN * (float(stage.c.max()) if bound is None else bound)

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or (
            "no bound of the slopes is known" if beta_dom(stage.game, stage.w) is None else ""
        )

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        return self.beta(stage) * compared(S)

    def named(self, stage: Stage, reports: Reports, held: Array) -> Array:
        return self.beta(stage) * compared(held.sum(axis=1))

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        rates = texts(stage, np.full(stage.n, self.beta(stage)))
        return [("relative/1", {"rates": rates, "amounts": points(stage, s), "unit": 10**6})]


class AttestedTwoPhase(TwoPhaseRow):
    """2P-UPBReD where an audit knows what was delivered: claims beyond it are not paid."""

    name, source, measured = "2p-attested", "the paper, Algorithm 2, with attested points", True
