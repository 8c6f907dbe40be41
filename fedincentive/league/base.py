"""What a row of the league is: what it asks, how contributions move, what agents receive, who pays, what is promised.

    asks       the reports that money or contributions hang on, beside s and the updates d
    moves      from reports to contributions: best replies, a rule, or an assignment
    levels     the value each agent receives, at most V_i (a degraded model is a cap)
    pays       payments in floats, for searches; `entries` are the same as ledger entries in exact integers
    promises   what the paper claims, and under which assumptions

The utility of agent i is level_i - c_i + postings_i and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import payments
from ..entry import TREASURY
from ..game.arrays import Array
from ..payments import MINOR, SCALE, quantise
from .stage import Stage, rest

Posting = tuple[str, dict[str, Any]]  # a ledger rule and its inputs


@dataclass(frozen=True, eq=False)
class Reports:
    """What agents say: costs per point, points they need, and how they scale the updates they send."""

    c: Array
    need: Array

    @classmethod
    def honest(cls, stage: Stage) -> Reports:
        return cls(stage.c, needed(stage))

    def lying(self, kind: str, agent: int, value: float) -> Reports:
        return self.each_lying(kind, np.array([agent]), np.array([value])).row(0)

    def each_lying(self, kind: str, agents: NDArray[np.intp], values: Array) -> Reports:
        """Many reports as rows: in row k agent agents[k] says values[k]."""
        rows = {name: np.tile(getattr(self, name), (len(agents), 1)) for name in ("c", "need")}
        rows[kind][np.arange(len(agents)), agents] = values
        return Reports(**rows)

    def row(self, k: int) -> Reports:
        return Reports(self.c[k], self.need[k])


def needed(stage: Stage) -> Array:
    """The points each agent calls enough: half more than it would train on alone, and one; no more than there are."""
    if stage.shared is None:
        return np.full(stage.n, np.nan)
    return np.minimum(1.5 * stage.t_star + 1.0, useful(stage, stage.s_max))


def useful(stage: Stage, S: Array) -> Array:
    """E_i = s_i + spill_i sum_{j != i} s_j."""
    return S + stage.spill * (S.sum(axis=-1, keepdims=True) - S)


@dataclass(frozen=True, eq=False)
class Moves:
    """Where contributions come to rest, and what getting there took."""

    s: Array
    rounds: int
    messages: int


@dataclass(frozen=True)
class Promise:
    """A claim of the row's paper: its name among `claims.CHECKS`, and the assumptions under which it is made."""

    claim: str
    where: tuple[str, ...] = ()  # names among `claims.ASSUMPTIONS`
    note: str = ""


class LeagueRow:
    """Base of all rows: nobody is paid, everybody receives V_i and replies best to the others."""

    name: ClassVar[str]
    source: ClassVar[str]  # whose rule it is, and how it is known: read in code or paper, or recalled (in `--json`)
    asks: ClassVar[tuple[str, ...]] = ()
    chooses: ClassVar[bool] = True  # agents choose s; otherwise it is assigned
    measured: ClassVar[bool] = False  # payments follow what was delivered, whatever was claimed
    pays_d: ClassVar[str] = "none"  # what an update costs its agent: none, relative, groves-d, audited
    promises: ClassVar[tuple[Promise, ...]] = ()

    def evaluations(self, n: int) -> int:
        """How many models the center evaluates in a training round."""
        return 0

    def suits(self, stage: Stage) -> str:
        """Why the row cannot be played on this game, or nothing."""
        return "" if stage.linear else "costs are not linear"

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        """Best replies, one agent after the other, to what the reports make of the payments."""
        first = np.broadcast_to(0.5 * stage.s_max if start is None else start, reports.c.shape)
        s, sweeps = rest(lambda S: self.utilities(stage, reports, S), stage.s_max, first)
        return Moves(s, sweeps, 2 * stage.n * sweeps)

    def levels(self, stage: Stage, reports: Reports, S: Array, T: Array) -> Array:
        """The value received where S is claimed and T delivered."""
        return stage.values(T)

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        return np.zeros(S.shape)

    def settled(self, stage: Stage, s: Array) -> Array:
        """Payments that no choice of s moves."""
        return np.zeros(len(s))

    def utilities(self, stage: Stage, reports: Reports, S: Array, T: Array | None = None) -> Array:
        """level_i - c_i + payment_i where S is claimed and T delivered, the claim unless given."""
        T = S if T is None else T
        paid = self.pays(stage, reports, T if self.measured else S)
        return self.levels(stage, reports, S, T) - stage.costs(T) + paid

    def named(self, stage: Stage, reports: Reports, held: Array) -> Array | None:
        """Payments by name where name k holds held[k, i] of agent i's points; None where the rule does not say."""
        return np.zeros(len(held))

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        return []

    def postings(self, stage: Stage, reports: Reports, s: Array, seed: int) -> tuple[Array, float]:
        """(what each agent is paid, what the treasury pays), from exact ledger entries."""
        paid = dict.fromkeys(stage.game.agents, 0)
        treasury = 0
        for number, (rule, inputs) in enumerate(self.entries(stage, reports, s, seed)):
            payment = payments.by_rule(rule)
            assert payment is not None, rule
            for account, amount in payment.amounts(
                {"rule": rule, "inputs": inputs, "round": number}, {}, MINOR
            ).items():
                if account == TREASURY:
                    treasury -= amount
                else:
                    paid[account] += amount
        return np.array([paid[agent] for agent in stage.game.agents]) / MINOR, treasury / MINOR


def by_agent(stage: Stage, values: Array, scale: int = MINOR) -> dict[str, int]:
    """Whole numbers by agent, as ledger entries hold them."""
    return {agent: quantise(float(value), scale) for agent, value in zip(stage.game.agents, values, strict=True)}


def texts(stage: Stage, values: Array) -> dict[str, str]:
    """Exact rates by agent: the shortest decimals of the floats."""
    return {agent: repr(float(value)) for agent, value in zip(stage.game.agents, values, strict=True)}


def points(stage: Stage, s: Array) -> dict[str, int]:
    return by_agent(stage, s, SCALE)


def compared(phi: Array) -> Array:
    """phi_i - mean_{j != i} phi_j along the last axis."""
    n = phi.shape[-1]
    return (n * phi - phi.sum(axis=-1, keepdims=True)) / (n - 1)
