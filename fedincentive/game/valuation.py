"""What every valuation answers: the benefit v_i(w, s) of each agent, for all agents at once."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from .arrays import Array


class Valuation(ABC):
    """v_i(w, s) for all agents at once.

    A new valuation writes `value`, `slope` and `gradient`; the rest has correct defaults and is overridden where a
    closed form is faster or more is known.
    """

    concave: bool | None = None  # v_i known concave in its own s_i (True), known not to be (False), not known (None)
    concave_alone: bool | None = None  # the same of `alone`
    estimated: bool = False  # values come from training runs and carry a standard error

    @abstractmethod
    def value(self, w: Array, s: Array) -> Array:
        """v_i(w, s), shape (n,)."""

    @abstractmethod
    def slope(self, w: Array, s: Array) -> Array:
        """d v_i / d s_i, shape (n,)."""

    @abstractmethod
    def gradient(self, w: Array, s: Array) -> Array:
        """grad_w v_i(w, s), one row per agent, shape (n, m)."""

    def check(self, n: int, m: int) -> None:  # noqa: B027
        """Raises GameError unless this valuation fits n agents and m parameters."""

    def mean_gradient(self, w: Array, s: Array) -> Array:
        """(1/n) sum_i grad_w v_i, shape (m,); closed forms compute it without the (n, m) matrix."""
        return self.gradient(w, s).mean(axis=0)

    def unilateral(self, w: Array, s: Array, t: Array) -> Array:
        """v_i(w, (t_i, s_-i)) for all i: each agent alone moves to its own t_i; -inf where that is not defined.

        One call of `value` per agent unless overridden.
        """
        out = np.empty(len(s))
        moved = np.array(s, dtype=np.float64)
        for i in range(len(s)):
            moved[i] = t[i]
            out[i] = self.value(w, moved)[i]
            moved[i] = s[i]
        return out

    def tau(self, s_max: Array, w: Array | None = None) -> Array | None:
        """max(0, sup of -d v_i/d s_i) over the box [0, s_max]; at this w, or over every w. None where none is known."""
        return None

    def others(self, w: Array, s: Array, t: Array) -> Array:
        """sum_{j != i} v_j(w, (t_i, s_-i)) for all i: what the others would have if i alone moved to t_i."""
        out = np.empty(len(s))
        moved = np.array(s, dtype=np.float64)
        for i in range(len(s)):
            moved[i] = t[i]
            values = self.value(w, moved)
            out[i] = values.sum() - values[i]
            moved[i] = s[i]
        return out

    def optimum(self, s: Array) -> Array | None:
        """argmax_w sum_i v_i(w, s), or None where it is not known in closed form."""
        return None

    def standard_error(self, w: Array, s: Array) -> Array | None:
        """The standard error of each v_i(w, s) where values are estimated."""
        return None

    def alone(self, t: Array) -> Array | None:
        """max_w v_i(w, (t_i, 0)): agent i by itself on t_i points with its own best model, or None if undefined."""
        return None

    def curvature(self, s: Array) -> tuple[float, float] | None:
        """(nu, M): strong convexity and smoothness in w of f = -(1/n) sum_i v_i at this s, or None."""
        return None
