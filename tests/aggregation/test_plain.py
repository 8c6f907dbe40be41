"""Arrays that are taken apart at once, small ones that are packed together, and halves that are widened in registers:
the same bits as on the slow way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedincentive.aggregation import median, native, trimmed_mean, weighted_mean
from fedincentive.aggregation.updates import read, tensor_types
from fedincentive.errors import AggregationError

RULES = {
    "mean": weighted_mean,
    "weighted mean": lambda x: weighted_mean(x, range(1, len(x) + 1)),
    "trimmed mean": lambda x: trimmed_mean(x, 2),
    "weighted trimmed mean": lambda x: trimmed_mean(x, 2, weights=range(1, len(x) + 1)),
    "share": lambda x: trimmed_mean(x, share=0.2, weights=range(1, len(x) + 1)),
    "median": median,
}
KINDS = {
    "float32": lambda x: x.astype(np.float32),
    "float64": lambda x: x,
    "float16": lambda x: x.astype(np.float16),
    "tensor": lambda x: torch.from_numpy(x).float(),
    "float64 tensor": torch.from_numpy,
    "float16 tensor": lambda x: torch.from_numpy(x).half(),
    "bfloat16 tensor": lambda x: torch.from_numpy(x).bfloat16(),
    "parameter": lambda x: torch.nn.Parameter(torch.from_numpy(x).float()),
}


def plain(*values):
    return native.load().plain(list(values), *tensor_types())


def bits(value) -> bytes:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.view(torch.int16).numpy() if value.dtype == torch.bfloat16 else value.numpy()
    return value.tobytes()


def slow(value):
    """The same values, not one after the other."""
    if isinstance(value, torch.Tensor):
        return torch.stack([value, value], dim=-1)[..., 0]
    return np.stack([value, value], axis=-1)[..., 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", RULES)
def test_both_ways_give_the_same(rule, kind):
    x = [KINDS[kind](row) for row in np.random.default_rng(0).standard_normal((9, 7, 331))]
    assert plain(*x) is not None and plain(*map(slow, x)) is None
    found, expected = RULES[rule](x), RULES[rule]([slow(row) for row in x])
    assert type(found) is type(expected) and found.shape == (7, 331) and found.dtype == expected.dtype
    assert bits(found) == bits(expected)


def test_what_is_said_of_plain_ones():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    code, tensor, shape, addresses = plain(x, x + 1)
    assert (code, tensor, shape) == (0, False, (2, 3))
    assert np.frombuffer(addresses, np.uint64)[0] == x.ctypes.data
    part = torch.arange(20, dtype=torch.float64)[5:11]  # not at the beginning of its memory
    assert plain(part)[:3] == (1, True, (6,))
    assert np.frombuffer(plain(part)[3], np.uint64)[0] == part.data_ptr()
    assert plain(np.array(3.0, np.float32))[2] == () and plain(np.empty((0, 3), np.float16))[2] == (0, 3)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [np.zeros(3, np.float32), np.zeros(4, np.float32)],
        [np.zeros(3, np.float32), np.zeros(3)],
        [np.zeros(3, np.float32), torch.zeros(3)],
        [np.zeros((3, 2), np.float32).T],
        [np.zeros(3, ">f4")],
        [np.zeros(3, np.int32)],
        [np.ma.zeros(3)],
        [np.zeros(3).view(np.matrix)],
        [torch.zeros(3, dtype=torch.int64)],
        [torch.zeros(3, dtype=torch.complex64)],
        [torch.zeros(3, 2).T],
        [torch.zeros(3).to_sparse()],
        [torch._neg_view(torch.ones(3))],
        [torch.zeros(3, device="meta")],
        [torch.zeros(3).as_subclass(type("Own", (torch.Tensor,), {}))],
        [torch.zeros(1).expand(3)],
        [1.0],
    ],
    ids=str,
)
def test_what_needs_a_closer_look(values):
    assert plain(*values) is None


def test_a_negated_view_is_negated():
    assert weighted_mean([torch._neg_view(torch.ones(3)), torch.ones(3) * -3]).tolist() == [-2.0] * 3


def test_views_are_made_when_they_are_asked_for():
    x = [torch.full((2,), float(i)) for i in range(4)]
    field = read(x).select([3, 1]).entries[0]
    assert [array.tolist() for array in field.arrays] == [[3.0, 3.0], [1.0, 1.0]] and not field.on_device


SHAPES = {"a": (64,), "b": (3, 5), "c": (), "d": (0, 4), "e": (700,), "f": (511,), "g": (512,), "h": (1,), "i": (33, 9)}


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16 tensor"])
@pytest.mark.parametrize("rule", RULES)
def test_small_arrays_together_are_as_each_alone(rule, kind):
    rng = np.random.default_rng(1)
    states = [{f"{name}{i}": KINDS[kind](rng.standard_normal(shape).reshape(shape)) for i in range(3)
               for name, shape in SHAPES.items()} for _ in range(11)]  # fmt: skip
    for state in states[::2]:
        state["b1"] = slow(state["b1"])
    found = RULES[rule](states)
    for name in states[0]:
        alone = RULES[rule]([state[name] for state in states])
        assert found[name].shape == alone.shape and bits(found[name]) == bits(alone), name


def test_bad_values_in_small_arrays_are_counted_and_named():
    states = [{name: np.ones(shape, np.float32) for name, shape in SHAPES.items()} for _ in range(5)]
    states[3]["f"][7] = np.nan
    states[1]["h"][0] = np.inf
    with pytest.raises(AggregationError, match="2 coordinates .* clients 1, 3"):
        weighted_mean(states)
    result = weighted_mean(states, nan_policy="propagate")
    assert np.isnan(result["f"][7]) and np.isinf(result["h"][0])
    assert sum((~np.isfinite(part)).sum() for part in result.values()) == 2
    assert all((part == 1).all() for part in trimmed_mean(states, 1).values())


@pytest.mark.parametrize("n", [1, 3, 8, 13, 100])
def test_halves_are_summed_in_float64_and_rounded_once(n):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, 4096 + 5)) * 10.0 ** rng.integers(-6, 4, (n, 4096 + 5))
    halves = [row.astype(np.float16) for row in x]
    weights = rng.integers(1, 50, n)
    total = np.zeros(x.shape[1])
    for weight, row in zip(weights, halves, strict=True):
        total += row.astype(np.float64) * weight
    # weights are scaled by a power of two; means of singles are multiplied by a reciprocal
    expected = (total * (1 / weights.sum())).astype(np.float16)
    assert np.array_equal(weighted_mean(halves, weights), expected)


def test_every_half_is_itself():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    found = weighted_mean([every], nan_policy="propagate")
    finite = np.isfinite(every)
    assert np.array_equal(found.view(np.uint16)[finite] & 0x7FFF, every.view(np.uint16)[finite] & 0x7FFF)
    assert np.array_equal(found[finite], every[finite]) and np.array_equal(np.isnan(found), np.isnan(every))
    brains = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    again = weighted_mean([brains], nan_policy="propagate")
    assert torch.equal(again[brains.isfinite()], brains[brains.isfinite()])


@pytest.mark.parametrize("n", [3, 5, 8, 10, 33, 64, 100, 130])
@pytest.mark.parametrize("values", ["distinct", "ties", "equal", "bad", "subnormal"])
def test_weighted_trimming_in_the_order_of_the_clients(n, values):
    """Bit for bit what a stable sort keeps, added up in float64 client after client."""
    rng = np.random.default_rng([n, len(values)])
    m = 300
    for dtype in (np.float32, np.float64):
        x = rng.standard_normal((n, m)).astype(dtype)
        if values == "ties":
            x = rng.integers(-2, 3, (n, m)).astype(dtype)
        elif values == "equal":
            x[:] = rng.choice([0.0, -0.0], (n, m))
        elif values == "bad":
            x[0], x[-1, ::2] = np.nan, -np.inf
        elif values == "subnormal":
            least = np.finfo(np.float32).smallest_subnormal  # of float64's the weights would leave nothing
            x = (rng.integers(-3, 4, (n, m)) * least).astype(dtype)
        weights = rng.integers(1, 2**10, n).astype(float)
        for k in sorted({1, 2, n // 10, n // 4, (n - 1) // 2} - {0}):
            if 2 * k >= n:
                continue
            order = np.argsort(np.where(np.isnan(x), np.inf, x), axis=0, kind="stable")
            keep = np.zeros((n, m), bool)
            np.put_along_axis(keep, order[k : n - k], True, axis=0)
            total, weight = np.zeros(m), np.zeros(m)
            for i in range(n):
                total += np.where(keep[i], x[i], 0).astype(np.float64) * weights[i]
                weight += np.where(keep[i], weights[i], 0)
            expected = (total / weight).astype(dtype)
            found = trimmed_mean(list(x), k, weights=weights)
            assert np.array_equal(found, expected), (k, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_alike_alone_and_among_others(dtype):
    """Many at a time they are narrowed in registers, one alone is not: ties, subnormals, infinities and zeros."""
    rng = np.random.default_rng(2)
    every = torch.from_numpy(rng.integers(-(2**15), 2**15, (3, 4096)).astype(np.int16)).view(dtype)
    x = [torch.where(row.isfinite(), row, torch.zeros_like(row)) for row in every]
    for weights in ([1.0, 1.0, 0.0], [3.0, 1.0, 1e-9], [1.0, 2.0**-12, 2.0**-30]):
        together = weighted_mean(x, weights).view(torch.int16)
        alone = torch.cat([weighted_mean([row[i : i + 1] for row in x], weights) for i in range(0, 4096, 7)])
        assert torch.equal(together[::7], alone.view(torch.int16))
