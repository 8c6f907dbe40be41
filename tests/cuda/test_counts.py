"""What is asked of the device, counted in the simulator: launches, bytes, allocations, contexts, loads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

# The arrays of a ResNet-50, 16 times smaller: 53 convolutions, each with scale and shift behind it, and a dense layer.
STAGES = ((64, 64, 256, 3), (256, 128, 512, 4), (512, 256, 1024, 6), (1024, 512, 2048, 3))


def resnet50() -> list[int]:
    sizes = [64 * 147, 64, 64]
    for inside, middle, outside, blocks in STAGES:
        for block in range(blocks):
            into = inside if block == 0 else outside
            for weights, channels in (
                (into * middle, middle),
                (middle * middle * 9, middle),
                (middle * outside, outside),
            ):
                sizes += [weights, channels, channels]
            if block == 0:
                sizes += [into * outside, outside, outside]
    return [*(max(1, size // 16) for size in sizes), 2048 * 1000 // 16, 62]


def rows_of(sizes, clients=3, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(clients, size)).astype(dtype) for size in sizes]


@pytest.mark.parametrize("clients, trim, times", [(5, 0, 20), (5, 2, 20), (140, 3, 3), (140, 60, 1)])
def test_two_launches_and_no_allocation_for_any_number_of_arrays(simulated, together, calls, clients, trim, times):
    groups = rows_of([3, 128, 1, 160, 0, 64] * times, clients)
    made, found = together(simulated, groups, trim)
    assert len(calls.of("launch")) == 2 and not calls.of("allocate") and len(calls.of("to")) == 1
    assert found == (0, 0, [])
    for rows, result in zip(groups, made, strict=True):
        expected = np.sort(rows.astype(float), axis=0)[trim : clients - trim].mean(axis=0)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


def test_host_arrays_are_copied_once(simulated, together, calls):
    """161 arrays of ResNet-50's shapes: packed, where each used to be copied with the whole buffer."""
    sizes = resnet50()
    assert len(sizes) == 161
    groups = rows_of(sizes)
    made, _ = together(simulated, groups, trim=1, memory=10**8)
    values = sum(sizes)
    tables = 8 * 161 * 6 + 256
    padding = 161 * 4 * 32
    assert 3 * 4 * values <= sum(calls.of("to")) <= 3 * 4 * values + tables + padding
    assert 4 * values <= sum(calls.of("from")) <= 4 * values + 64 + padding
    assert len(calls.of("launch")) == 2
    for rows, result in zip(groups, made, strict=True):
        assert np.array_equal(result, np.median(rows, axis=0))


def test_host_arrays_in_pieces(simulated, together, calls):
    """A device for a tenth of them: arrays are cut, no byte goes twice, all memory is one block within the bound."""
    groups = rows_of([5000, 1, 700, 40_000, 3, 128], clients=4)
    made, _ = together(simulated, groups, trim=1, weights=[1.0, 2, 3, 4], memory=80_000)
    whole, _ = together(simulated, groups, trim=1, weights=[1.0, 2, 3, 4])
    assert all(np.array_equal(a, b) for a, b in zip(made, whole, strict=True))
    assert [size <= 80_000 for size in calls.of("allocate")] == [True]
    values = 4 * 4 * sum(rows.shape[1] for rows in groups)
    assert len(calls.of("launch")) > 20 and sum(calls.of("to")) < 1.1 * values


def test_no_context_on_a_device_nobody_chose(simulated, reduce, calls, monkeypatch):
    """In a thread that never chose a device, device 0 is current though it has no context; it must not get one."""
    monkeypatch.setenv("FEDINCENTIVE_SHIM_DEVICES", "4")
    rows = np.ones((3, 5), np.float32)
    outputs = np.empty(5, np.float32)
    arrays = (np.array([row.ctypes.data for row in rows], np.uint64), np.array([5]))
    target = np.array([outputs.ctypes.data], np.uint64)
    memory = np.empty(10**6, np.uint8)

    def call():
        for device in (3, 2):
            simulated.reduce(*arrays, target, 3, 0, False, 1, [], 0.0, device, 0, lambda size: memory.ctypes.data)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert calls.of("context") == [3, 2]
    assert np.array_equal(outputs, rows[0])


def test_an_error_on_another_device_reaches_the_caller(simulated, monkeypatch):
    monkeypatch.setenv("FEDINCENTIVE_SHIM_DEVICES", "2")
    monkeypatch.setenv("FEDINCENTIVE_SHIM_MEMORY", "10")
    rows, outputs = np.ones((3, 500), np.float32), np.empty(500, np.float32)
    arrays = (np.array([row.ctypes.data for row in rows], np.uint64), np.array([500]))
    target = np.array([outputs.ctypes.data], np.uint64)
    with pytest.raises(RuntimeError, match="too little for 3 clients|out of memory"):
        simulated.reduce_from_host(*arrays, target, 3, 0, False, 1, [], 0.0, 1, 0, None)


@pytest.mark.parametrize(
    "driver, said", [("12040", "the driver here knows CUDA 12.4"), ("0", "no driver is installed")]
)
def test_an_old_driver_is_said_in_words(simulated, reduce, monkeypatch, driver, said):
    monkeypatch.setenv("FEDINCENTIVE_SHIM_DRIVER", driver)
    with pytest.raises(RuntimeError, match=f"built with CUDA 13.0, which needs an NVIDIA driver 580 or later; {said}"):
        reduce(simulated, np.zeros((3, 4), np.float32))
    assert "driver 580 or later" in simulated.info()["problem"]


@pytest.mark.parametrize(
    "n, trim, bad, weighted, times",
    [(20, 0, 1, False, 2), (20, 3, 4, False, 3), (20, 3, 19, True, 3), (100, 10, 60, False, 3), (140, 4, 30, False, 4)],
)
def test_bad_values_are_read_a_few_times_not_once_for_every_client(
    simulated, reduce, on_cpu, same, tmp_path, monkeypatch, n, trim, bad, weighted, times
):
    rows = np.random.default_rng(0).normal(size=(n, 64)).astype(np.float32)
    rows[:bad] = np.inf
    rows[: bad // 2] = np.nan
    weights = np.arange(1.0, n + 1) if weighted else ()
    monkeypatch.setenv("FEDINCENTIVE_SHIM_LOADS", str(tmp_path / "loads"))
    ours = reduce(simulated, rows, trim=trim, weights=weights)
    addresses = np.fromfile(tmp_path / "loads", dtype=np.uint64).reshape(-1, 2)[:, 1]
    mine = addresses[(addresses >= rows.ctypes.data) & (addresses < rows.ctypes.data + rows.nbytes)]
    assert len(mine) == times * rows.size
    cpu = on_cpu(rows, trim=trim, weights=weights)
    assert ours.clients == cpu.clients and ours.not_finite == 64 and same(ours, cpu).all()


def test_pairs_give_the_bits_of_float64_but_for_a_few(simulated, reduce, on_cpu):
    """Two-sums have 48 bits: another float32 than float64's 53 comes out once in millions."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 20_000)).astype(np.float32)
    for weights in ((), rng.integers(1, 1000, 9)):
        ours, cpu = reduce(simulated, rows, weights=weights), on_cpu(rows, weights=weights)
        assert (ours.values != cpu.values).sum() <= 2
    rows *= np.float32(1e-38)  # and where products underflow
    assert np.array_equal(reduce(simulated, rows, weights=weights).values, on_cpu(rows, weights=weights).values)


def test_sums_beyond_float32_and_weights_beyond_a_pair(simulated, reduce, on_cpu):
    huge = np.full((20, 3), 3e38, np.float32)
    huge[:, 1] *= -1
    spread = np.float64([1.0, 1e-60, 1e-60])
    values = np.float32([[1e30], [1.0], [2.0]])
    for trim in (0, 3):
        assert np.array_equal(reduce(simulated, huge, trim=trim).values, huge[0])
        assert np.array_equal(reduce(simulated, huge, trim=trim, weights=np.arange(1.0, 21)).values, huge[0])
    assert reduce(simulated, values, trim=1, weights=spread).values == [2.0]
    assert np.array_equal(reduce(simulated, values, weights=spread).values, on_cpu(values, weights=spread).values)
