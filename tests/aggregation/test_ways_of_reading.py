"""Copied, mapped where the system has them, straight from the disk: the same bits and the same errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_ones import ones

from fedincentive.aggregation import StoredUpdate, StoredUpdates, median, native, store, stored, trimmed_mean
from fedincentive.aggregation.stored import CHUNK, LARGE, Way
from fedincentive.aggregation.writing import LINE
from fedincentive.errors import AggregationError


@pytest.fixture(params=["MAPPED", "DIRECT"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Every file is read so, whatever its size."""
    chosen = Way[request.param]
    monkeypatch.setattr(stored, "LARGE", 0)
    monkeypatch.setattr(native.load(), "cached_share", lambda file, size: float(chosen is Way.MAPPED))
    return chosen


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("size", [1, 1000, CHUNK // 4, 3 * CHUNK // 4 + 1, 2**20 + 77])
def test_every_way_of_reading_gives_the_same(way: Way, tmp_path: Path, size: int, dtype: type) -> None:
    """Sizes and offsets that are no multiples of a page or a disk's blocks, more than one piece."""
    updates = [
        {"odd": np.arange(i, i + 3, dtype=np.uint8), "w": np.random.default_rng(i).normal(size=size).astype(dtype)}
        for i in range(5)
    ]
    opened = [StoredUpdate(store(tmp_path / f"{i}", update)) for i, update in enumerate(updates)]
    even = [
        StoredUpdate(store(tmp_path / f"{i}.even", {name: update[name] for name in ("w", "odd")}))
        for i, update in enumerate(updates)
    ]
    wanted = trimmed_mean([update["w"] for update in updates], trim=1)
    for files in (opened, even, [*even[:2], updates[2], *opened[3:]]):
        result = trimmed_mean(StoredUpdates(files, memory=100 * CHUNK), trim=1)
        assert np.array_equal(result["w"], wanted)
    for update in opened + even:
        assert update.way is way
        update.close()


def test_the_last_descriptors_are_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "LARGE", 0)
    monkeypatch.setattr(native.load(), "cached_share", lambda file, size: 0.0)
    monkeypatch.setattr("fedincentive.files.more_files", lambda: False)
    with StoredUpdate(ones(tmp_path)[0]) as update:
        before = os.listdir("/proc/self/fd")
        monkeypatch.setattr("fedincentive.files.FILES_OF_OTHERS", 2**40)
        assert update.choose_way() is Way.COPIED and os.listdir("/proc/self/fd") == before
        monkeypatch.setattr("fedincentive.files.FILES_OF_OTHERS", 0)
        assert update.choose_way() is Way.DIRECT


@pytest.mark.parametrize("megabytes, workers", [(4, 1), (16, 3), (64, 8)])
def test_a_disk_is_asked_for_long_pieces_also_with_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int, workers: int
) -> None:
    """24 updates through 16 MB were read 16 KB at a time, which took twice as long as reading them once."""
    monkeypatch.setattr(stored, "LARGE", 0)
    monkeypatch.setattr(native.load(), "cached_share", lambda file, size: 0.0)
    asked, reduce_files = [], native.load().reduce_files

    def spy(*told: Any) -> Any:
        asked.append((told[3], told[-3]))
        return reduce_files(*told)

    monkeypatch.setattr(native.load(), "reduce_files", spy)
    values = np.arange(64 * CHUNK, dtype=np.float32)
    paths = [store(tmp_path / f"{i}", {"w": values + i}) for i in range(24)]
    result = trimmed_mean(StoredUpdates(paths, memory=megabytes * 2**20), trim=2, threads=2)
    assert np.array_equal(result["w"], trimmed_mean([values + i for i in range(24)], trim=2))
    ((piece, threads),) = set(asked)
    assert threads == workers and (piece >= stored.CHUNK * 8 or threads == 1)
    assert threads * (25 * piece + 2 * 2**20) <= megabytes * 2**20


def test_damage_is_found_in_every_way_of_reading(way: Way, tmp_path: Path) -> None:
    paths = ones(tmp_path, size=40 * CHUNK)
    data = bytearray(paths[1].read_bytes())
    data[-9] ^= 1
    paths[1].write_bytes(data)
    with pytest.raises(AggregationError, match=r"client '1' is damaged in entry 'w' \(chunk 39\)"):
        median(paths)


def test_a_file_cut_before_it_is_read_is_named_in_every_way(way: Way, tmp_path: Path) -> None:
    for keep in (20 * CHUNK, 20 * CHUNK + 100):
        opened = [StoredUpdate(path, f"bank {i}") for i, path in enumerate(ones(tmp_path, size=40 * CHUNK))]
        os.truncate(tmp_path / "2", keep)
        with pytest.raises(AggregationError, match="2 of client 'bank 2' ends inside entry 'w'"):
            trimmed_mean(StoredUpdates(opened, out=tmp_path / "out"), trim=1)
        for update in opened:
            update.close()


CUT = """
import os, sys, threading, time
from fedincentive.aggregation import StoredUpdate, StoredUpdates, stored, trimmed_mean
from fedincentive.errors import AggregationError

paths = sys.argv[1:]
size = os.path.getsize(paths[1])
updates = [StoredUpdate(path, f"bank {i}") for i, path in enumerate(paths)]
values = open(paths[1], "rb").read()
start = time.perf_counter()
trimmed_mean(StoredUpdates(updates), trim=1)
took = time.perf_counter() - start
assert all(update.way is stored.Way.MAPPED for update in updates)
cut = turn = 0
while turn < 40 or (cut < 5 and turn < 2000):  # a busy machine may come too late many times
    cutter = threading.Timer(turn % 40 / 40 * took, os.truncate, (paths[1], size // 3))
    turn += 1
    cutter.start()
    try:
        trimmed_mean(StoredUpdates(updates), trim=1)
    except AggregationError as error:
        assert "1 of client 'bank 1' ends inside entry 'w': it was cut while it was being read." in str(error), error
        cut += 1
    cutter.join()
    with open(paths[1], "r+b") as file:
        file.write(values)
print(cut)
"""


def test_a_file_cut_while_it_is_mapped_is_named_and_ends_nothing(tmp_path: Path) -> None:
    """At forty moments of an aggregation at least. Only what was read before the cut can be without error."""
    for i in range(3):
        store(tmp_path / f"{i}", {"w": np.ones(6 * 2**20, np.float32)})
    command = [sys.executable, "-c", CUT, *(str(tmp_path / f"{i}") for i in range(3))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    assert int(done.stdout) >= 5


def test_large_updates_begin_at_different_lines_of_the_cache(tmp_path: Path) -> None:
    """Or the same coordinates of all clients would be kept at the same place there."""
    random = np.random.default_rng(0)
    paths = [store(tmp_path / f"{i}", {"w": random.random(LARGE // 4, np.float32)}) for i in range(6)]
    small = store(tmp_path / "small", {"w": random.random(100)})
    begins = []
    for path in (*paths, small):
        with StoredUpdate(path) as update:
            begins.append(update.slots["w"].offset)
    assert all(begin % LINE == 0 for begin in begins) and begins[-1] < 4096
    assert len({begin % 4096 for begin in begins[:-1]}) > 3
    assert max(begins) < 2**16 + 2**14
    with StoredUpdate(paths[0]) as update:
        again = store(tmp_path / "again", dict(update))
    assert again.read_bytes() == paths[0].read_bytes()


def test_a_file_in_use_is_in_the_cache(tmp_path: Path) -> None:
    path = store(tmp_path / "w", {"w": np.ones(10 * CHUNK, np.float32)})
    with open(path, "rb") as file:
        assert len(file.read()) == path.stat().st_size
        assert native.load().cached_share(file.fileno(), path.stat().st_size) == 1.0
        assert native.load().cached_share(file.fileno(), 0) == 1.0
