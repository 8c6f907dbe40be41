"""Files that are whole or not there: whoever else writes, whatever the name leads to, however the process ends."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from stored_ones import ones

from fedincentive.aggregation import StoredUpdate, StoredUpdates, median, store, tiles, weighted_mean, writing
from fedincentive.aggregation.stored import CHECKSUMS, CHUNK
from fedincentive.errors import AggregationError


@pytest.fixture(params=["without a name", "with one"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not whole yet has no name where the system can do that, and an odd one elsewhere."""
    if request.param == "with one":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)


@pytest.mark.usefixtures("either_way")
def test_the_last_of_two_writers_wins_whole(tmp_path: Path) -> None:
    paths = {value: store(tmp_path / f"{value}", {"w": np.full(10**6, value, np.float32)}) for value in (1, 2)}

    def write(value: int) -> None:
        weighted_mean(StoredUpdates([paths[value]], out=tmp_path / "out"))

    with ThreadPoolExecutor(2) as writers:
        for _ in range(10):
            list(writers.map(write, paths))
            with StoredUpdate(tmp_path / "out") as found:
                assert np.unique(found["w"]).size == 1
    assert sorted(os.listdir(tmp_path)) == ["1", "2", "out"]


@pytest.mark.usefixtures("either_way")
def test_a_disk_that_fills_up_halfway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "STRETCH", 3 * CHUNK)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(done: int, total: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * CHUNK, hard))

    try:
        with pytest.raises(AggregationError, match=r"out cannot be written: File too large\. Nothing was changed"):
            median(StoredUpdates(ones(tmp_path, size=40 * CHUNK), out=tmp_path / "out", progress=fill))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


FULL_DISK = """
import resource, signal, sys, numpy as np
from fedincentive.aggregation import store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
store(sys.argv[1], {"w": np.zeros(100_000, np.float32)})
"""


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = store(tmp_path / "update", {"w": np.float32([7])})
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "cannot be written: File too large. Nothing was changed there." in done.stderr
    assert os.listdir(tmp_path) == ["update"]
    with StoredUpdate(path) as kept:
        assert kept["w"].tolist() == [7.0]


KILLED = """
import os, signal, sys
from fedincentive.aggregation import StoredUpdates, median
median(StoredUpdates(sys.argv[2:], out=sys.argv[1], progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL)))
"""


def unnamed_files_here(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE))
    except OSError:
        return False
    return True


def test_a_killed_process_leaves_nothing_but_the_old_file(tmp_path: Path) -> None:
    paths = ones(tmp_path)
    before = store(tmp_path / "out", {"old": np.float32([7])}).read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "out", *paths], cwd=tmp_path, check=False)
    assert done.returncode == -9
    left = {path.name for path in tmp_path.iterdir()} - {"0", "1", "2", "out"}
    assert not left or not unnamed_files_here(tmp_path)
    assert (tmp_path / "out").read_bytes() == before


@pytest.mark.usefixtures("either_way")
def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/result")
    for _ in range(2):  # the first time it leads nowhere
        assert median(StoredUpdates(ones(tmp_path), out=tmp_path / "link")) == tmp_path / "link"
        assert (tmp_path / "link").is_symlink()
        assert os.listdir(tmp_path / "far") == ["result"]
        with StoredUpdate(tmp_path / "link") as found:
            assert found["w"].all()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("fifo", path)])
def test_what_is_not_a_file_is_not_replaced(tmp_path: Path, make) -> None:
    os.mkfifo(tmp_path / "fifo")
    make(tmp_path / "out")
    before = os.lstat(tmp_path / "out")
    with pytest.raises(AggregationError, match="out is not a file but a directory, a pipe or a device"):
        median(StoredUpdates(ones(tmp_path), out=tmp_path / "out"))
    assert os.path.samestat(os.lstat(tmp_path / "out"), before)
    with pytest.raises(AggregationError, match="not a file"):
        median(StoredUpdates(ones(tmp_path), out=""))


@pytest.mark.usefixtures("either_way")
def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    for out, words in (("nowhere/out", "No such file or directory"), ("0/out", "Not a directory")):
        with pytest.raises(AggregationError, match=f"{out} cannot be written: {words}. Nothing was changed there"):
            median(StoredUpdates(ones(tmp_path), out=tmp_path / out))
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


def test_a_folder_that_cannot_be_forced_to_the_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(writing, "sync_directory", fail)
    with pytest.raises(AggregationError, match="new was written, but may be lost with the machine's power"):
        store(tmp_path / "new", {"w": np.float32([1])}, durable=True)
    assert os.listdir(tmp_path) == ["new"]


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    assert store(tmp_path / ("x" * 255), {"w": np.float32([1])}).exists()


def test_permissions_are_those_of_other_new_files(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert store(tmp_path / "ours", {"w": np.float32([1])}).stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("name", ["1", "hard", "soft"])
def test_a_result_does_not_replace_an_update(tmp_path: Path, name: str) -> None:
    paths = ones(tmp_path)
    os.link(paths[1], tmp_path / "hard")
    os.symlink(paths[1], tmp_path / "soft")
    before = paths[1].read_bytes()
    with pytest.raises(AggregationError, match="1 of client '1' is also where the result should go"):
        median(StoredUpdates(paths, out=tmp_path / name))
    assert paths[1].read_bytes() == before


def test_what_all_files_say_of_themselves_is_kept(tmp_path: Path) -> None:
    paths = [
        store(tmp_path / f"{i}", {"w": np.float32([i])}, {"format": "pt", "agent": f"bank {i}", **more})
        for i, more in enumerate([{"first": "yes"}, {}])
    ]
    with StoredUpdate(median(StoredUpdates([*paths, {"w": np.float32([5])}], out=tmp_path / "out"))) as found:
        assert found.metadata == {"format": "pt"}
        assert found["w"].tolist() == [1.0]
    with StoredUpdate(median(StoredUpdates(paths[:1], out=tmp_path / "out"))) as found:
        assert CHECKSUMS not in found.metadata, "they would be of other bytes"
