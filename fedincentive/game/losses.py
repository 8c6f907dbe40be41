"""The valuation of real training: v_i = value_per_nat (r_i - L_i(w)), L_i the loss on agent i's held-out data.

No framework is imported here: the losses and the training round are callables of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import GameError
from .arrays import Array, shaped, vector
from .valuation import Valuation


@dataclass(frozen=True, eq=False)
class LossValuation(Valuation):
    """v_i(w, s) = value_per_nat (r_i - min(L_i(w'), cap)), w' the model after one round from w with contributions s.

    At a fixed w the loss ignores s, so a dependence on s needs `train(w, s, draw)`, one round of training; `draws`
    rounds are averaged and give the standard error. Without `train`, w' = w and every slope in s is 0. `losses(w)`
    returns one held-out loss per agent, in nats. Cross-entropy is unbounded, hence `cap`.

    >>> held_out = LossValuation(lambda w: np.array([0.5, 9.0]), reference=np.log(10), cap=5.0)
    >>> held_out.value(np.zeros(1), np.zeros(2)).round(3)
    array([ 1.803, -2.697])
    """

    losses: Callable[[Array], Array]
    reference: Array
    cap: float
    value_per_nat: Array = 1.0  # type: ignore[assignment]
    train: Callable[[Array, Array, int], Array] | None = None
    gradient_of: Callable[[Array, Array], Array] | None = None
    draws: int = 1
    delta: float = 1.0  # points by which the counterfactual slope moves s_i
    s_max: Array | None = None  # where the counterfactual looks backwards instead

    def __post_init__(self) -> None:
        object.__setattr__(self, "reference", vector("reference", self.reference))
        object.__setattr__(self, "value_per_nat", vector("value_per_nat", self.value_per_nat, low=0.0))
        for name in ("cap", "delta"):
            vector(name, getattr(self, name), above=0.0)
        if self.draws < 1:
            raise GameError(f"draws must be at least 1, not {self.draws}.")

    @property
    def estimated(self) -> bool:  # type: ignore[override]
        return self.train is not None

    def check(self, n: int, m: int) -> None:
        shaped("reference", self.reference, (), (n,))
        shaped("value_per_nat", self.value_per_nat, (), (n,))

    def value(self, w: Array, s: Array) -> Array:
        return self._drawn(w, s).mean(axis=0)

    def standard_error(self, w: Array, s: Array) -> Array | None:
        if self.train is None or self.draws < 2:
            return None
        return self._drawn(w, s).std(axis=0, ddof=1) / np.sqrt(self.draws)

    def slope(self, w: Array, s: Array) -> Array:
        """Counterfactual: the change of v_i per point when i alone trains on delta points more (or fewer, at s_max)."""
        if self.train is None:
            return np.zeros(np.shape(s))
        forward = np.ones(np.shape(s), dtype=bool) if self.s_max is None else s + self.delta <= self.s_max
        moved = np.where(forward, s + self.delta, np.maximum(s - self.delta, 0.0))
        width = np.where(moved == s, 1.0, moved - s)
        return (self.unilateral(w, s, moved) - self.value(w, s)) / width

    def gradient(self, w: Array, s: Array) -> Array:
        if self.gradient_of is None:
            raise GameError("This loss-based valuation was given no gradient in w: pass gradient_of(w, s).")
        return np.asarray(self.gradient_of(w, s), dtype=np.float64)

    def _drawn(self, w: Array, s: Array) -> Array:
        """One row of values per draw; draw k is the same round in every call, so differences share their noise."""
        if self.train is None:
            return self._worth(w)[None]
        return np.stack([self._worth(self.train(w, s, draw)) for draw in range(self.draws)])

    def _worth(self, w: Array) -> Array:
        loss = np.asarray(self.losses(w), dtype=np.float64)
        if np.isnan(loss).any():
            raise GameError(f"The held-out loss of agent {int(np.flatnonzero(np.isnan(loss))[0])} is NaN.")
        return self.value_per_nat * (self.reference - np.minimum(loss, self.cap))
