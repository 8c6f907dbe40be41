"""The CUDA kernels on a device, against torch on the same tensors. Skips where there is no device.

    pytest benchmarks/test_cuda.py --benchmark-only -s

prints, per number of clients, the bandwidth as a share of the device's peak and each peer's time over ours.
"""

from __future__ import annotations

import pytest

from fedincentive.aggregation import cuda, trimmed_mean, weighted_mean

torch = pytest.importorskip("torch")
CLIENTS = [4, 10, 20, 32, 64, 100, 128, 256, 512, 1024]
BYTES = 1 << 30
RUNS = 10


@pytest.fixture(scope="module")
def peak() -> float:
    """The device's memory bandwidth in bytes a second."""
    info = cuda.info()
    if not info["devices"] or not torch.cuda.is_available():
        reason = info["problem"] or "this torch has no CUDA"
        pytest.skip(f"NOT MEASURED: no CUDA device can be used ({reason}).")
    return info["devices"][0]["bandwidth"]


@pytest.fixture
def updates(n: int) -> list:
    return list(torch.randn(n, BYTES // 4 // n, device="cuda"))


def seconds(call) -> float:
    """The time of one call, by the device's own clock, after a warm-up."""
    call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(RUNS):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / RUNS


def by_sort(stacked, trim: int):
    return torch.sort(stacked, dim=0).values[trim : len(stacked) - trim].mean(dim=0)


@pytest.mark.parametrize("n", CLIENTS)
def test_trimmed_mean(benchmark, peak, updates, n):
    trim = max(1, n // 10)
    stacked = torch.stack(updates)
    torch.testing.assert_close(trimmed_mean(updates, trim), by_sort(stacked, trim), rtol=1e-5, atol=1e-6)
    ours = seconds(lambda: trimmed_mean(updates, trim))
    mean, sort = seconds(lambda: stacked.mean(dim=0)), seconds(lambda: by_sort(stacked, trim))
    share = f"{BYTES / ours / peak:.0%} of peak" if peak else f"{BYTES / ours / 1e9:.0f} GB/s"
    print(
        f"\nn={n:<5} trim={trim:<4} {share}; ours / torch.mean {ours / mean:.2f}; torch.sort / ours {sort / ours:.1f}"
    )
    benchmark.extra_info.update(ours=ours, mean=mean, sort=sort, peak=peak)
    benchmark(lambda: trimmed_mean(updates, trim))


@pytest.mark.parametrize("n", CLIENTS)
def test_weighted_mean(benchmark, peak, updates, n):
    weights = [1.0 + i for i in range(n)]
    stacked, factors = torch.stack(updates), torch.tensor(weights, device="cuda") / sum(weights)
    torch.testing.assert_close(weighted_mean(updates, weights), factors @ stacked, rtol=1e-4, atol=1e-5)
    ours, mean = seconds(lambda: weighted_mean(updates, weights)), seconds(lambda: stacked.mean(dim=0))
    share = f"{BYTES / ours / peak:.0%} of peak" if peak else f"{BYTES / ours / 1e9:.0f} GB/s"
    print(f"\nn={n:<5} {share}; ours / torch.mean {ours / mean:.2f}")
    benchmark.extra_info.update(ours=ours, mean=mean, peak=peak)
    benchmark(lambda: weighted_mean(updates, weights))
