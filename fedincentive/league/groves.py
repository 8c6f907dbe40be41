"""Costs told to a planner who assigns the efficient s*: Clarke's payments, and AGV, which balances them in expectation.

    s* = argmax sum_i (V_i - c^_i s_i),   W_j = V_j - c^_j s_j
    clarke:  p_i = sum_{j != i} W_j(s*) - max_{s, s_i = 0} sum_{j != i} W_j(s);   the treasury pays
    agv:     p_i = xi_i - mean_{j != i} xi_j,   xi_i = E[sum_{j != i} W_j(s*(c^_i, c_-i))] over the others' costs c_-i

Values are known here and only costs are asked, so Clarke's rule is truthful whatever the others say; AGV is so in
expectation over the prior, here eight draws of the games' own: c ~ U(0, 0.01).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .. import draws
from ..game.arrays import Array
from .base import LeagueRow, Moves, Posting, Promise, Reports, by_agent, compared
from .lies import SCALES
from .stage import CLOSE, SWEEPS, Stage

PRIOR, DRAWS = 0.01, 8
HALVINGS = 24


def efficient(stage: Stage, c: Array, without: int | None = None) -> Array:
    """argmax sum_j (V_j - c_j s_j) for every row of costs, `without` an agent's points and value: one s_i after the
    other goes where the values' slope meets its cost."""
    curve, reach = stage.shared.curve, np.where(np.eye(stage.n, dtype=bool), 1.0, stage.spill)  # type: ignore[union-attr]
    counted = np.arange(stage.n) != without
    s = np.broadcast_to(np.where(counted, 0.5 * stage.s_max, 0.0), c.shape).copy()
    for _ in range(SWEEPS):
        before = s.copy()
        for i in np.flatnonzero(counted):
            rest = s @ reach - s[..., i, None] * reach[i]
            low, high = np.zeros(s.shape[:-1]), np.full(s.shape[:-1], stage.s_max[i])
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                slope = (counted * reach[i] * curve.slope(rest + middle[..., None] * reach[i])).sum(axis=-1)
                low, high = np.where(slope > c[..., i], middle, low), np.where(slope > c[..., i], high, middle)
            s[..., i] = np.where(low == 0.0, 0.0, high)
        if np.all(np.abs(s - before) <= CLOSE * np.maximum(stage.s_max, 1e-12)):
            break
    return s


class _Told(LeagueRow):
    asks, chooses = ("c",), False

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or ("" if stage.shared is not None else "needs a data-value game")

    def moves(self, stage: Stage, reports: Reports, start: Array | None = None) -> Moves:
        return Moves(efficient(stage, reports.c), 1, 2 * stage.n)

    def named(self, stage: Stage, reports: Reports, held: Array) -> None:
        return None  # a second name's cost is a word of its own


class Clarke(_Told):
    name, source = "clarke", "Clarke 1971, textbook form, on costs"
    promises = (
        Promise("truthful"),
        Promise("maximal welfare"),
        Promise("budget balanced", note="not claimed; asked of all who are paid"),
    )

    @staticmethod
    @lru_cache(maxsize=4)
    def net(stage: Stage, reports: Reports) -> tuple[Array, Array]:
        """(W_j at s*, what the others could have without i's points), for every row of reports."""
        s, without = efficient(stage, reports.c), np.empty(reports.c.shape)
        for i in range(stage.n):
            theirs = efficient(stage, reports.c, without=i)
            without[..., i] = np.delete(stage.values(theirs) - reports.c * theirs, i, axis=-1).sum(axis=-1)
        return stage.values(s) - reports.c * s, without

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        net, without = self.net(stage, reports)
        return np.broadcast_to(net.sum(axis=-1, keepdims=True) - net - without, S.shape)

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        net, without = self.net(stage, reports)
        values, pivots = by_agent(stage, net), by_agent(stage, without)
        fixed = {"h": "clarke", "phi": "none", "fine": 0, "tolerance": 0, "previous": {}}
        return [("truthful/1", {"valuations": values, "pivots": pivots, **fixed})]


class AGV(_Told):
    name, source = "agv", "d'Aspremont and Gerard-Varet 1979, Arrow 1979; on costs, with the games' own prior"
    promises = (
        Promise("truthful in expectation", ("prior given",), "over independent costs of the others"),
        Promise("maximal welfare"),
        Promise("budget balanced"),
        Promise("individually rational", note="not claimed; asked of all"),
    )

    def suits(self, stage: Stage) -> str:
        return super().suits(stage) or ("" if prior_known(stage) else "no prior of the costs is known")

    @staticmethod
    @lru_cache(maxsize=4)
    def _memory(stage: Stage) -> dict[tuple[int, float], tuple[float, float, float]]:
        return {}

    def expected(self, stage: Stage, asked: list[tuple[int, float]]) -> list[tuple[float, float, float]]:
        """For agents with told costs: (xi, the mean of the own V_i, the mean of the own s_i) over the prior's draws."""
        known = self._memory(stage)
        new = sorted(set(asked) - set(known))
        if new:
            rng = draws.generator(0, "agv")
            order = np.stack([rng.permutation(DRAWS) for _ in range(stage.n)], axis=1)
            drawn = PRIOR * (order + rng.uniform(size=order.shape)) / DRAWS  # one in each eighth of the prior
            c = np.tile(drawn, (len(new), 1, 1))
            for k, (i, cost) in enumerate(new):
                c[k, :, i] = cost
            s = efficient(stage, c)
            values = stage.values(s)
            net = values - c * s
            for k, (i, cost) in enumerate(new):
                others = float((net[k].sum(axis=-1) - net[k, :, i]).mean())
                known[i, cost] = others, float(values[k, :, i].mean()), float(s[k, :, i].mean())
        return [known[one] for one in asked]

    def xi(self, stage: Stage, c: Array) -> Array:
        pairs = [(i, float(cost)) for row in c.reshape(-1, stage.n) for i, cost in enumerate(row)]
        return np.array([others for others, _, _ in self.expected(stage, pairs)]).reshape(c.shape)

    def pays(self, stage: Stage, reports: Reports, S: Array) -> Array:
        return np.broadcast_to(compared(self.xi(stage, reports.c)), S.shape)

    def entries(self, stage: Stage, reports: Reports, s: Array, seed: int) -> list[Posting]:
        rates = dict.fromkeys(stage.game.agents, "1")
        xi = by_agent(stage, self.xi(stage, reports.c), 10**6)
        return [("relative/1", {"rates": rates, "amounts": xi, "unit": 10**6})]

    def interim(self, stage: Stage) -> tuple[float, int, float]:
        """(gain, agent, told cost): the most that an agent gains by another cost before it knows the others'."""
        found = []
        for i, c in enumerate(stage.c):
            told = [(i, float(scale * c)) for scale in (1.0, *SCALES)]
            u = [value - c * s + xi for xi, value, s in self.expected(stage, told)]
            k = int(np.argmax(u))
            found.append((u[k] - u[0], i, told[k][1]))
        return max(found)


def prior_known(stage: Stage) -> bool:
    return stage.label.startswith(("--family data-value", "--family common"))
