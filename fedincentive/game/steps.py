"""Step sizes and round counts: Theorem 1 (the joint dynamics) and Theorem 2 (two phases)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import GameError
from .arrays import Array
from .dynamics import check_steps
from .games import Game
from .valuations import Quadratic


@dataclass(frozen=True)
class Constants:
    """The constants of Theorem 1's assumptions.

    G_ij = d^2 u_i/d s_j d s_i with G + lambda_s I negative semi-definite and |G_ij| <= bound_s (the paper's lambda, L);
    the mean Hessian of v in w likewise with lambda_w, bound_w; ||H||_op <= cross_s (P) for d^2 u_i/d w d s_i, and
    cross_w (P~) for (1/n) sum_i d^2 v_i / d s_j d w.
    """

    n: int
    m: int
    lambda_s: float
    bound_s: float
    lambda_w: float
    bound_w: float
    cross_s: float
    cross_w: float


@dataclass(frozen=True)
class StepSizes:
    """What Theorem 1 promises: ||g|| + ||g~|| shrinks at least by the factor W in every round.

    `gamma_limit` and `eta_limit` are exact for W1 < 1 and W2 < 1; the paper prints half of them.
    """

    gamma: float
    eta: float
    gamma_limit: float
    eta_limit: float
    w1: float
    w2: float

    @property
    def w(self) -> float:
        return max(self.w1, self.w2)

    def rounds(self, start: float, eps: float) -> int:
        """T0: rounds after which ||g|| + ||g~|| < eps, from `start` = its value at (w0, s0)."""
        if eps <= 0.0:
            raise GameError(f"eps must be greater than 0, not {eps!r}.")
        return 0 if start < eps else math.floor(math.log(start / eps) / math.log(1.0 / self.w)) + 1


def constants(game: Game) -> Constants:
    """The constants of a quadratic game, exactly; other games have none that hold for every w and s."""
    bend = game.cost.bend(game.s_max)
    if not isinstance(game.valuation, Quadratic) or bend is None:
        raise GameError(
            "Theorem 1's constants are known for quadratic valuations with costs c s^p, p = 1 or p >= 2, only. "
            "For other games choose small step sizes, or use 2p-upbred, whose step sizes need no such constants."
        )
    within, across = game.valuation.second_derivatives()
    symmetric = (within + within.T) / 2.0
    largest = np.abs(within)
    largest[np.diag_indices(game.n)] = np.maximum(
        np.abs(np.diagonal(within) - bend[0]), np.abs(np.diagonal(within) - bend[1])
    )
    cross = float(np.linalg.norm(across, 2))
    return Constants(
        n=game.n,
        m=game.m,
        lambda_s=-float(np.linalg.eigvalsh(symmetric - np.diag(bend[0]))[-1]),
        bound_s=float(largest.max()),
        lambda_w=float(np.linalg.eigvalsh(game.valuation.stiffness)[0]),
        bound_w=float(np.abs(game.valuation.stiffness).max()),
        cross_s=cross,
        cross_w=cross / game.n,
    )


def theorem1(known: Constants, *, gamma: float | None = None, eta: float | None = None) -> StepSizes:
    """Admissible step sizes, the fastest unless given, and their contraction factors

        W1 = sqrt(1 + gamma^2 n^2 L^2 - 2 gamma lambda) + P~ gamma,    W2 likewise in eta and w.

    The main text prints W1 as a product, which does not bound the dynamics; the proof's sum does.

    >>> found = theorem1(Constants(2, 1, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0))
    >>> found.gamma, found.gamma_limit
    (0.25, 0.5)
    """
    gamma_limit = _limit("gamma", "lambda", known.lambda_s, "L", known.bound_s, known.n, "P~", known.cross_w)
    eta_limit = _limit("eta", "lambda~", known.lambda_w, "L~", known.bound_w, known.m, "P", known.cross_s)
    gamma = _best(known.lambda_s, known.bound_s * known.n, known.cross_w) if gamma is None else gamma
    eta = _best(known.lambda_w, known.bound_w * known.m, known.cross_s) if eta is None else eta
    check_steps(gamma=gamma, eta=eta)
    for name, step, limit in (("gamma", gamma, gamma_limit), ("eta", eta, eta_limit)):
        if step >= limit:
            raise GameError(f"{name} = {step:g} does not contract: it must be below {limit:.6g}.")
    w1 = factor(gamma, known.lambda_s, known.bound_s * known.n, known.cross_w)
    w2 = factor(eta, known.lambda_w, known.bound_w * known.m, known.cross_s)
    return StepSizes(gamma, eta, gamma_limit, eta_limit, w1, w2)


def factor(step: float, strength: float, bound: float, cross: float) -> float:
    """sqrt(1 + step^2 bound^2 - 2 step strength) + cross step, the shape of both W1 and W2."""
    return math.sqrt(max(0.0, 1.0 + (step * bound) ** 2 - 2.0 * step * strength)) + cross * step


def _limit(
    step: str, strong: str, strength: float, bounded: str, entry: float, size: int, crossed: str, cross: float
) -> float:
    """The exact end of the contracting steps, min(1/P~, 2 (lambda - P~) / (n^2 L^2 - P~^2)), or a refusal."""
    if strength > entry * (1.0 + 1e-12):
        raise GameError(
            f"{strong} = {strength:g} with {bounded} = {entry:g} is impossible: every diagonal entry of the matrix is "
            f"at least {strong} and at most {bounded} in size. Check the two numbers."
        )
    if strength <= cross:
        raise GameError(
            f"No {step} is known to contract: {strong} = {strength:g} must exceed {crossed} = {cross:g}. "
            "Use 2p-upbred, whose step sizes need no such condition."
        )
    bound = entry * size
    inside = 2.0 * (strength - cross) / (bound**2 - cross**2)
    return inside if cross == 0.0 else min(1.0 / cross, inside)


def _best(strength: float, bound: float, cross: float) -> float:
    """The step with the smallest factor: the root of its derivative."""
    square = bound**2
    pull = cross * math.sqrt(max(0.0, square - strength**2) / (square - cross**2))
    return (strength - pull) / square


def kappa(game: Game, *, gamma: float, beta: float, w: Array | None = None) -> float:
    """max_i (s_max_i - s0_i) / (gamma (beta - tau - zeta)): phase 1 ends within ceil(kappa) rounds (Theorem 2).

    tau is taken at the w that phase 1 freezes (w0).
    """
    check_steps(gamma=gamma)
    zeta, tau = game.zeta, game.tau_at(game.w0 if w is None else w)
    if zeta is None or tau is None:
        what = "the costs' slopes (zeta)" if zeta is None else "the valuations' slopes (tau)"
        raise GameError(
            f"No bound of {what} is known for this game, so phase 1 has no known length: set a round limit."
        )
    if beta <= zeta + tau:
        raise GameError(
            f"beta = {beta:g} is not above zeta + tau = {zeta + tau:g}: phase 1 may never end. "
            f"Raise beta above {zeta + tau:g}, or lower the costs of the agents near zeta = {zeta:g}."
        )
    return float(np.max(game.s_max - game.s0)) / (gamma * (beta - tau - zeta))


@dataclass(frozen=True)
class Rate:
    """Phase 2 at s_max: with this eta the named distance shrinks at least by `factor` in every round."""

    eta: float
    factor: float
    start: float  # the distance at w0

    def rounds(self, eps: float) -> int:
        """Rounds after which the distance is below eps."""
        if eps <= 0.0:
            raise GameError(f"eps must be greater than 0, not {eps!r}.")
        if self.start < eps:
            return 0
        return 1 if self.factor <= 0.0 else math.floor(math.log(self.start / eps) / -math.log(self.factor)) + 1


def welfare_rate(game: Game) -> Rate:
    """Theorem 2: with eta = 1/M, f(w) - f(w_OPT) shrinks by 1 - nu/M, f = -(1/n) sum_i v_i(w, s_max)."""
    nu, smooth, best = _phase_two(game)
    gap = (game.welfare(best, game.s_max) - game.welfare(game.w0, game.s_max)) / game.n
    return Rate(1.0 / smooth, 1.0 - nu / smooth, max(0.0, gap))


def iterate_rate(game: Game) -> Rate:
    """Its corollary: with eta = 2/(M + nu), ||w - w_OPT|| shrinks by (1 - nu/M)/(1 + nu/M)."""
    nu, smooth, best = _phase_two(game)
    ratio = nu / smooth
    return Rate(2.0 / (smooth + nu), (1.0 - ratio) / (1.0 + ratio), float(np.linalg.norm(game.w0 - best)))


def _phase_two(game: Game) -> tuple[float, float, Array]:
    bounds, best = game.valuation.curvature(game.s_max), game.optimum()
    if bounds is None or best is None or bounds[0] <= 0.0:
        raise GameError(
            "Theorem 2's rate needs a welfare that is smooth and strongly concave in w with known nu, M and w_OPT; "
            "this valuation does not give them."
        )
    return *bounds, best
