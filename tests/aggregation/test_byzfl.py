"""Our rules against those of the installed ByzFL, where it has them and is exact."""

from __future__ import annotations

import numpy as np
import pytest
from peers import byzfl

from fedincentive import aggregation
from fedincentive.adversary import attack, strongest
from fedincentive.aggregation import krum, multi_krum, rule

theirs = byzfl()
SIZES = [(5, 1), (11, 2), (12, 4)]


def cloud(n: int, f: int, seed: int, far: float = 3.0) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, n])
    return [*rng.standard_normal((n - f, 20)), *(far + rng.standard_normal((f, 20)))]


@pytest.mark.parametrize(("n", "f"), SIZES)
def test_krum_by_its_convention(n, f):
    differs = False
    for seed in range(30):
        x = cloud(n, f, seed, far=0.0)
        assert np.array_equal(krum(x, f, convention="byzfl"), theirs.Krum(f)(x))
        assert np.allclose(multi_krum(x, f, convention="byzfl"), theirs.MultiKrum(f)(x), rtol=1e-12)
        if n >= 2 * f + 3:
            differs |= not np.array_equal(krum(x, f), theirs.Krum(f)(x))
    assert differs or n < 2 * f + 3  # the paper's n - f - 2 neighbours are another rule


@pytest.mark.parametrize(("n", "f"), SIZES)
@pytest.mark.parametrize(
    ("name", "peer"),
    [("trimmed-mean", "TrMean"), ("median", "Median"), ("meamed", "Meamed"), ("mda", "MDA"), ("monna", "MoNNA")],
)
def test_rules(name, peer, n, f):
    for seed in range(6):
        x = cloud(n, f, seed, far=seed % 3)
        options = {"trim": f} if name == "trimmed-mean" else {} if name == "median" else {"f": f}
        expected = getattr(theirs, peer)(**({} if name == "median" else {"f": f}))(x)
        assert np.allclose(rule(name)(x, **options), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "peer"), [("smea", "SMEA"), ("caf", "CAF")])
def test_spectral_rules_where_a_random_step_finds_the_direction(name, peer):
    """ByzFL takes one step from a random direction: with attackers far off it finds theirs."""
    x = cloud(9, 2, 1, far=1e4)
    np.random.seed(0)
    found, expected = rule(name)(x, f=2), getattr(theirs, peer)(f=2)(x)
    assert np.linalg.norm(found - expected) < 0.5 and np.abs(found).max() < 2


@pytest.mark.parametrize(("n", "f"), SIZES)
def test_what_stands_before_a_rule(n, f):
    x = cloud(n, f, 5)
    assert np.allclose(aggregation.nnm(x, f), theirs.NNM(f)(np.array(x)), rtol=1e-12)
    assert np.allclose(aggregation.arc(x, f), theirs.ARC(f)(np.array(x)), rtol=1e-12)
    assert np.allclose(aggregation.clip_updates(x, 2.0), theirs.Clipping(2.0)(np.array(x)), rtol=1e-12)
    both = theirs.TrMean(f)(theirs.NNM(f)(theirs.Clipping(2.0)(np.array(x))))
    assert np.allclose(rule("clipping+nnm+trimmed-mean").use(x, clip=2.0, f=f), both, rtol=1e-12)


def test_the_strongest_attacks():
    honest = [{"w": row} for row in np.random.default_rng(3).standard_normal((8, 15)) + 0.3]
    rows = np.array([u["w"] for u in honest])
    for f in (1, 3):
        agg = theirs.TrMean(f)
        peer = theirs.Optimal_InnerProductManipulation(agg=agg, pre_agg_list=[], f=f)(rows)
        ours = strongest("ipm", honest, lambda updates, f=f: aggregation.trimmed_mean(updates, f), f)
        assert np.allclose(ours(honest[0], honest)["w"], peer, rtol=1e-9)
        made = strongest("alie", honest, lambda updates, f=f: aggregation.trimmed_mean(updates, f), f)
        sent = made(honest[0], honest)["w"]
        usual = attack("alie")(honest[0], honest)["w"]
        reached = [np.linalg.norm(agg(np.vstack([rows, *[v] * f])) - rows.mean(axis=0)) for v in (sent, usual)]
        assert reached[0] >= reached[1]
    assert np.isinf(attack("all-inf")(honest[0])["w"]).all() and np.isinf(theirs.Inf()(rows)).all()


@pytest.mark.parametrize(("sent", "f"), [("sign-flip", 1), ("sign-flip", 4), ("alie", 1), ("alie", 4), ("ipm", 4)])
def test_the_rules_of_byzfls_benchmark_on_the_same_updates(sent, f):
    """Clipping and NNM before the trimmed mean are the same rule in both libraries; before the geometric median they
    are once ByzFL's takes as many steps as it needs, and not after the three it takes by itself."""
    honest = cloud(10, 0, seed=f)
    made = {"sign-flip": theirs.SignFlipping, "alie": theirs.ALittleIsEnough, "ipm": theirs.InnerProductManipulation}
    x = np.stack(honest + [made[sent]()(np.stack(honest))] * f)
    mixed = theirs.NNM(f)(theirs.Clipping(2.0)(x))
    ours = {
        name: rule(f"clipping+nnm+{name}").use(list(x), clip=2.0, f=f) for name in ("trimmed-mean", "geometric-median")
    }
    size = np.linalg.norm(ours["trimmed-mean"])
    assert np.linalg.norm(ours["trimmed-mean"] - theirs.TrMean(f)(mixed)) < 1e-9 * size
    away = [np.linalg.norm(ours["geometric-median"] - theirs.GeometricMedian(nu=1e-12, T=t)(mixed)) for t in (3, 4000)]
    assert away[1] < 1e-6 * size
    assert away[0] > 10 * away[1]
