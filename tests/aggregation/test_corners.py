"""Corners of the API where a mistake could pass silently, or be blamed on the wrong one."""

from __future__ import annotations

import json
import struct
from collections import OrderedDict

import numpy as np
import pytest
from libraries import library

from fedincentive.aggregation import (
    geometric_median,
    krum,
    median,
    norm_clipping,
    store,
    trim_count,
    trimmed_mean,
    weighted_mean,
)
from fedincentive.aggregation.testing import updates
from fedincentive.errors import AggregationError, SettingError

X = updates("normal", 10, 7)


@pytest.mark.parametrize("rule", [weighted_mean, geometric_median, lambda x, w: norm_clipping(x, 1.0, w)])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({i: 1.0 for i in range(10)}, "weights is a dict: give a list"),
        ({1, 2, 3}, "weights is a set: give a list"),
        ("1234567890", "weights is a str: give a list"),
        (3.0, "weights is a float: give a list"),
        ([10**400, *[1] * 9], "Client 0's weight is inf; weights must be finite"),
        ([1, None, *[1] * 8], "Client 1's weight is None; weights must be numbers"),
        ([1, "a", *[1] * 8], "Client 1's weight is 'a'"),
        ([1] * 9, "9 weights for 10 clients"),
    ],
)
def test_weights(rule, weights, message):
    with pytest.raises(AggregationError, match=message):
        rule(X, weights)


def test_a_fraction_is_what_was_written():
    torch = library("torch")
    for alpha in (np.float32(0.1), np.float16(0.1), np.array(0.1, np.float32), torch.tensor(0.1), np.float64(0.1), 0.1):
        assert trim_count(alpha, 10) == 1 and trim_count(alpha, 100) == 10, alpha
        assert np.array_equal(trimmed_mean(X, alpha=alpha), trimmed_mean(X, 1))
    for wrong in ("0.1", None, True, [0.1, 0.2], 1j):
        with pytest.raises(AggregationError, match="alpha="):
            trim_count(wrong, 10)


@pytest.mark.parametrize("trim", [True, np.True_, 1.0, "1", None])
def test_a_count_is_a_whole_number(trim):
    with pytest.raises(AggregationError, match="trim"):
        trimmed_mean(X, trim)


def test_masked_arrays_have_no_values_to_average():
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(AggregationError, match=r"Client 1's update is a masked array.*\.filled"):
        weighted_mean([np.zeros(2), masked])
    with pytest.raises(AggregationError, match="Client 0's entry 'w' is a masked array"):
        median([{"w": masked}])


@pytest.mark.parametrize("threads", [2**63, 2**31, 0, -1, 1.5, True, "2"])
def test_threads(threads):
    with pytest.raises(SettingError, match="must be a whole number from 1 to 4096"):
        weighted_mean(X, threads=threads)
    with pytest.raises(SettingError, match="must be a whole number from 1 to 4096"):
        krum(X, 1, threads=threads)


def test_threads_may_be_numpys():
    assert np.array_equal(weighted_mean(X, threads=np.int64(2)), weighted_mean(X))


@pytest.mark.parametrize("tag", ["F8_E4M3", "F8_E5M2", "C64"])
def test_types_that_are_not_aggregated_are_named(tag, tmp_path):
    size = 8 if tag == "C64" else 1
    header = json.dumps({"w": {"dtype": tag, "shape": [2], "data_offsets": [0, 2 * size]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(2 * size))
    with pytest.raises(AggregationError, match=f"has entry 'w' as '{tag}': convert it to one of F64"):
        median([tmp_path / "a.safetensors"])


def test_a_file_counts_once(tmp_path):
    one, two = (store(tmp_path / f"{i}.safetensors", {"w": X[i]}) for i in range(2))
    (tmp_path / "link").symlink_to(one)
    for same in ([one, two, one], [one, two, tmp_path / "link"], [one, one, one]):
        with pytest.raises(AggregationError, match="is the same file as that of client 0"):
            median(same)
    assert np.array_equal(weighted_mean([one, {"w": X[0]}, {"w": X[0]}])["w"], X[0])  # in memory it may be meant


def test_a_state_dict_keeps_the_versions_of_its_modules():
    torch = library("torch")
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    state = layers.state_dict()
    for result in (weighted_mean([state, state]), krum([state] * 3, 0), geometric_median([state, state])):
        assert isinstance(result, OrderedDict) and result._metadata == state._metadata
        layers.load_state_dict(result)


def test_lists_of_arrays_and_pairs_with_counts():
    lists = [[row, row[:2] * 2] for row in X]
    result = median(lists)
    assert isinstance(result, list) and np.array_equal(result[0], median(X))
    assert isinstance(weighted_mean([tuple(update) for update in lists]), tuple)
    counts = list(range(1, 11))
    states = [OrderedDict(w=row) for row in X]
    expected = weighted_mean(X, counts)
    assert np.array_equal(weighted_mean(list(zip(counts, states, strict=True)))["w"], expected)  # FedML's
    assert np.array_equal(weighted_mean(list(zip(lists, counts, strict=True)))[0], expected)  # Flower's
    assert np.array_equal(
        weighted_mean(list(zip(counts, states, strict=True)), [1] * 10)["w"], weighted_mean(X, [1] * 10)
    )
    assert np.array_equal(median(list(zip(counts, X, strict=True))), median(X))
    assert np.array_equal(krum(list(zip(counts, X, strict=True)), 2), krum(X, 2))
    with pytest.raises(AggregationError, match="Client 1's update is a ndarray but client 0's is a list"):
        median([lists[0], X[0]])
    with pytest.raises(AggregationError, match=r"Client 1's update does not have .* missing \['1'\]"):
        median([lists[0], lists[1][:1]])
