"""Every client and coordinate is loaded once, and the threads of a warp load neighbouring coordinates."""

from __future__ import annotations

import numpy as np
import pytest

CASES = {
    "mean": (6, 0, False, 1),
    "network of 16": (10, 2, False, 1),
    "weighted network of 16": (10, 2, True, 1),
    "network of 128": (100, 10, False, 1),
    "displaced": (140, 3, False, 1),
    "warp": (140, 60, False, 1),
    "streamed": (1030, 100, False, None),  # again for every step of the search
}


def loads(reduce, simulated, tmp_path, monkeypatch, rows, trim, weights) -> np.ndarray:
    """(thread, address) of every load from the clients' memory, in order."""
    log = tmp_path / "loads"
    monkeypatch.setenv("FEDINCENTIVE_SHIM_LOADS", str(log))
    reduce(simulated, rows, trim=trim, weights=weights)
    everything = np.fromfile(log, dtype=np.uint64).reshape(-1, 2)
    begin, end = rows.ctypes.data, rows.ctypes.data + rows.nbytes
    return everything[(everything[:, 1] >= begin) & (everything[:, 1] < end)]


@pytest.mark.parametrize("name", CASES)
def test_loads(reduce, simulated, tmp_path, monkeypatch, name):
    n, trim, weighted, times = CASES[name]
    size = 256
    rows = np.random.default_rng(0).normal(size=(n, size)).astype(np.float32)
    found = loads(reduce, simulated, tmp_path, monkeypatch, rows, trim, np.ones(n) if weighted else ())
    places = ((found[:, 1] - rows.ctypes.data) // 4).astype(int)
    counts = np.bincount(places, minlength=n * size)
    if times is None:
        assert (counts.reshape(n, size) == counts[:size]).all() and counts.max() <= 2 + 1 + 17
    else:
        assert (counts == times).all()
    # The i-th load of each thread: lanes of a warp read one client, 32 coordinates side by side.
    threads = found[:, 0].astype(int)
    order = np.argsort(threads, kind="stable")
    threads, places = threads[order], places[order]
    starts = np.searchsorted(threads, threads)
    index = np.arange(len(threads)) - starts
    warps = threads // 32
    for warp in np.unique(warps)[:8]:
        mine = warps == warp
        for i in range(index[mine].max() + 1 if times else 3):
            lanes = places[mine & (index == i)]
            assert (np.diff(lanes) == 1).all() and len(lanes) == 32
