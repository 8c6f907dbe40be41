"""Random games: for tests, sweeps and sizing runs before there is data."""

from __future__ import annotations

import numpy as np

from ..errors import GameError
from .costs import LinearCost
from .games import Game
from .valuations import DataValue, PowerLaw, Quadratic


def names(n: int) -> tuple[str, ...]:
    """agent-1, agent-2, ... with enough zeros that they sort in order."""
    width = len(str(n))
    return tuple(f"agent-{i:0{width}d}" for i in range(1, n + 1))


def random_quadratic(seed: int, n: int, m: int, *, contracting: bool = True) -> Game:
    """A quadratic game with linear costs; a `contracting` one satisfies Theorem 1 (lambda > P~, lambda~ > P).

    >>> from fedincentive.game.steps import constants, theorem1
    >>> theorem1(constants(random_quadratic(3, n=4, m=2))).w < 1.0
    True
    """
    if n < 1 or m < 1:
        raise GameError(f"A random game needs at least one agent and one parameter, not n = {n}, m = {m}.")
    rng = np.random.default_rng(seed)
    curvature = rng.uniform(0.5, 2.0, n) if contracting else rng.uniform(-1.0, 2.0, n)
    interaction = rng.uniform(-1.0, 1.0, (n, n)) * rng.uniform(0.0, 1.0)
    np.fill_diagonal(interaction, 0.0)
    factors = rng.normal(size=(m, m))
    stiffness = factors @ factors.T / m + rng.uniform(0.3, 1.0) * np.eye(m)
    coupling = rng.normal(size=(n, m))
    if contracting:
        bend = np.linalg.norm((interaction + interaction.T) / 2.0, 2)
        interaction *= rng.uniform(0.0, 0.9) * curvature.min() / max(bend, 1e-12)
        strength = -np.linalg.eigvalsh((interaction + interaction.T) / 2.0 - np.diag(curvature))[-1]
        room = min(n * strength, np.linalg.eigvalsh(stiffness)[0])
        coupling *= rng.uniform(0.0, 0.9) * room / np.linalg.norm(coupling, 2)
    s_max = rng.uniform(0.5, 5.0, n)
    valuation = Quadratic(
        a=rng.normal(size=n),
        b=rng.normal(size=n) * 2.0,
        k=curvature,
        x=rng.normal(size=(n, m)),
        stiffness=stiffness,
        interaction=interaction,
        coupling=coupling,
    )
    return Game(
        names(n), valuation, LinearCost(rng.uniform(0.0, 1.0, n)), s_max, rng.uniform(0.0, s_max), rng.normal(size=m)
    )


def random_data_value(seed: int, n: int, m: int = 1) -> Game:
    """Agents with accuracy curves over shared data and linear costs; cheap enough for a hundred thousand agents."""
    if n < 1 or m < 1:
        raise GameError(f"A random game needs at least one agent and one parameter, not n = {n}, m = {m}.")
    rng = np.random.default_rng(seed)
    s_max = rng.uniform(1.0, 100.0, n)
    curve = PowerLaw(
        a=rng.uniform(1.0, 2.0, n), b=rng.uniform(0.5, 1.0, n), power=rng.uniform(0.3, 1.0, n), prior=np.ones(n)
    )
    valuation = DataValue(
        curve, x=rng.normal(size=(n, m)), fit=rng.uniform(0.1, 1.0, n), spill=rng.uniform(0.0, 1.0, n)
    )
    cost = LinearCost(rng.uniform(0.0, 0.01, n))
    return Game(names(n), valuation, cost, s_max, s_max * rng.uniform(1.0 / 3.0, 2.0 / 3.0, n), np.zeros(m))
