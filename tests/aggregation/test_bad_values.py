"""NaN sorts as the largest, infinities are extremes, and what survives the trim is named, dropped or let through."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import library

from fedincentive.aggregation import kernel, median, native, reference, trimmed_mean, weighted_mean
from fedincentive.aggregation.testing import DTYPES, close, updates
from fedincentive.errors import AggregationError

NAN, INF = float("nan"), float("inf")


def poisoned(n: int, m: int, dtype: type, bad: dict[int, float], seed: int = 0) -> list[np.ndarray]:
    x = updates("normal", n, m, dtype, seed)
    for client, value in bad.items():
        x[client][:] = value
    return x


@pytest.mark.parametrize("n", [5, 16, 33, 100, 300])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_trimmed_bad_values_have_no_effect(n, dtype, weighted):
    k = 2
    weights = np.arange(1, n + 1) if weighted else None
    for bad in ({0: NAN, n - 1: NAN}, {1: INF, 2: -INF}, {0: NAN, 3: INF, 4: -INF}, {2: -INF, 4: -INF, 0: NAN}):
        x = poisoned(n, 100, dtype, bad)
        with np.errstate(invalid="ignore"):
            expected = reference.trimmed_mean(x, k, weights)
        finite = np.sort(reference.stack(x), axis=0)[k : n - k]
        assert close(trimmed_mean(x, k, weights=weights), expected, np.abs(finite).max(axis=0) * n)


def scattered(n: int, m: int, k: int, dtype: type) -> list[np.ndarray]:
    """In a third of the coordinates NaN from up to k clients, anywhere among them, and infinities from others."""
    rng = np.random.default_rng(100 * n + k)
    x = updates("normal", n, m, dtype, seed=n)
    for c in rng.choice(m, m // 3, replace=False):
        clients = rng.permutation(n)
        nans = int(rng.integers(0, k + 1))
        for client in clients[:nans]:
            x[client][c] = NAN
        for client in clients[nans:k]:
            x[client][c] = INF
        for client in clients[k : k + int(rng.integers(0, k + 1))]:
            x[client][c] = -INF
    return x


@pytest.mark.parametrize("k", range(1, 15))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scattered_bad_values_have_no_effect(k, dtype):
    """Values are not looked at one by one where few are trimmed: every way through the kernel must notice a NaN."""
    for n in sorted({2 * k + 1, max(8, 2 * k + 2), 4 * k + 7, 33 + k, 70 + k}):
        x = scattered(n, 500, k, dtype)
        with np.errstate(invalid="ignore"):
            expected = reference.trimmed_mean(x, k)
        assert np.isfinite(expected).all()
        assert close(trimmed_mean(x, k), expected, np.full(500, 10.0 * n)), n


def test_bad_values_do_not_change_their_neighbours():
    """A coordinate's bits depend on its own values alone, whatever is in the coordinates beside it."""
    for n, k in ((10, 1), (20, 2), (33, 3), (70, 7), (100, 10)):
        clean = updates("normal", n, 500, np.float32, seed=n)
        for c in (0, 13, 77, 300, 499):
            spoiled = [row.copy() for row in clean]
            spoiled[c % n][c] = NAN
            others = np.arange(500) != c
            assert np.array_equal(trimmed_mean(spoiled, k)[others], trimmed_mean(clean, k)[others])


@pytest.mark.parametrize("n", [5, 40, 120])
def test_kept_bad_values_are_named(n):
    x = poisoned(n, 300, np.float32, {1: NAN, 3: NAN, 4: INF})
    x[2][7] = -INF
    with pytest.raises(AggregationError, match=r"300 coordinates keep a NaN or infinity after trimming 1 per side.*4"):
        trimmed_mean(x, 1)
    with pytest.raises(AggregationError, match=r"in the sum; it comes from clients 1, 2, 3, 4\."):
        weighted_mean(x)


def test_single_coordinates_are_counted():
    x = updates("normal", 9, 1000)
    for c in (3, 77, 999):
        x[5][c] = NAN
    with pytest.raises(AggregationError, match="3 coordinates .* clients 5"):
        weighted_mean(x)
    assert np.isfinite(trimmed_mean(x, 1)).all()


def test_dropping_leaves_the_clients_out():
    x = poisoned(9, 50, np.float64, {2: NAN, 6: INF, 7: NAN})
    good = [x[i] for i in range(9) if i not in (2, 6, 7)]
    assert np.array_equal(weighted_mean(x, nan_policy="drop"), weighted_mean(good))
    weights = list(range(1, 10))
    kept = [weights[i] for i in range(9) if i not in (2, 6, 7)]
    assert np.array_equal(weighted_mean(x, weights, nan_policy="drop"), weighted_mean(good, kept))
    result = trimmed_mean(x, 1, nan_policy="drop")
    assert np.isfinite(result).all()
    with pytest.raises(AggregationError, match="clients 0, 1"):
        weighted_mean([np.float64([NAN])] * 2, nan_policy="drop")


@pytest.mark.parametrize("dtype", DTYPES)
def test_propagation_is_what_numpy_says(dtype):
    rng = np.random.default_rng(3)
    for n in (3, 8, 20, 70):
        x = updates("normal", n, 200, dtype)
        for row in x:
            row[rng.random(200) < 0.3] = rng.choice([NAN, INF, -INF])
        for trim in (0, 1, (n - 1) // 2):
            with np.errstate(invalid="ignore"):
                expected = reference.trimmed_mean(x, trim)
            result = trimmed_mean(x, trim, nan_policy="propagate").astype(np.float64)
            assert np.array_equal(np.isnan(result), np.isnan(expected))
            assert np.array_equal(result[np.isinf(expected)], expected[np.isinf(expected)])
            fine = np.isfinite(expected)
            assert np.allclose(result[fine], expected[fine], rtol=1e-2 if dtype is np.float16 else 1e-6, atol=1e-3)


def test_half_of_the_clients_may_be_infinite_for_the_median():
    x = poisoned(9, 64, np.float32, {0: INF, 3: NAN, 5: -INF, 7: -INF})
    assert np.isfinite(median(x)).all()


def test_bfloat16_bad_values():
    torch = library("torch")
    x = [torch.randn(70).bfloat16() for _ in range(8)]
    x[2][:] = NAN
    x[4][::2] = -INF
    assert bool(torch.isfinite(trimmed_mean(x, 1)).all())
    with pytest.raises(AggregationError, match="clients 2, 4"):
        weighted_mean(x)


def sevens(x: list[np.ndarray]) -> np.ndarray:
    """Weights that the clients keep when a multiple of seven before them are left out."""
    return np.arange(len(x)) % 7 + 1.0


RULES = {
    "mean": lambda x, policy, k: weighted_mean(x, nan_policy=policy),
    "trimmed mean": lambda x, policy, k: trimmed_mean(x, k, nan_policy=policy),
    "weighted trimmed mean": lambda x, policy, k: trimmed_mean(x, k, weights=sevens(x), nan_policy=policy),
    "median": lambda x, policy, k: median(x, nan_policy=policy),
}


@pytest.fixture
def passes(monkeypatch):
    """How many clients each call of the kernel, and each look at all values, had."""
    seen = {"reduced": [], "looked at": []}
    reduce, look = kernel.reduce, kernel.not_finite
    monkeypatch.setattr(kernel, "reduce", lambda x, **rest: seen["reduced"].append(x.clients) or reduce(x, **rest))
    monkeypatch.setattr(kernel, "not_finite", lambda x, **rest: seen["looked at"].append(x.clients) or look(x, **rest))
    return seen


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sent", [NAN, INF, -INF])
@pytest.mark.parametrize("bad", [14, 70, 91])
def test_any_number_of_bad_clients_costs_one_more_call(rule, sent, bad, passes):
    """A median keeps one or two of 91 infinities: to leave out only those, and look again, took 46 calls."""
    x = poisoned(98, 50, np.float32, dict.fromkeys(range(bad), sent))
    expected = RULES[rule](x[bad:], "raise", 3)
    passes["reduced"].clear()
    found = RULES[rule](x, "drop", 3)
    if rule == "median" and bad < 49:
        assert passes == {"reduced": [98], "looked at": []}
    else:
        assert np.array_equal(found, expected)
        assert passes == {"reduced": [98, 98 - bad], "looked at": [98]}


def test_whoever_sent_a_bad_value_is_dropped_wherever_it_is():
    """In strided entries, in halves, and where it would have been trimmed; not if none would enter the result."""
    for dtype in DTYPES:
        x = [{"a": row[:60].reshape(6, 10), "b": row[60:]} for row in updates("normal", 9, 100, dtype, seed=1)]
        x = [{**each, "a": np.asfortranarray(each["a"])} for each in x]
        x[3]["a"][5, 9] = INF  # trimmed
        first = trimmed_mean(x, 1, nan_policy="drop")
        assert np.array_equal(first["b"], trimmed_mean(x, 1)["b"])
        x[6]["b"][7] = x[8]["b"][7] = NAN
        good = [each for i, each in enumerate(x) if i not in (3, 6, 8)]
        found, expected = trimmed_mean(x, 1, nan_policy="drop"), trimmed_mean(good, 1)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("rule", RULES)
def test_a_refused_call_leaves_early(rule):
    """Of a large update only its first coordinates are counted, and the message says so."""
    x = poisoned(20, 400_000, np.float32, dict.fromkeys(range(12), NAN))
    with pytest.raises(AggregationError, match="At least [0-9]+ coordinates") as error:
        RULES[rule](x, "raise", 2)
    counted = int(str(error.value).split()[2])
    assert counted <= 2 * 2048 * native.thread_count()  # in the chunks that threads had in hand


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clients_without_weight_may_send_infinities(dtype):
    """0 times an infinity is NaN, as in NumPy, also where nobody asks whose it was."""
    x = poisoned(12, 130, dtype, {0: INF, 1: INF, 2: INF})
    weights = [0, 1, 1, *range(1, 10)]
    with np.errstate(invalid="ignore"):
        expected = reference.trimmed_mean(x, 1, weights)
    result = trimmed_mean(x, 1, weights=weights, nan_policy="propagate")
    assert np.array_equal(np.isnan(result), np.isnan(expected)) and np.isnan(expected).all()
    weights[0] = 2
    assert np.isposinf(trimmed_mean(x, 1, weights=weights, nan_policy="propagate")).all()
