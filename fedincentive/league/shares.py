"""A budget from the treasury, divided by scores: Shapley, leave-one-out, size, correlated agreement.

    p_i = B max(score_i, 0) / sum_j max(score_j, 0),   B half of what all data would cost

Shapley and leave-one-out score what the models of coalitions are worth: U(C) = sum_j V_j with the points of C alone.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..contribution import shapley_weights, subsets
from ..game.arrays import Array
from .base import LeagueRow, Posting, Promise, Reports, by_agent
from .stage import Stage

SCORE_UNIT = 10**9
MOST_AGENTS = 12  # whose coalitions are searched


def _valued(stage: Stage, S: Array) -> str:
    return "" if np.isfinite(stage.values(S)).all() else "what some coalitions have is not finite"


class Shares(LeagueRow):
    """By s_i, the size of what was claimed."""

    name, source = "size-share", "the usual pro-rata split"
    promises: ClassVar[tuple[Promise, ...]] = (
        Promise("equilibrium"),
        Promise("false-name-proof", note="asked of every share"),
    )

    def budget(self, stage: Stage) -> float:
        return 0.5 * float(stage.c @ stage.s_max)

    def scores(self, stage: Stage, held: Array) -> Array:
        """By name, where held[..., k, i] are the points of agent i under name k."""
        return held.sum(axis=-1)

    def divided(self, stage: Stage, held: Array) -> Array:
        scores = np.maximum(self.scores(stage, held), 0.0)
        total = scores.sum(axis=-1, keepdims=True)
        return self.budget(stage) * scores / np.where(total > 0.0, total, 1.0)

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        return self.divided(stage, S[..., None] * np.eye(stage.n))

    def named(self, stage: Stage, reports: Reports, held: Array) -> Array | None:
        return self.divided(stage, held)

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        scores = np.maximum(self.scores(stage, np.diag(s)), 0.0)
        whole = by_agent(stage, scores / max(float(scores.max()), 1e-300), SCORE_UNIT)
        return [("share/1", {"budget": round(self.budget(stage) * 10**6), "scores": whole})]


class LeaveOneOut(Shares):
    """By U(N) - U(N without i)."""

    name, source, measured = "loo-share", "leave-one-out", True

    def evaluations(self, n: int) -> int:
        return n + 1

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or _valued(stage, stage.s_max * (1.0 - np.eye(stage.n)))

    def scores(self, stage: Stage, held: Array) -> Array:
        everyone = held.sum(axis=-2, keepdims=True)
        return stage.values(everyone).sum(axis=-1) - stage.values(everyone - held).sum(axis=-1)


class ShapleyShare(Shares):
    """By the Shapley value of U."""

    name, source, measured = "shapley-share", "Shapley 1953", True

    def evaluations(self, n: int) -> int:
        return int(2**n)

    def suits(self, stage: Stage) -> str:
        many = f"{2**stage.n} coalitions are too many to search" if stage.n > MOST_AGENTS else ""
        return super().suits(stage) or many or _valued(stage, np.zeros(stage.n))

    def scores(self, stage: Stage, held: Array) -> Array:
        masks, weights = subsets(held.shape[-2]), shapley_weights(held.shape[-2])
        return stage.values(masks @ held).sum(axis=-1) @ weights.T


class Agreement(Shares):
    """By correlated agreement on shared unlabelled items, where an agent's labels are right in the part s_i/s_max_i."""

    name, source = "agreement-share", "correlated agreement (Shnayder et al. 2016), recalled; effort is s_i/s_max_i"
    measured = True
    promises = (Promise("equilibrium"),)

    def scores(self, stage: Stage, held: Array) -> Array:
        effort = np.einsum("...ki,i->...k", held, 1.0 / np.maximum(stage.s_max, 1e-300))
        others = effort.sum(axis=-1, keepdims=True) - effort
        return effort * others / max(effort.shape[-1] - 1, 1)

    def named(self, stage: Stage, reports: Reports, held: Array) -> None:
        return None  # the effort of half a name is not defined
