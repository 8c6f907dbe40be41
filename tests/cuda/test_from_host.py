"""Updates in host memory: pieces through two sets of buffers, within a bound of device memory."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def small_device(monkeypatch):
    monkeypatch.setenv("FEDINCENTIVE_SHIM_MEMORY", str(250_000))


@pytest.mark.parametrize("n, trim, weighted", [(10, 2, False), (10, 2, True), (10, 0, True), (140, 30, False)])
def test_updates_larger_than_the_device(simulated, reduce, on_cpu, same, small_device, n, trim, weighted):
    """Over 1 MB of updates on a device of 250 KB: an allocation beyond that fails in the shim."""
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, 30_000 if n == 10 else 2_000)).astype(np.float32)
    rows[:3, 55] = np.nan
    weights = rng.random(n) if weighted else ()
    ours = reduce(simulated, rows, trim=trim, weights=weights, memory=10**6)
    cpu = on_cpu(rows, trim=trim, weights=weights)
    assert same(ours, cpu).all()
    assert (ours.not_finite, ours.clients) == (cpu.not_finite, cpu.clients)


def test_too_little_memory_says_how_much_is_needed(simulated, reduce):
    with pytest.raises(RuntimeError, match=r"1000 bytes, is too little for 10 clients; allow at least \d+"):
        reduce(simulated, np.zeros((10, 500), np.float32), memory=1000)


def test_no_device(simulated, reduce, monkeypatch):
    monkeypatch.setenv("FEDINCENTIVE_SHIM_DEVICES", "0")
    with pytest.raises(RuntimeError, match="looking for CUDA devices failed: no device"):
        reduce(simulated, np.zeros((10, 500), np.float32))


def test_nothing_to_do(simulated, reduce):
    answer = reduce(simulated, np.zeros((3, 0), np.float32), memory=10**6)
    assert (answer.not_finite, answer.clients) == (0, [])
