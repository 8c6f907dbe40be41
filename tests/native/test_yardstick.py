"""The benchmarks' plain mean: it builds here, and is the mean it says it is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fedincentive.aggregation import native

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "yardstick.py"


@pytest.fixture(scope="module")
def yardstick():
    spec = importlib.util.spec_from_file_location("yardstick", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("isa", native.load().supported_isas())
def test_plain_mean(isa, yardstick, needs, monkeypatch):
    needs("g++")
    monkeypatch.setenv("FEDINCENTIVE_ISA", isa)
    rng = np.random.default_rng(0)
    for clients, size in [(1, 1), (3, 0), (7, 31), (15, 8200), (100, 50_001)]:
        rows = list(rng.standard_normal((clients, size), dtype=np.float32))
        for threads in ("1", "3"):
            monkeypatch.setenv("FEDINCENTIVE_THREADS", threads)
            assert np.allclose(yardstick.plain_mean(rows), np.mean(rows, axis=0, dtype=np.float64), atol=1e-6)
