"""The models that coalitions of updates make, and the weights by which Shapley's value counts them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SettingError
from ..messages import Update

Array = NDArray[np.float64]
PIECE = 1 << 15
Utility = Callable[[Update], float]  # of a model, e.g. minus the loss on a validation set


class Coalitions:
    """w + step (weighted mean of the members' updates), for any members; nobody leaves w as it is."""

    def __init__(
        self, w: Update, updates: Mapping[str, Update], *, step: float = 1.0, weights: Mapping[str, float] | None = None
    ) -> None:
        self.agents = tuple(sorted(updates))
        self.w, self.updates, self.step = w, updates, step
        self.weights = {agent: 1.0 if weights is None else float(weights[agent]) for agent in self.agents}
        for agent in self.agents:
            if not (np.isfinite(self.weights[agent]) and self.weights[agent] >= 0.0):
                raise SettingError(f"The weight of {agent!r} is {self.weights[agent]!r}: it must be 0 or more.")
        self._moving = tuple(name for name, array in w.items() if np.asarray(array).dtype.kind == "f")

    @property
    def n(self) -> int:
        return len(self.agents)

    def model(self, members: Collection[str]) -> Update:
        """The members' own model, in arrays of its own."""
        totals, out = self._arrays(np.float64), self._arrays(None)
        for agent in sorted(members):
            self._change(totals, agent, 1.0)
        return self._model(totals, out, sum(self.weights[agent] for agent in members))

    def walk(self) -> Iterator[tuple[int, Update]]:
        """(mask, model) of all 2^n coalitions in the order of a Gray code: one update comes or goes at a time.

        The model's arrays are used again for the next coalition.
        """
        totals, out, mask = self._arrays(np.float64), self._arrays(None), 0
        yield mask, self._model(totals, out, 0.0)
        for k in range(1, 2**self.n):
            i = (k & -k).bit_length() - 1
            mask ^= 1 << i
            self._change(totals, self.agents[i], 1.0 if mask >> i & 1 else -1.0)
            weight = sum(self.weights[a] for j, a in enumerate(self.agents) if mask >> j & 1)
            yield mask, self._model(totals, out, weight)

    def _arrays(self, kind: type | None) -> dict[str, NDArray[Any]]:
        return {name: np.zeros(np.shape(self.w[name]), dtype=kind or self.w[name].dtype) for name in self._moving}

    def _change(self, totals: Mapping[str, NDArray[Any]], agent: str, sign: float) -> None:
        weight = sign * self.weights[agent]
        for name, total in totals.items():
            flat, update = total.reshape(-1), np.ravel(self.updates[agent][name])
            for part in _parts(flat.size):
                if abs(weight) == 1.0:
                    (np.add if weight > 0.0 else np.subtract)(flat[part], update[part], out=flat[part])
                else:
                    flat[part] += weight * update[part].astype(np.float64)

    def _model(self, totals: Mapping[str, NDArray[Any]], out: Mapping[str, NDArray[Any]], weight: float) -> Update:
        if weight <= 0.0:
            return self.w
        for name, total in totals.items():
            flat, made, start = total.reshape(-1), out[name].reshape(-1), np.ravel(self.w[name])
            for part in _parts(flat.size):
                made[part] = flat[part] * (self.step / weight) + start[part]
        return {**self.w, **out}


def _parts(size: int) -> Iterator[slice]:
    """Pieces that stay in the processor's cache from one step to the next."""
    return (slice(k, k + PIECE) for k in range(0, size, PIECE))


@lru_cache(maxsize=4)
def subsets(n: int) -> Array:
    """(2^n, n): row m has a 1 for every member of the coalition with that mask."""
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.float64)


@lru_cache(maxsize=4)
def shapley_weights(n: int) -> Array:
    """(n, 2^n): phi = weights @ U for utilities by mask; a coalition with i counts 1/(n C(n-1, |C|-1)).

    >>> shapley_weights(2) @ np.array([0.0, 1.0, 2.0, 5.0])
    array([2., 3.])
    """
    members = subsets(n)
    size = members.sum(axis=1).astype(int)
    inside = np.array([0.0] + [1.0 / (n * comb(n - 1, k - 1)) for k in range(1, n + 1)])
    outside = np.array([1.0 / (n * comb(n - 1, k)) for k in range(n)] + [0.0])
    return np.where(members == 1.0, inside[size][:, None], -outside[size][:, None]).T
