"""Bit for bit the same for every instruction set, thread count and order-preserving split."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import library

from fedincentive.aggregation import median, native, reference, trimmed_mean, weighted_mean
from fedincentive.aggregation.kernel import squared_distances
from fedincentive.aggregation.testing import DTYPES, KINDS, updates
from fedincentive.aggregation.updates import read
from fedincentive.errors import SettingError

ISAS = native.load().supported_isas()
RULES = {
    "mean": lambda x, **kw: weighted_mean(x, **kw),
    "weighted": lambda x, **kw: weighted_mean(x, weights=range(1, len(x) + 1), **kw),
    "trimmed": lambda x, **kw: trimmed_mean(x, max(1, len(x) // 10), **kw),
    "weighted trimmed": lambda x, **kw: trimmed_mean(x, len(x) // 4, weights=range(1, len(x) + 1), **kw),
    "median": lambda x, **kw: median(x, **kw),
    "share": lambda x, **kw: trimmed_mean(x, share=0.1, weights=range(1, len(x) + 1), **kw),
}


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [3, 10, 33, 70, 130])
def test_instruction_sets_and_threads(rule, n, monkeypatch):
    for dtype in DTYPES:
        for kind in KINDS:
            x = updates(kind, n, 1111, dtype)
            seen = set()
            for isa in ISAS:
                monkeypatch.setenv("FEDINCENTIVE_ISA", isa)
                for threads in (1, 2, 5):
                    seen.add(bits(RULES[rule](x, threads=threads)))
            assert len(seen) == 1, (dtype, kind)


@pytest.mark.parametrize("rule", ["trimmed", "weighted trimmed", "median", "share"])
@pytest.mark.parametrize("n", [200, 1030])
def test_many_clients(rule, n, monkeypatch):
    """Where cuts are searched for, with few values and odd ones: a search ends whatever is sent."""
    for dtype in DTYPES:
        for kind in KINDS:
            x = updates(kind, n, 70, dtype)
            seen = set()
            for isa in ISAS:
                monkeypatch.setenv("FEDINCENTIVE_ISA", isa)
                seen.add(bits(RULES[rule](x)))
            assert len(seen) == 1, (dtype, kind)


@pytest.mark.parametrize("rule", RULES)
def test_threads_on_larger_data(rule):
    x = updates("normal", 12, 300_001)
    assert len({bits(RULES[rule](x, threads=threads)) for threads in (1, 2, 3, 7)}) == 1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_splits(rule, dtype):
    x = updates("normal", 21, 3000, dtype)
    whole = RULES[rule](x)
    rng = np.random.default_rng(0)
    for _ in range(5):
        cuts = [0, *sorted(rng.integers(0, 3001, 6)), 3000]
        parts = [RULES[rule]([row[a:b] for row in x]) for a, b in zip(cuts, cuts[1:], strict=False)]
        assert bits(np.concatenate(parts)) == bits(whole)
        named = [
            {str(a): row[a:b] for a, b in zip(sorted(set(cuts)), sorted(set(cuts))[1:], strict=False)} for row in x
        ]
        assert bits(np.concatenate(list(RULES[rule](named).values()))) == bits(whole)


def test_torch_bfloat16_and_flushed_subnormals(monkeypatch):
    torch = library("torch")
    x = [torch.randn(999).to(torch.bfloat16) for _ in range(17)]
    results = []
    for isa in ISAS:
        monkeypatch.setenv("FEDINCENTIVE_ISA", isa)
        results.append(bits(trimmed_mean(x, 3).view(torch.int16).numpy()))
    assert len(set(results)) == 1
    small = updates("subnormal", 9, 100)
    before = bits(trimmed_mean(small, 2))
    assert any(trimmed_mean(small, 2) != 0)
    try:
        torch.set_flush_denormal(True)
        flushed = bits(trimmed_mean(small, 2))
    finally:
        torch.set_flush_denormal(False)
    assert flushed == before


def test_distances(monkeypatch):
    for dtype in DTYPES:
        batch = read(updates("normal", 13, 70_001, dtype))
        seen = set()
        for isa in ISAS:
            monkeypatch.setenv("FEDINCENTIVE_ISA", isa)
            for threads in (1, 2, 5):
                seen.add(bits(squared_distances(batch, threads=threads)))
        assert len(seen) == 1


@pytest.mark.parametrize("n", range(2, 15))
def test_distances_of_any_number_of_clients(monkeypatch, n):
    """Several are compared at a time, how many depends on the registers; what is left over must not be forgotten."""
    x = updates("normal", n, 45_000 // n, np.float32, seed=n)
    expected = reference.squared_distances(x)
    for isa in ISAS:
        monkeypatch.setenv("FEDINCENTIVE_ISA", isa)
        for threads in (1, 3):
            assert np.allclose(squared_distances(read(x), threads=threads), expected, rtol=1e-6, atol=0)
            wide = squared_distances(read(np.float64(x)), threads=threads)
            assert np.allclose(wide, expected, rtol=1e-12, atol=0)
            assert np.allclose(read(x).squared_norms(threads=threads), np.square(np.float64(x)).sum(axis=1), rtol=1e-12)


def test_the_environment_switches(monkeypatch):
    monkeypatch.setenv("FEDINCENTIVE_ISA", "scalar")
    assert native.isa() == "scalar" and native.info()["isa"] == "scalar"
    monkeypatch.setenv("FEDINCENTIVE_ISA", "sse9")
    with pytest.raises(SettingError, match="sse9.*scalar"):
        native.isa()
    monkeypatch.delenv("FEDINCENTIVE_ISA")
    assert native.isa() == ISAS[-1]
    monkeypatch.setenv("FEDINCENTIVE_THREADS", "3")
    assert native.thread_count() == 3 and native.thread_count(1) == 1
    for wrong in ("0", "two", "-1"):
        monkeypatch.setenv("FEDINCENTIVE_THREADS", wrong)
        with pytest.raises(SettingError, match="FEDINCENTIVE_THREADS"):
            native.thread_count()
    with pytest.raises(SettingError, match="threads=0"):
        weighted_mean([np.ones(3)], threads=0)
