"""The sorting networks: the header is what its script writes, and the networks sort."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

CUDA = Path(__file__).parents[2] / "csrc" / "cuda"
HEADER = (CUDA / "networks.cuh").read_text()


def in_header() -> dict[int, list[tuple[int, int]]]:
    """The comparators as the compiler reads them."""
    found = {}
    for body in re.finditer(r"sort_network\(T \(&v\)\[(\d+)\]\) \{(.*?)\n\}", HEADER, re.S):
        found[int(body[1])] = [(int(a), int(b)) for a, b in re.findall(r"X\((\d+), (\d+)\)", body[2])]
    return found


NETWORKS = in_header()


def apply(pairs: list[tuple[int, int]], inputs: np.ndarray) -> np.ndarray:
    values = inputs.copy()
    for a, b in pairs:
        values[[a, b]] = np.minimum(values[a], values[b]), np.maximum(values[a], values[b])
    return values


def sorts(pairs: list[tuple[int, int]], inputs: np.ndarray) -> bool:
    return bool((np.diff(apply(pairs, inputs), axis=0) >= 0).all())


def halves(size: int) -> np.ndarray:
    """Every pair of sorted halves of zeros and ones: what a merging network must sort, by the 0-1 principle."""
    steps = np.arange(size // 2) >= np.arange(size // 2, -1, -1)[:, None]
    lower, upper = np.meshgrid(np.arange(len(steps)), np.arange(len(steps)))
    return np.vstack([steps[lower.ravel()].T, steps[upper.ravel()].T]).astype(np.int8)


def split(size: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The two sorts of the halves, and the merge."""
    count = 2 * len(NETWORKS[size // 2])
    return NETWORKS[size][:count], NETWORKS[size][count:]


def test_the_header_is_what_the_script_writes():
    spec = importlib.util.spec_from_file_location("networks", CUDA / "networks.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.text() == HEADER, "Run `python csrc/cuda/networks.py`."


def test_sizes():
    assert {size: len(pairs) for size, pairs in NETWORKS.items()} == {8: 19, 16: 63, 32: 191, 64: 543, 128: 1471}


@pytest.mark.parametrize("size", [8, 16])
def test_sorts_every_input_of_zeros_and_ones(size):
    inputs = (np.arange(2**size) >> np.arange(size)[:, None] & 1).astype(np.int8)
    assert sorts(NETWORKS[size], inputs)


@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_sorts_halves_with_the_smaller_network_and_merges_them(size):
    """With the test above this proves the networks up to 128, by induction and the 0-1 principle."""
    first, merge = split(size)
    half = NETWORKS[size // 2]
    assert first == half + [(a + size // 2, b + size // 2) for a, b in half]
    assert sorts(merge, halves(size))


@pytest.mark.parametrize("size", [16, 32, 64])
def test_the_proof_notices_every_dropped_comparator(size):
    _, merge = split(size)
    inputs = halves(size)
    for i in range(len(merge)):
        assert not sorts(merge[:i] + merge[i + 1 :], inputs), f"dropping {merge[i]} was not noticed"


@pytest.mark.parametrize("size", [8, 16, 32, 64, 128])
def test_the_compiled_network_sorts(simulated, reduce, size):
    """Sorted halves of zeros and ones through the kernel, whatever is trimmed: the sum tells how many ones are kept."""
    rows = np.ascontiguousarray(halves(size).astype(np.float32))
    ones = rows.sum(axis=0)
    for trim in range(1, size // 2):
        kept = np.clip(ones - trim, 0, size - 2 * trim)
        answer = reduce(simulated, rows, trim=trim, divisor=1.0)
        np.testing.assert_array_equal(answer.values, kept)
