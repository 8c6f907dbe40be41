"""Shapley values of a round's updates: exact, GTG, leave-one-out, and CGSV, which needs no evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import draws
from ..checks import shown
from ..errors import SettingError
from ..messages import Update
from .coalitions import Coalitions, Utility, shapley_weights

MOST_EXACT = 16  # agents: 65,536 models
NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Contributions:
    """What each agent's update was worth; `spread` is half of a 95 % interval, 0 where the value is exact."""

    values: dict[str, float]
    spread: dict[str, float] = field(default_factory=dict)
    evaluations: int = 0
    orders: int = 0  # of agents that were drawn

    def __post_init__(self) -> None:
        object.__setattr__(self, "spread", self.spread or dict.fromkeys(self.values, 0.0))


class _Counted:
    """The utility of coalitions by mask, each evaluated once."""

    def __init__(self, coalitions: Coalitions, utility: Utility) -> None:
        self.coalitions, self.utility = coalitions, utility
        self.known: dict[int, float] = {}

    def __call__(self, mask: int) -> float:
        if mask not in self.known:
            members = [agent for i, agent in enumerate(self.coalitions.agents) if mask >> i & 1]
            self.known[mask] = finite(self.utility(self.coalitions.model(members)))
        return self.known[mask]


def exact(coalitions: Coalitions, utility: Utility) -> Contributions:
    """phi_i = mean over all orders of U(before i and i) - U(before i), by one walk over all 2^n coalitions."""
    n = coalitions.n
    if n > MOST_EXACT:
        raise SettingError(f"contribution: exact evaluates 2^n models, too many for {n} agents: use gtg, loo or cgsv.")
    u = np.empty(2**n)
    for mask, model in coalitions.walk():
        u[mask] = finite(utility(model))
    values = shapley_weights(n) @ u if n else np.zeros(0)
    return Contributions(_by(coalitions, values), evaluations=2**n)


def loo(coalitions: Coalitions, utility: Utility) -> Contributions:
    """U(N) - U(N without i)."""
    u, everyone = _Counted(coalitions, utility), (1 << coalitions.n) - 1
    values = np.array([u(everyone) - u(everyone ^ 1 << i) for i in range(coalitions.n)])
    return Contributions(_by(coalitions, values), evaluations=len(u.known))


def gtg(
    coalitions: Coalitions,
    utility: Utility,
    *,
    skip: float = 0.01,
    cut: float = 0.001,
    most: int = 500,
    tolerance: float = 0.05,
    seed: int = 0,
) -> Contributions:
    """GTG-Shapley (Liu et al. 2022): random orders, each led by another agent, cut once U is within `cut` of U(N).

    A round that changes U by at most `skip` is worth nothing to anyone. After 30 orders it stops when the last ten
    running means agree to `tolerance`, at `most` orders in any case. `skip` and `cut` are in units of U. Where every
    coalition was evaluated on the way, the values are exact.
    """
    n, u = coalitions.n, _Counted(coalitions, utility)
    everyone = (1 << n) - 1
    if n == 0 or abs(u(everyone) - u(0)) <= skip:
        return Contributions(_by(coalitions, np.zeros(n)), evaluations=len(u.known))
    rng = draws.generator(seed, "gtg")
    total, squares, means, orders = np.zeros(n), np.zeros(n), [], 0
    while orders < most:
        lead = orders % n
        order = [lead, *rng.permutation([i for i in range(n) if i != lead])]
        added, mask, before = np.zeros(n), 0, u(0)
        for i in order:
            if mask and abs(u(everyone) - before) < cut:
                break
            mask |= 1 << int(i)
            after = u(mask)
            added[i], before = after - before, after
        total, squares, orders = total + added, squares + added**2, orders + 1
        means.append(total / orders)
        if len(u.known) == 2**n and n <= MOST_EXACT:  # nothing is left to estimate
            values = shapley_weights(n) @ np.array([u.known[mask] for mask in range(2**n)])
            return Contributions(_by(coalitions, values), evaluations=2**n, orders=orders)
        if orders > 30 and orders % n == 0 and _agree(means[-10:], tolerance):
            break
    mean = total / orders
    variance = np.maximum(squares / orders - mean**2, 0.0)
    spread = NORMAL_95 * np.sqrt(variance / max(orders - 1, 1))
    return Contributions(_by(coalitions, mean), _by(coalitions, spread), len(u.known), orders)


def _agree(means: list[np.ndarray], tolerance: float) -> bool:
    """Whether each of these means differs from the last one by at most this part, on the mean over agents."""
    last = np.stack(means)
    change = np.abs(last - last[-1]) / np.maximum(np.abs(last[-1]), 1e-12)
    return bool(change.mean(axis=1).max() <= tolerance)


def cgsv(
    updates: Mapping[str, Update], weights: Mapping[str, float] | None = None, *, keep: float = 0.95
) -> tuple[Contributions, dict[str, float]]:
    """CGSV (Xu et al. 2021): cos(u_i, sum_j r_j u_j) with u_i = d_i/|d_i|, and the weights r of the next round.

    r <- keep r + (1 - keep) cosine, no less than 0, scaled to sum 1; 1/n in the first round.
    """
    agents = tuple(sorted(updates))
    r = {agent: (weights or {}).get(agent, 1.0 / max(len(agents), 1)) for agent in agents}
    unit: dict[str, np.ndarray] = {}
    for agent in agents:
        flat = np.concatenate([np.asarray(a, dtype=np.float64).ravel() for a in updates[agent].values()])
        length = float(np.linalg.norm(flat))
        unit[agent] = flat / length if length > 0.0 else flat
    if not agents:
        return Contributions({}), {}
    together = sum((r[agent] * unit[agent] for agent in agents), start=np.zeros_like(unit[agents[0]]))
    length = float(np.linalg.norm(together))
    values = {agent: float(unit[agent] @ together) / length if length > 0.0 else 0.0 for agent in agents}
    after = {agent: max(keep * r[agent] + (1.0 - keep) * values[agent], 0.0) for agent in agents}
    total = sum(after.values())
    merged = {**(weights or {}), **({a: x / total for a, x in after.items()} if total > 0.0 else r)}
    return Contributions(values), merged


def _by(coalitions: Coalitions, values: np.ndarray) -> dict[str, float]:
    return {agent: float(value) for agent, value in zip(coalitions.agents, values, strict=True)}


def finite(value: Any) -> float:
    """What a utility said of a model, which may be anything: a function of the user's."""
    try:
        number = float("nan" if isinstance(value, (str, bytes)) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is torch's
        number = float("nan")
    if not np.isfinite(number):
        raise SettingError(f"The utility of a model is {shown(value)}: a finite number is needed; cap the loss.")
    return number


METHODS: dict[str, Callable[..., Contributions]] = {"exact": exact, "gtg": gtg, "loo": loo}
