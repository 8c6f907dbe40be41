"""What rules certify: attacks are searched for, and none beats the bound that is printed."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from fedincentive.aggregation import evidence, reference, robustness, rule, store
from fedincentive.aggregation.testing import updates
from fedincentive.cli import main

BOUNDED = ["trimmed-mean", "median", "geometric-median", "nnm+trimmed-mean", "nnm+median", "nnm+geometric-median"]


def run(name: str, x: np.ndarray, f: int) -> np.ndarray:
    options = {"trim": f} if name == "trimmed-mean" else {"f": f}
    return rule(name).use(list(x), **options)


def reached(name: str, x: np.ndarray, f: int) -> float:
    """||F - mean(S)||^2 over the variance of S, the first n - f clients."""
    honest = x[: len(x) - f]
    spread = float(((honest - honest.mean(axis=0)) ** 2).sum(axis=1).mean())
    return float(((run(name, x, f) - honest.mean(axis=0)) ** 2).sum()) / spread if spread > 1e-12 else 0.0


def searched(name: str, n: int, f: int, dimension: int, rng: np.random.Generator, steps: int) -> float:
    """Climbs: honest points and attackers alike are chosen for the worst case, from starts known to be bad."""
    best = 0.0
    for start in range(3):
        x = rng.standard_normal((n, dimension))
        if start == 1:  # some honest ones far on the attackers' side
            x[: n - 2 * f] *= 0.01
            x[n - 2 * f :] = 1.0
        if start == 2:
            x[n - f :] = 1e6
        worst = reached(name, x, f)
        for step in range(steps):
            moved = x + rng.standard_normal(x.shape) * rng.choice([1.0, 0.1, 0.01]) * (rng.random((n, 1)) < 0.4)
            if step % 10 == 0:
                moved[int(rng.integers(n))] = moved[int(rng.integers(n))]
            if (found := reached(name, moved, f)) > worst:
                x, worst = moved, found
        best = max(best, worst)
    return best


@pytest.mark.parametrize("name", BOUNDED)
def test_no_attack_that_is_found_beats_the_bound(name):
    rng = np.random.default_rng(len(name))
    for n, f in ((3, 1), (5, 1), (5, 2), (7, 2)):
        bound = robustness(name, n, f).kappa
        for dimension in (1, 2):
            assert 0.0 < searched(name, n, f, dimension, rng, 25) <= bound * (1 + 1e-9), (n, f, dimension)


def test_the_search_finds_more_than_the_least_any_rule_allows():
    """No rule has a kappa below f / (n - 2f): a search that stays far below would prove little."""
    rng = np.random.default_rng(0)
    assert searched("trimmed-mean", 5, 1, 1, rng, 150) > 0.8 * 1 / 3  # and the bound is 4 / 9
    assert searched("median", 5, 2, 1, rng, 150) > 0.8 * 2.0


def test_what_is_said_and_what_a_wrong_f_costs():
    one = robustness("trimmed-mean", 10, 2)
    assert one.kappa == pytest.approx(2 * 8 / 6**2) and one.tolerated == 0.2
    assert str(one).endswith("If 3 lie: no bound. Set to f = 3: kappa = 1.312.")
    assert robustness("nnm+median", 10, 2).kappa == pytest.approx(8 * 2 / 8 * (4 * (1 + 2 / 6) ** 2 + 1))
    for name, n, f in (("krum", 10, 2), ("mean", 10, 1), ("median", 4, 2)):
        assert "no bound is known" in str(robustness(name, n, f))


def test_evidence():
    x = updates("normal", 9, 200, np.float32)
    x[4], x[7] = x[4] + np.float32(30), np.full(200, np.nan, np.float32)
    seen = evidence([{"w": row} for row in x], {"w": rule("median")(x)})
    assert seen.suspects == [4, 7] and "2 updates look adversarial" in str(seen)
    expected = np.sqrt(reference.squared_distances([x[0], rule("median")(x)])[0, 1])
    assert seen.distances[0] == pytest.approx(expected)
    assert evidence(x[:4], rule("median")(x[:4])).suspects == []


def test_the_command_says_it(tmp_path):
    x = updates("normal", 9, 200, np.float32)
    x[4] = x[4] + np.float32(30)
    paths = [str(store(tmp_path / f"{i}.safetensors", {"w": row})) for i, row in enumerate(x)]
    done = CliRunner().invoke(main, ["aggregate", "--trim", "1", "--out", str(tmp_path / "out"), *paths])
    assert "Certified: trimmed-mean of 9 clients with f = 1" in done.output and "kappa = 0.1633" in done.output
    assert "1 updates look adversarial" in done.output and "4.safetensors: at distance" in done.output
    words = ["aggregate", "--share", "0.2", "--no-evidence", "--out", str(tmp_path / "o"), *paths]
    done = CliRunner().invoke(main, words)
    assert "at most 20 % of the weight together cannot move" in done.output and "Evidence" not in done.output
