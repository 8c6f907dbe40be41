"""What updates may be, what comes back, and what is refused with which words."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from libraries import library

from fedincentive.aggregation import median, norm_clipping, rule, trimmed_mean, weighted_mean
from fedincentive.aggregation.testing import updates
from fedincentive.errors import AggregationError, SettingError


def test_shape_dtype_and_layout_are_the_inputs():
    rng = np.random.default_rng(0)
    for shape in [(), (1,), (0,), (3, 0, 2), (2, 3, 4), (7, 1, 5)]:
        x = [rng.standard_normal(shape).astype(np.float32) for _ in range(5)]
        result = weighted_mean(x)
        assert result.shape == shape and result.dtype == np.float32 and isinstance(result, np.ndarray)
        assert np.allclose(result, np.mean(x, axis=0), atol=1e-6)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2, 1::3],
        lambda a: a[::-1, ::-2],
        lambda a: a.T,
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a.reshape(4, 10, 30).transpose(2, 0, 1),
        lambda a: np.asfortranarray(a),
    ],
)
def test_any_strides(view):
    rng = np.random.default_rng(1)
    bases = [rng.standard_normal((40, 30)) for _ in range(7)]
    for trim, weights in ((0, None), (2, None), (2, range(1, 8))):
        expected = trimmed_mean([np.ascontiguousarray(view(base)) for base in bases], trim, weights=weights)
        assert np.array_equal(trimmed_mean([view(base) for base in bases], trim, weights=weights), expected)
        mixed = [view(base) if i % 2 else np.ascontiguousarray(view(base)) for i, base in enumerate(bases)]
        assert np.array_equal(trimmed_mean(mixed, trim, weights=weights), expected)


def test_dense_layouts_are_kept():
    x = [np.asfortranarray(np.random.default_rng(i).random((5, 9))) for i in range(3)]
    result = weighted_mean(x)
    assert result.flags.f_contiguous and np.allclose(result, np.mean(x, axis=0))


def test_mappings_with_integer_buffers():
    x = [
        {
            "w": np.full((2, 3), float(i), np.float32),
            "steps": np.array(10 * i),
            "seen": np.array([i == 1, False]),
            "b": np.float64([i]),
        }
        for i in range(4)
    ]
    result = weighted_mean([dict(reversed(u.items())) if i == 2 else u for i, u in enumerate(x)])
    assert list(result) == ["w", "steps", "seen", "b"] and type(result) is dict
    assert np.all(result["w"] == 1.5) and result["w"].dtype == np.float32 and result["b"].dtype == np.float64
    assert result["steps"] == 30 and result["steps"].dtype == np.array(1).dtype
    assert result["seen"].tolist() == [True, False]
    assert type(median([OrderedDict(u) for u in x])) is OrderedDict
    assert weighted_mean([{}, {}]) == {}


def test_a_state_dict_with_batch_norm():
    torch = library("torch")
    models = [torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)) for _ in range(5)]
    for steps, model in enumerate(models):
        for _ in range(steps):
            model(torch.randn(4, 1, 8, 8))
    states = [model.state_dict() for model in models]
    result = trimmed_mean(states, 1)
    assert isinstance(result, OrderedDict) and list(result) == list(states[0])
    assert result["1.num_batches_tracked"] == 4 and result["1.num_batches_tracked"].dtype == torch.int64
    for name in states[0]:
        if states[0][name].is_floating_point():
            expected = torch.sort(torch.stack([s[name] for s in states]).double(), dim=0).values[1:4].mean(0)
            assert torch.allclose(result[name].double(), expected, atol=1e-7)
    models[0].load_state_dict(result)


def test_tensors_that_require_grad_and_channels_last():
    torch = library("torch")
    x = [torch.randn(2, 3, 4, 5, requires_grad=True) for _ in range(3)]
    result = weighted_mean(x)
    assert not result.requires_grad and torch.allclose(result, torch.stack(x).mean(0).detach(), atol=1e-6)
    last = [t.detach().to(memory_format=torch.channels_last) for t in x]
    other = weighted_mean(last)
    assert other.is_contiguous(memory_format=torch.channels_last) and torch.equal(other, result)
    assert torch.equal(weighted_mean([last[0], x[1], x[2]]), result)
    assert torch.equal(weighted_mean([torch.nn.Parameter(t) for t in x]), result)


def test_tensors_that_only_look_negative():
    """Torch keeps the sign apart: the imaginary part of a conjugate is such a view."""
    torch = library("torch")
    x = [torch.complex(torch.randn(40), torch.randn(40)).conj().imag for _ in range(4)]
    assert all(t.is_neg() for t in x)
    assert torch.allclose(weighted_mean(x), torch.stack(x).mean(0), atol=1e-6)


def test_results_share_no_memory_with_inputs():
    x = updates("normal", 1, 100)
    result = trimmed_mean(x, 0)
    assert not np.shares_memory(result, x[0])
    result[:] = 0
    assert np.any(x[0] != 0)


def test_other_iterables():
    x = updates("normal", 4, 10)
    expected = weighted_mean(x)
    assert np.array_equal(weighted_mean(iter(x)), expected)
    assert np.array_equal(weighted_mean(np.stack(x)), expected)
    assert weighted_mean(np.float64([1, 2, 6])) == 3


A = np.zeros(3, np.float32)
REFUSED = [
    (lambda: weighted_mean([]), "no updates"),
    (
        lambda: weighted_mean([A, A, np.zeros(4, np.float32)]),
        r"Client 2's update has shape \(4,\), but client 0's has shape \(3,\)",
    ),
    (
        lambda: weighted_mean([A, A.astype(float)]),
        "Client 1's update has dtype float64, but client 0's has dtype float32",
    ),
    (lambda: weighted_mean([{"w": A}, {"w": A, "b": A}]), r"Client 1's .*unexpected \['b'\]"),
    (lambda: weighted_mean([{"w": A}, {"v": A}]), r"Client 1's .*missing \['w'\], unexpected \['v'\]"),
    (lambda: weighted_mean([{"w": A}, {"w": A[:2]}]), r"Client 1's entry 'w' has shape \(2,\).*\(3,\)"),
    (lambda: weighted_mean([{"w": A}, A]), "Client 1's update is a ndarray but client 0's is a mapping"),
    (lambda: weighted_mean([A, [0, 0, 0]]), "Client 1's update is a list"),
    (lambda: weighted_mean([A.astype(int)]), "Client 0's update has dtype int64"),
    (lambda: weighted_mean([A.astype(complex)]), "complex128"),
    (lambda: weighted_mean([A.astype(">f4")]), "native byte order"),
    (lambda: weighted_mean([A, A], [1.0]), "1 weights for 2 clients"),
    (lambda: weighted_mean([A, A], [1.0, -2.0]), "Client 1's weight is -2.0"),
    (lambda: weighted_mean([A, A], [float("nan"), 1]), "Client 0's weight is nan"),
    (lambda: weighted_mean([A, A], [1, float("inf")]), "Client 1's weight is inf"),
    (lambda: weighted_mean([A, A], [0, 0]), "All 2 weights are 0"),
    (lambda: trimmed_mean([A, A], 1), "trim=1 per side leaves nothing of n=2"),
    (lambda: trimmed_mean([A] * 10, alpha=0.49), r"alpha=0.49 \(trim=5\) per side leaves nothing of n=10"),
    (lambda: trimmed_mean([A] * 3, -1), "trim=-1"),
    (lambda: trimmed_mean([A] * 3, 0.5), "trim=0.5 must be a whole number"),
    (lambda: trimmed_mean([A] * 3), "Give either trim"),
    (lambda: trimmed_mean([A] * 3, 1, alpha=0.1), "Give either trim"),
    (lambda: trimmed_mean([A] * 3, alpha=0.5), "alpha=0.5"),
    (lambda: trimmed_mean([A] * 3, 1, normalize="mean"), "normalize='mean' is unknown; choose one of kept, paper"),
    (lambda: median([A] * 3, nan_policy="ignore"), "nan_policy='ignore'"),
    (lambda: norm_clipping([A], 0.0), "max_norm=0.0"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals_name_the_client_and_both_values(number):
    call, words = REFUSED[number]
    with pytest.raises(AggregationError, match=words):
        call()


def test_tensors_on_other_devices_and_kinds_are_refused():
    torch = library("torch")
    t = torch.zeros(3)
    with pytest.raises(AggregationError, match="device meta"):
        weighted_mean([t, t.to("meta")])
    with pytest.raises(AggregationError, match="Client 1's update is a ndarray, but client 0's is a Tensor"):
        weighted_mean([t, t.numpy()])
    with pytest.raises(AggregationError, match="torch.bfloat16.*torch.float16"):
        weighted_mean([t.half(), t.bfloat16()])
    with pytest.raises(AggregationError, match="sparse"):
        weighted_mean([t.to_sparse()])
    with pytest.raises(AggregationError, match="float8"):
        weighted_mean([t.to(torch.float8_e4m3fn)])


def test_rules_by_name():
    assert rule("trimmed-mean").call is trimmed_mean
    with pytest.raises(SettingError, match="'trimed_mean'. Did you mean 'trimmed-mean'"):
        rule("trimed_mean")
