"""Aggregates updates of the 120,255,086-parameter Twitter LSTM from disk: peak memory, and time against reading alone.

    python benchmarks/larger_than_memory.py --clients 24 --folder DIR

writes one file per client (481 MB each), aggregates them in a process of its own and prints, from one run: its peak
resident memory, its time as a multiple of reading the same files once without any arithmetic (by one thread, one file
after the other; by two at a time; by two past the system's cache), and whether a slice of the result equals the
in-memory kernel bit for bit. --cold drops the system's cache before each pass (root); without it, updates that fit in
memory are read from there. Each aggregation writes a new file: over an old one, a file system may wait for the disk.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fedincentive.aggregation import StoredUpdate, StoredUpdates, store, trimmed_mean

# The LSTM's entries: embedding 400,001 x 300, two layers of 100, 128, 2 classes.
SHAPES = {
    "embedding.weight": (400_001, 300),
    "lstm.weight_ih_l0": (400, 300), "lstm.weight_hh_l0": (400, 100),
    "lstm.bias_ih_l0": (400,), "lstm.bias_hh_l0": (400,),
    "lstm.weight_ih_l1": (400, 100), "lstm.weight_hh_l1": (400, 100),
    "lstm.bias_ih_l1": (400,), "lstm.bias_hh_l1": (400,),
    "hidden.weight": (128, 100), "hidden.bias": (128,), "output.weight": (2, 128), "output.bias": (2,),
}  # fmt: skip
SLICE = 1_000_000
RESULT = "result.out"
READINGS = {"one": (1, 0), "two": (2, 0), "direct": (2, os.O_DIRECT)}  # threads, flags
WORDS = {"one": "by one thread", "two": "by two threads", "direct": "by two threads, past the system's cache"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--trim", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the files go; a temporary folder when not given")
    parser.add_argument("--cold", action="store_true", help="drop the page cache before each pass (root)")
    parser.add_argument("--pass", dest="role", choices=[*READINGS, "aggregate"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        print(json.dumps(measured(given.role, given.folder, given.trim)))
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="updates-"))
    try:
        compare(folder, given.clients, given.trim, given.cold)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


def compare(folder: Path, clients: int, trim: int, cold: bool) -> None:
    parameters = sum(int(np.prod(shape)) for shape in SHAPES.values())
    total = 4 * parameters * clients
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{clients} clients x {parameters:,} parameters, {total / 1e9:.1f} GB, trim {trim}", flush=True)
    for i in range(clients):
        path = folder / f"{i:03d}.safetensors"
        if not path.exists():
            random = np.random.default_rng(i)
            store(path, {name: random.standard_normal(shape, np.float32) for name, shape in SHAPES.items()})
    os.sync()
    best: dict[str, dict[str, float]] = {}
    for role in (*READINGS, "aggregate") * 3:
        (folder / RESULT).unlink(missing_ok=True)
        if cold:
            Path("/proc/sys/vm/drop_caches").write_text("1")
        command = [sys.executable, __file__, "--pass", role, "--folder", str(folder), "--trim", str(trim)]
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # NumPy's threads spin for a while after they were started
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=alone).stdout)
        print(f"  {role:<10} {found['seconds']:7.2f} s  {total / found['seconds'] / 1e9:5.2f} GB/s", flush=True)
        if role not in best or found["seconds"] < best[role]["seconds"]:
            best[role] = found
    for role, words in WORDS.items():
        print(f"time / reading the files once {words}: {best['aggregate']['seconds'] / best[role]['seconds']:.2f}")
    print(f"peak memory of the aggregation: {best['aggregate']['peak'] / 1e9:.2f} GB")
    print(f"a slice of {SLICE:,} equals the in-memory kernel bit for bit: {same_slice(folder, trim)}")


def measured(role: str, folder: Path, trim: int) -> dict[str, float]:
    paths = sorted(folder.glob("*.safetensors"))
    start = time.perf_counter()
    if role == "aggregate":
        trimmed_mean(StoredUpdates(paths, out=folder / RESULT), trim=trim)
    else:
        read_once(paths, *READINGS[role])
    seconds = time.perf_counter() - start
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())  # of this program alone
    return {"seconds": seconds, "peak": float(found[1]) * 1024 if found else 0.0}


def read_once(paths: list[Path], threads: int, flags: int) -> None:
    """Every file from start to end: what any aggregation must do at least."""

    def read(path: Path) -> None:
        buffer = mmap.mmap(-1, 2 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        buffer.madvise(mmap.MADV_HUGEPAGE)  # a disk fills one large page faster than many
        file = os.open(path, os.O_RDONLY | flags)
        try:
            while os.readv(file, [buffer]):
                pass
        finally:
            os.close(file)

    with ThreadPoolExecutor(threads) as readers:
        list(readers.map(read, paths))


def same_slice(folder: Path, trim: int) -> bool:
    """The first coordinates of the largest entry, aggregated in memory, against the file."""
    name = max(SHAPES, key=lambda entry: int(np.prod(SHAPES[entry])))
    held = []
    for path in sorted(folder.glob("*.safetensors")):
        with StoredUpdate(path) as update:
            held.append(np.empty(SLICE, np.float32))
            update.read_into(held[-1], name, 0)
    with StoredUpdate(folder / RESULT) as result:
        got = np.empty(SLICE, np.float32)
        result.read_into(got, name, 0)
    return bool(np.array_equal(got, trimmed_mean(held, trim=trim)))


if __name__ == "__main__":
    main()
