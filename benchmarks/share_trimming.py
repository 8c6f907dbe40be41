"""Trimming by data share in a consortium of unequal sites: what an attacker with 0.6 % moves, and what it costs.

    python benchmarks/share_trimming.py [--seeds 20] [--shares 0.01 0.05 0.1 0.2]

Nine sites hold 51.7, 18, 12, 7, 5, 3, 1.5, 1.2 and 0.6 % of the points. A site's update is the truth (0, in 200
coordinates) and its noise; the model of the noise is one of

    points   normal, variance 1/points: what the mean of a site's points has
    heavy    Student's t with 3 degrees of freedom, scaled the same way
    sites    "points", and each site's own truth at distance N(0, s^2), s the deviation of the middle site: sites differ
    equal    normal, the same variance at every site: points do not matter

The smallest site sends 10^6 in every coordinate. `moved` is how far that moves the trimmed mean over how far it moves
norm clipping at the median norm (1 or less: the attacker has no more from it); `error` is the error without an attack
over that of the weighted mean. Both are medians over seeds of ratios of root mean squares over 20 rounds, with the
smallest and the largest. cap 0.5 throughout: the largest that leaves nobody with more than half.
"""

from __future__ import annotations

import argparse

import numpy as np

from fedincentive.aggregation import norm_clipping, trimmed_mean, weighted_mean

SITES = np.array([517, 180, 120, 70, 50, 30, 15, 12, 6])
VALUES, ROUNDS = 200, 20  # chosen before the first run, as are models and shares


def noise(model: str, rng: np.random.Generator) -> np.ndarray:
    deviations = 1 / np.sqrt(SITES[:, None])
    drawn = rng.standard_normal((len(SITES), VALUES))
    if model == "heavy":
        return rng.standard_t(3, size=drawn.shape) * deviations
    if model == "sites":
        return drawn * deviations + rng.standard_normal(drawn.shape) / np.sqrt(np.median(SITES))
    return drawn if model == "equal" else drawn * deviations


MODELS = ("points", "heavy", "sites", "equal")


def size(rows: list[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.square(rows))))


def ratios(model: str, share: float, seed: int) -> tuple[float, float]:
    """(moved, error) of one seed."""
    rng = np.random.default_rng([seed, MODELS.index(model)])
    moved, clipped, errors, plain = [], [], [], []
    for _ in range(ROUNDS):
        x = list(noise(model, rng))
        attacked = [*x[:-1], np.full(VALUES, 1e6)]
        limit = float(np.median([np.linalg.norm(row) for row in x]))
        clean = trimmed_mean(x, share=share, cap=0.5, weights=SITES)
        moved.append(trimmed_mean(attacked, share=share, cap=0.5, weights=SITES) - clean)
        clipped.append(norm_clipping(attacked, limit, SITES) - norm_clipping(x, limit, SITES))
        errors.append(clean)
        plain.append(weighted_mean(x, SITES))
    return size(moved) / size(clipped), size(errors) / size(plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.05, 0.1, 0.2])
    options = parser.parse_args()
    print(f"{'noise':8s} {'share':>6s}   {'moved / clipping':>22s}   {'error / weighted mean':>22s}")
    for model in MODELS:
        for share in options.shares:
            found = np.array([ratios(model, share, seed) for seed in range(options.seeds)])
            middle, least, most = np.median(found, axis=0), found.min(axis=0), found.max(axis=0)
            cells = [f"{middle[i]:7.3f} ({least[i]:.3f} to {most[i]:.3f})" for i in (0, 1)]
            print(f"{model:8s} {share:6.2f}   {cells[0]:>22s}   {cells[1]:>22s}", flush=True)


if __name__ == "__main__":
    main()
