"""NNM, Bucketing, ARC and clipping before a rule, and the rules that choose clients, under NaN, infinities and ties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from libraries import library

from fedincentive.aggregation import (
    StoredUpdates,
    arc,
    bucketing,
    bulyan,
    caf,
    clip_updates,
    mda,
    meamed,
    monna,
    nnm,
    reference,
    rule,
    smea,
    store,
)  # fmt: skip
from fedincentive.aggregation.testing import updates
from fedincentive.errors import AggregationError, SettingError

CHOOSING = {"mda": mda, "monna": monna, "smea": smea, "caf": caf, "bulyan": bulyan, "meamed": meamed}


def subset_with_smallest(cost, n: int, f: int) -> tuple[int, ...]:
    return min(itertools.combinations(range(n), n - f), key=cost)


@pytest.mark.parametrize("kind", ["normal", "ties", "constant"])
@pytest.mark.parametrize(("n", "f"), [(1, 0), (3, 1), (7, 2), (9, 4)])
def test_mda_and_smea_against_all_subsets(kind, n, f):
    for seed in range(3):
        x = updates(kind, n, 6, np.float64, seed)
        distances = np.sqrt(reference.squared_distances(x))
        values = np.stack(x)
        best = subset_with_smallest(lambda s, d=distances: d[np.ix_(s, s)].max(), n, f)
        assert np.allclose(mda(x, f), values[list(best)].mean(axis=0), rtol=1e-12, atol=1e-15)
        if kind == "normal":
            best = subset_with_smallest(
                lambda s, v=values: np.linalg.norm(v[list(s)] - v[list(s)].mean(axis=0), 2), n, f
            )
            assert np.allclose(smea(x, f), values[list(best)].mean(axis=0), rtol=1e-12)


def test_mda_is_exact_where_subsets_are_beyond_counting():
    x = updates("normal", 60, 20, np.float64)
    for i in range(15):
        x[4 * i] = x[4 * i] + 100.0 * (i + 1)
    assert np.allclose(mda(x, 15), np.mean([row for i, row in enumerate(x) if i % 4], axis=0), rtol=1e-12)


def test_bulyan_and_meamed_against_their_definitions():
    x = updates("normal", 11, 30, np.float64, 3)
    values = np.stack(x)
    away = np.abs(values - np.median(values, axis=0))
    nearest = np.take_along_axis(values, np.argsort(away, axis=0, kind="stable")[:8], axis=0)
    assert np.allclose(meamed(x, 3), nearest.mean(axis=0), rtol=1e-12, atol=1e-15)
    left, chosen = list(range(11)), []
    for _ in range(7):
        part = [x[i] for i in left]
        distances = np.sort(reference.squared_distances(part) + np.diag([np.inf] * len(left)), axis=1)
        best = int(np.argmin(distances[:, : max(1, len(left) - 4)].sum(axis=1)))
        chosen.append(left.pop(best))
    kept = values[sorted(chosen)]
    order = np.argsort(np.abs(kept - np.median(kept, axis=0)), axis=0, kind="stable")[:3]
    assert np.allclose(bulyan(x, 0), np.mean(x, axis=0), rtol=1e-12, atol=1e-15)  # nobody lies: everyone is chosen
    assert np.allclose(bulyan(x, 2), np.take_along_axis(kept, order, axis=0).mean(axis=0), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("sent", [np.nan, np.inf, -np.inf, 1e30, -1e30])
@pytest.mark.parametrize("name", [*CHOOSING, "nnm+trimmed-mean", "nnm+median", "arc+nnm+median", "nnm+krum"])
def test_liars_have_no_effect(name, sent):
    x = updates("normal", 13, 40, np.float32)
    for i in (3, 8):
        x[i][:] = sent
    if name.startswith("arc") and not np.isfinite(sent):
        return  # clipped to a length only where there is a direction
    found = rule(name).use(x, f=2)
    assert np.isfinite(found).all() and np.abs(found).max() < 3


@pytest.mark.parametrize("name", CHOOSING)
def test_too_many_liars_are_named(name):
    x = updates("normal", 11, 20, np.float32)
    for i in (1, 2, 5, 6, 9):
        x[i][:] = np.nan
    with pytest.raises(AggregationError, match="NaN"):
        CHOOSING[name](x, 2)
    with pytest.raises(AggregationError, match=rf"needs n >= {4 if name == 'bulyan' else 2}f \+"):
        CHOOSING[name](x, 6)
    with pytest.raises(AggregationError, match="f=-1"):
        CHOOSING[name](x, -1)


def test_every_dtype_and_form(tmp_path):
    torch = library("torch")
    x = [torch.randn(4, 5, generator=torch.Generator().manual_seed(i)) for i in range(11)]
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        cast = [t.to(dtype) for t in x]
        for name in (*CHOOSING, "nnm+median", "bucketing+median", "clipping+median"):
            found = rule(name).use([{"w": t} for t in cast], f=2, bucket=2, clip=3.0)["w"]
            wide = rule(name).use([{"w": t.double()} for t in cast], f=2, bucket=2, clip=3.0)["w"]
            assert found.dtype == dtype and torch.allclose(found.double(), wide, atol=3e-2), name
    paths = [store(tmp_path / f"{i}.safetensors", {"w": t}) for i, t in enumerate(x)]
    found = rule("nnm+trimmed-mean").use(StoredUpdates(paths), f=2)["w"]
    assert np.allclose(found, rule("nnm+trimmed-mean").use([{"w": t} for t in x], f=2)["w"])


def test_inputs_are_never_changed():
    x = updates("normal", 9, 30)
    before = [row.copy() for row in x]
    for made in (nnm(x, 2), arc(x, 2), clip_updates(x, 0.1), bucketing(x, 2)):
        made[0][:] = 7
        assert all(np.array_equal(a, b) for a, b in zip(x, before, strict=True))


def test_buckets_are_drawn_by_the_seed():
    x = updates("normal", 9, 5, np.float64)
    assert len(bucketing(x, 2)) == 5 and len(bucketing(x, 9)) == 1
    assert np.allclose(np.sum([2 * row for row in bucketing(x, 2)[:4]], axis=0) + bucketing(x, 2)[4], np.sum(x, axis=0))
    assert not np.array_equal(bucketing(x, 2, seed=1)[0], bucketing(x, 2, seed=2)[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nmm+median", "'nmm' cannot stand before a rule. Did you mean 'nnm'"),
        ("median+krum", "'median' cannot stand before a rule"),
        ("nnm", "'nnm' makes updates for a rule, which is to come after it: nnm\\+trimmed-mean"),
        ("arc+nnm", "'nnm' makes updates for a rule"),
        ("nnm+medan", "no aggregation rule 'medan'"),
        ("nnm+centered-clipping", "clips around a center"),
        ("nnm+", "no aggregation rule ''"),
    ],
)
def test_wrong_compositions(name, message):
    with pytest.raises(SettingError, match=message):
        rule(name)
