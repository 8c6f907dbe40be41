"""The plain mean the benchmarks compare with: yardstick.cpp, built once per run for this CPU's instruction set."""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from fedincentive.aggregation import native

SOURCE = Path(__file__).with_name("yardstick.cpp")
# The kernels' own flags, see setup.py.
FLAGS = ["-std=c++17", "-O3", "-g0", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-shared", "-pthread"]
ISA_FLAGS = {
    "scalar": [],
    "avx2": ["-mavx2"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"],
}


def compiler() -> list[str]:
    """The C++ compiler command, from CXX or the usual names."""
    for candidate in [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]:
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            return command
    raise SystemExit("The benchmarks need a C++ compiler for the mean they compare with: install g++, or set CXX.")


@functools.cache
def library(isa: str) -> ctypes.CDLL:
    """yardstick.cpp for one instruction set. Once it is loaded, its file is not needed any more."""
    with tempfile.TemporaryDirectory(prefix="yardstick-") as folder:
        target = Path(folder) / "yardstick.so"
        subprocess.run([*compiler(), *FLAGS, *ISA_FLAGS[isa], str(SOURCE), "-o", str(target)], check=True)
        loaded = ctypes.CDLL(str(target))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    loaded.plain_mean.argtypes = [pointer, number, number, pointer, number]
    loaded.plain_mean.restype = None
    return loaded


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def plain_mean(rows: list[np.ndarray]) -> np.ndarray:
    """The float32 mean of contiguous float32 rows, with the threads and the instruction set of the kernels."""
    out = np.empty(rows[0].size, np.float32)
    addresses = np.array([address(row) for row in rows], dtype=np.uint64)
    library(native.isa()).plain_mean(address(addresses), len(rows), out.size, address(out), native.thread_count())
    return out
