"""What a rule certifies: (f, kappa)-robust averaging (Allouah et al., 2023), and what looked unusual among the updates.

For every set S of n - f clients, whatever the f others send, the aggregate F is near the mean of S:

    ||F - mean(S)||^2 <= kappa (1 / |S|) sum_{i in S} ||x_i - mean(S)||^2

The smallest kappa any rule can have is f / (n - 2f), so nothing is certified from f = n / 2 on. Clients count alike in
all of it: with weights there is no bound. docs/robustness.md proves each kappa that is printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..settings import Settings
from . import kernel
from .coordinatewise import trim_count
from .rules import Rule, rule
from .tiles import StoredUpdates

FAR = 2.0  # times the middle distance to the result: farther ones are counted as looking adversarial


@dataclass(frozen=True)
class KappaBound:
    """The bound of one rule with n clients of which f may lie; kappa is infinite where nothing is certified.

    >>> print(robustness("trimmed-mean", 20, 2))
    trimmed-mean of 20 clients with f = 2 (10 %): kappa = 0.1406. If 3 lie: no bound. Set to f = 3: kappa = 0.2602.
    """

    rule: str
    n: int
    f: int
    kappa: float

    @property
    def tolerated(self) -> float:
        """The part of the clients that may lie."""
        return self.f / self.n

    def __str__(self) -> str:
        said = f"{self.rule} of {self.n} clients with f = {self.f} ({100 * self.tolerated:.3g} %): {told(self.kappa)}."
        if not math.isfinite(self.kappa):
            return said
        more = kappa(rule(self.rule), self.n, self.f + 1)
        return f"{said} If {self.f + 1} lie: no bound. Set to f = {self.f + 1}: {told(more)}."


def told(value: float) -> str:
    return f"kappa = {value:.4g}" if math.isfinite(value) else "no bound is known"


def robustness(name: str, n: int, f: int) -> KappaBound:
    """The bound that a rule of that name has; see the module for what it says."""
    return KappaBound(name, n, f, kappa(rule(name), n, f))


def of_a_run(chosen: Rule, n: int, settings: Settings) -> str:
    """What a run with n agents that answer certifies by its rule; nothing where the rule withstands nobody."""
    if not chosen.robust:
        return ""
    if settings.share is not None and "share" in chosen.options:
        return (
            f"{chosen.name} by share: agents with at most {100 * settings.share:.4g} % of the weight together cannot "
            "move the model outside the range of the others."
        )
    return str(robustness(chosen.name, n, trim_count(settings.alpha, n)))


def kappa(chosen: Rule, n: int, f: int) -> float:
    """Infinite for rules without a bound, and where f is half of the clients or more."""
    return math.inf if chosen.kappa is None or 2 * f >= n else chosen.kappa(n, f)


@dataclass(frozen=True)
class Suspects:
    """How far each update is from the result, and which look adversarial: not finite, or farther than twice the middle.

    An attacker who stays within the honest spread is not seen this way; kappa says what that costs.
    """

    distances: list[float]
    suspects: list[int]

    def __str__(self) -> str:
        if not self.suspects:
            return "No update lies more than twice as far from the result as the middle one."
        middle = float(np.median([d for d in self.distances if math.isfinite(d)] or [math.nan]))
        return (
            f"{len(self.suspects)} updates look adversarial: more than twice as far from the result as the middle "
            f"distance, {middle:.4g}."
        )


def evidence(updates: Sequence[Any], result: Any) -> Suspects:
    """Compares updates (arrays, mappings or files) with a result of the same form; files are read once.

    >>> evidence([{"w": np.float64([v])} for v in (1.0, 2.0, 3.0, 50.0)], {"w": np.float64([1.5])}).suspects
    [3]
    """
    n, total = len(updates), np.zeros(len(updates))
    plain = [item if not isinstance(item, np.ndarray) else {"values": item} for item in [*updates, result]]
    with StoredUpdates(plain).batch() as batch:
        for piece in batch._pieces():
            center = piece.select([n]).reduce(wide=True)[0]
            total += kernel.squared_distances(piece.select(range(n)), center)
    distances = np.sqrt(total)
    finite = distances[np.isfinite(distances)]
    limit = FAR * float(np.median(finite)) if finite.size else 0.0
    suspects = [i for i in range(n) if not np.isfinite(distances[i]) or distances[i] > limit]
    return Suspects([float(d) for d in distances], suspects)
