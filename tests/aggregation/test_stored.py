"""Updates on disk: the same bits as in memory, and every kind of bad file named."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import library
from stored_ones import ones

from fedincentive.aggregation import (
    StoredUpdate,
    StoredUpdates,
    median,
    store,
    tiles,
    trimmed_mean,
    weighted_mean,
)
from fedincentive.aggregation.stored import CHECKSUMS, CHUNK
from fedincentive.errors import AggregationError


def updates(n: int, seed: int = 0, rows: int = 700) -> list[dict[str, np.ndarray]]:
    """Entries of several dtypes; the first spans several chunks, one is empty, one a counter."""
    random = np.random.default_rng(seed)
    return [
        {
            "weight": random.normal(size=(rows, 300)).astype(np.float32),
            "bias": random.normal(size=13),
            "half": random.normal(size=(3, 5)).astype(np.float16),
            "nothing": np.zeros((0, 4), np.float32),
            "counter": np.array(random.integers(100)),
        }
        for _ in range(n)
    ]


def same(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return list(got) == list(wanted) and all(
        got[name].dtype == wanted[name].dtype and np.array_equal(got[name], wanted[name]) for name in wanted
    )


@pytest.fixture
def five(tmp_path: Path) -> tuple[list[dict[str, np.ndarray]], list[Path]]:
    held = updates(5)
    return held, [store(tmp_path / f"{i}.safetensors", update) for i, update in enumerate(held)]


@pytest.mark.parametrize("memory", [1, 10 * CHUNK, 20 * CHUNK, 2**30])
@pytest.mark.parametrize("weights", [None, [1, 2, 3, 4, 5]])
def test_files_give_the_bits_of_memory(five, memory: int, weights: list[float] | None) -> None:
    held, paths = five
    stored = StoredUpdates(paths, memory=memory)
    assert same(weighted_mean(stored, weights), weighted_mean(held, weights))
    assert same(trimmed_mean(stored, trim=1, weights=weights), trimmed_mean(held, trim=1, weights=weights))
    assert same(median(stored), median(held))


@given(n=st.integers(1, 7), on_disk=st.sets(st.integers(0, 6)), seed=st.integers(0, 100))
def test_a_mix_of_files_and_memory(
    tmp_path_factory: pytest.TempPathFactory, n: int, on_disk: set[int], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    held = updates(n, seed, rows=3)
    mixed = [store(folder / str(i), update) if i in on_disk else update for i, update in enumerate(held)]
    assert same(median(mixed), median(held))


def test_the_result_can_go_to_a_file(five, tmp_path: Path) -> None:
    held, paths = five
    out = trimmed_mean(StoredUpdates(paths, out=tmp_path / "out.safetensors", memory=10 * CHUNK), trim=2)
    with StoredUpdate(out) as found:
        assert same(dict(found), trimmed_mean(held, trim=2))


def test_progress_counts_every_byte_once(five, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several calls of the kernel for one entry, too."""
    monkeypatch.setattr(tiles, "STRETCH", 10 * CHUNK)
    held, paths = five
    seen: list[tuple[int, int]] = []
    result = median(StoredUpdates(paths, memory=10 * CHUNK, progress=lambda done, total: seen.append((done, total))))
    assert same(result, median(held))
    total = sum(array.nbytes for update in held for array in update.values())
    assert len(seen) > len(held[0]) and seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_what_the_safetensors_library_writes_is_read_and_ours_is_read_by_it(tmp_path: Path) -> None:
    peer = library("safetensors.torch")
    torch = library("torch")
    states = [{"w": torch.randn(70, 900), "b": torch.randn(9).bfloat16(), "n": torch.tensor(3 + i)} for i in range(5)]
    for i, state in enumerate(states):
        peer.save_file(state, tmp_path / f"{i}.theirs")
        store(tmp_path / f"{i}.ours", state)
        back = peer.load_file(tmp_path / f"{i}.ours")
        assert all(torch.equal(back[name], state[name]) for name in state)
    wanted = trimmed_mean(states, trim=1)
    for kind in ("theirs", "ours"):
        got = trimmed_mean([tmp_path / f"{i}.{kind}" for i in range(5)], trim=1)
        assert all(torch.equal(torch.as_tensor(got[name]), wanted[name]) for name in wanted)


def test_not_finite_values_raise_or_drop_as_in_memory(five, tmp_path: Path) -> None:
    held, paths = five
    held[3]["weight"][600, 7] = np.nan
    store(paths[3], held[3])
    out = tmp_path / "out.safetensors"
    with pytest.raises(AggregationError, match=r"1 coordinates keep a NaN .* clients 3 \(.*3\.safetensors\)\."):
        weighted_mean(StoredUpdates(paths, out=out))
    assert not out.exists() and not list(tmp_path.glob(".*"))
    dropped = StoredUpdates(paths, out=out, memory=10 * CHUNK)
    with StoredUpdate(weighted_mean(dropped, nan_policy="drop")) as found:
        assert same(dict(found), weighted_mean(held, nan_policy="drop"))
    assert dropped.dropped == [3]
    assert not list(tmp_path.glob(".*"))
    command = [sys.executable, "-m", "fedincentive.cli", "aggregate", "--rule", "mean", "--nan-policy", "drop"]
    done = subprocess.run([*command, "--out", out, *paths], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "mean of 4 updates" in done.stdout and "3.safetensors was dropped: it has a NaN" in done.stderr


def damaged(path: Path, change: str) -> None:
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    if change == "flip":
        data[8 + length + 5 * CHUNK // 2] ^= 4
    elif change == "cut":
        del data[-3:]
    elif change == "grown":
        data += b"..."
    elif change == "foreign":
        data[:] = b"PK\x03\x04 this is an archive of something else"
    elif change == "empty":
        data.clear()
    elif change == "header":
        data[8:10] = b"]["
    elif change == "deep":
        data[:] = struct.pack("<Q", 10**5) + b"[" * 10**5
    elif change == "hole":
        header = json.loads(data[8 : 8 + length])
        del header["bias"]
        text = json.dumps(header).encode()
        data[: 8 + length] = struct.pack("<Q", len(text)) + text
    else:
        header = json.loads(data[8 : 8 + length])
        sums = json.loads(header["__metadata__"][CHECKSUMS])
        if change == "extent":
            header["bias"]["shape"] = [10**9]
        elif change == "overlap":
            header["half"]["data_offsets"] = [offset - 8 for offset in header["half"]["data_offsets"]]
        elif change == "tiny floats":
            header["half"]["dtype"] = "F8_E4M3"
        elif change == "few":
            sums["weight"] = sums["weight"][:-8]
        elif change == "wild":
            sums["weight"] = "?" + sums["weight"][1:]
        elif change == "endless":
            sums["weight"] = float("inf")
        elif change == "torn":
            sums["weight"] = sums["weight"][4:]
        elif change == "none":
            sums["weight"] = ""
        elif change == "forgotten":
            del sums["weight"]
        header["__metadata__"][CHECKSUMS] = json.dumps(sums)
        text = json.dumps(header).encode()
        data[: 8 + length] = struct.pack("<Q", len(text)) + text
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("flip", "is damaged in entry 'weight' \\(chunk 2\\)"),
        ("cut", "has .* bytes, .* is truncated or damaged"),
        ("grown", "has .* bytes, .* is truncated or damaged"),
        ("foreign", "is not a safetensors file: .* known by .pt"),
        ("empty", "is not a safetensors file"),
        ("header", "is not a safetensors file"),
        ("deep", "is not a safetensors file"),
        ("hole", "is not a safetensors file: .* begins at"),
        ("overlap", "is not a safetensors file: .*'half' begins at"),
        ("tiny floats", "has entry 'half' as 'F8_E4M3': convert it to one of F64, F32"),
        ("extent", "is not a safetensors file: .* does not fit"),
        ("few", "is not a safetensors file: .* checksums do not fit"),
        ("wild", "is not a safetensors file"),
        ("endless", "is not a safetensors file"),
        ("torn", "is not a safetensors file"),
        ("none", "is not a safetensors file: .* checksums do not fit"),
        ("forgotten", "is not a safetensors file: .*'weight'"),
    ],
)
def test_a_bad_file_is_named_with_its_client(five, tmp_path: Path, change: str, words: str) -> None:
    _, paths = five
    damaged(paths[2], change)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AggregationError, match=f"2.safetensors of client '2' {words}"):
        weighted_mean(StoredUpdates(paths, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pipe_or_a_directory_is_no_update(five, tmp_path: Path) -> None:
    _, paths = five
    os.mkfifo(tmp_path / "pipe")
    for bad, message in (
        ("pipe", "pipe of client '5' is not a file"),
        ("", "The folder .* is not one client's update"),
    ):
        with pytest.raises(AggregationError, match=message):
            median([*paths, tmp_path / bad])


def test_no_metadata_may_be_said_aloud(tmp_path: Path) -> None:
    text = b'{"__metadata__":null,"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(text)) + text + np.float32(3).tobytes())
    assert median([tmp_path / "a"])["w"].tolist() == [3.0]


def test_beside_files_the_client_at_fault_is_named(tmp_path: Path) -> None:
    paths = ones(tmp_path, size=8)
    with pytest.raises(AggregationError, match="Client 3's entry 'w' has dtype complex128"):
        median([*paths, {"w": np.ones(2, complex)}])
    with pytest.raises(AggregationError, match="in memory of client 3 has 'w' as F64"):
        median([*paths, {"w": np.ones(2)}])
    with pytest.raises(AggregationError, match="The entry 'w' has dtype complex128"):
        store(tmp_path / "new", {"w": np.ones(2, complex)})


def test_damage_in_the_last_values_is_found(tmp_path: Path) -> None:
    """The last chunk is shorter than the others."""
    paths = ones(tmp_path)
    data = bytearray(paths[1].read_bytes())
    data[-1] ^= 1
    paths[1].write_bytes(data)
    with pytest.raises(AggregationError, match=r"client '1' is damaged in entry 'w' \(chunk 5\)"):
        median(paths)


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path: Path) -> None:
    opened = [StoredUpdate(path, f"bank {i}") for i, path in enumerate(ones(tmp_path))]
    os.truncate(tmp_path / "2", CHUNK)
    with pytest.raises(AggregationError, match="2 of client 'bank 2' ends inside entry 'w': it was cut while"):
        trimmed_mean(StoredUpdates(opened, out=tmp_path / "out"), trim=1)
    for update in opened:
        update.close()
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


def test_a_file_that_cannot_be_read_any_more_is_named(tmp_path: Path) -> None:
    opened = [StoredUpdate(path, f"bank {i}") for i, path in enumerate(ones(tmp_path))]
    folder = os.open(tmp_path, os.O_RDONLY)
    os.dup2(folder, opened[1]._file)
    os.close(folder)
    with pytest.raises(AggregationError, match="1 of client 'bank 1' cannot be read in entry 'w': Is a directory"):
        weighted_mean(StoredUpdates(opened))
    for update in opened:
        update.close()


def test_a_closed_update_is_named(tmp_path: Path) -> None:
    opened = [StoredUpdate(path, f"bank {i}") for i, path in enumerate(ones(tmp_path))]
    opened[1].close()
    with pytest.raises(AggregationError, match="1 of client 'bank 1' is closed: open it again"):
        median(opened)
    for update in opened:
        update.close()


def test_mismatches_and_missing_files_are_named(five, tmp_path: Path) -> None:
    held, paths = five
    store(paths[1], {**held[1], "bias": np.zeros(12)})
    with pytest.raises(AggregationError, match=r"client '1' has 'bias' as F64 \[12\], but client 0's is F64 \[13\]"):
        median(paths)
    store(paths[1], {"weight": held[1]["weight"]})
    with pytest.raises(AggregationError, match=r"client '1' lacks \['bias', "):
        median(paths)
    with pytest.raises(AggregationError, match="nowhere of client '0' cannot be opened: No such file"):
        median([tmp_path / "nowhere"])
    with pytest.raises(AggregationError, match="no updates"):
        median(StoredUpdates([]))


PEAK = """
import resource, sys
import fedincentive
from fedincentive.aggregation import StoredUpdates
memory, out, *paths = sys.argv[1:]
fedincentive.trimmed_mean(StoredUpdates(paths[:2], out=out, memory=2**20), trim=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fedincentive.trimmed_mean(StoredUpdates(paths, out=out, memory=int(memory)), trim=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("megabytes", [8, 64])
def test_peak_memory_does_not_grow_with_the_clients(tmp_path: Path, megabytes: int) -> None:
    paths = [store(tmp_path / f"{i}", {"w": np.full(2**22, i, np.float32)}) for i in range(12)]  # 200 MB in all
    command = [sys.executable, "-c", PEAK, megabytes * 2**20, tmp_path / "out", *paths]
    done = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) < (megabytes + 8) * 1024, "kilobytes"


def test_integers_take_no_more_memory_than_is_allowed(tmp_path: Path) -> None:
    update = {"counts": np.arange(24 * 2**20, dtype=np.uint8)}
    paths = [store(tmp_path / f"{i}", update) for i in range(2)]
    tracemalloc.start()
    median(StoredUpdates(paths, out=tmp_path / "out", memory=2**20))
    assert tracemalloc.get_traced_memory()[1] < 2 * 2**20
    tracemalloc.stop()
    with StoredUpdate(tmp_path / "out") as found:
        assert np.array_equal(found["counts"], update["counts"])


def test_the_command(five, tmp_path: Path) -> None:
    held, paths = five
    base = [sys.executable, "-m", "fedincentive.cli", "aggregate"]
    line = [*base, "--rule", "trimmed-mean", "--trim", "2", "--out", "out.safetensors", *map(str, paths)]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "out.safetensors: trimmed-mean of 5 updates" in done.stdout
    with StoredUpdate(tmp_path / "out.safetensors") as found:
        assert same(dict(found), trimmed_mean(held, trim=2))
    for extra, words in (
        (["--trim", "3"], "trim=3 per side leaves nothing of n=5"),
        (["--rule", "median", "--trim", "1"], "belong to --rule trimmed-mean"),
        ([], "needs either --trim or --alpha"),
        (["--rule", "mean", "--weights", "1,x"], "--weights is '1,x'"),
    ):
        done = subprocess.run(
            [*base, *extra, "--out", "o2", *map(str, paths)], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "o2").exists()


MANY = """
import resource, sys
from fedincentive.aggregation import StoredUpdate, median
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[1:3])))
opened = [StoredUpdate(path) for path in sys.argv[3:]]
open(opened[0].path).close()
print(median(opened)["w"])
"""


def test_more_files_than_a_process_may_open_at_first(tmp_path: Path) -> None:
    paths = [store(tmp_path / str(i), {"w": np.float32([i])}) for i in range(200)]

    def median_of(count: int, most: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", MANY, "64", str(most), *map(str, paths[:count])]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    for count in (200, *range(50, 63)):  # some of them take all there were at first
        done = median_of(count, 400)
        assert done.stdout == f"[{(count - 1) / 2:g}{'' if count % 2 == 0 else '.'}]\n", done.stderr
    assert "Too many open files; allow this process more (ulimit -n)." in median_of(200, 64).stderr


def test_the_command_without_anyone_to_tell(five, tmp_path: Path) -> None:
    line = f"{sys.executable} -m fedincentive.cli aggregate --rule mean --out out *.safetensors >&- 2>&-"
    assert subprocess.run(line, shell=True, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "out").exists()
