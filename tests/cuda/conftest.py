"""Builds csrc/cuda as C++ with the shim, so that the kernels' own source runs on the CPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

CHECKOUT = Path(__file__).parents[2]
SOURCES = CHECKOUT / "csrc"
SHIM = Path(__file__).parent / "shim"
CODES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
UNITS = ["float32.cu", "float64.cu", "float16.cu", "bfloat16.cu", "reduce.cu", "from_host.cu", "bindings.cpp"]
FLAGS = ["-std=c++17", "-O1", "-g0", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-unknown-pragmas"]
ASAN = ["-fsanitize=address", "-fno-omit-frame-pointer"]


def compile_unit(source: Path, output: Path, flags: Sequence[str]) -> Path:
    import pybind11

    include = [SHIM, pybind11.get_include(), sysconfig.get_path("include")]
    command = [os.environ.get("CXX", "g++"), *FLAGS, *flags, *(f"-I{folder}" for folder in include)]
    done = subprocess.run([*command, "-x", "c++", "-c", source, "-o", output], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert flags or "warning" not in done.stderr, done.stderr
    return output


def link(objects: Sequence[Path], output: Path, flags: Sequence[str]) -> Path:
    subprocess.run([os.environ.get("CXX", "g++"), "-shared", *flags, *objects, "-o", output], check=True)
    return output


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_cuda", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Build:
    """The module as built from the checkout, and how to build it again with one place of the source changed."""

    folder: Path
    flags: tuple[str, ...]
    objects: dict[str, Path]
    module: Path

    def changed(self, name: str, file: str, old: str, new: str, units: Sequence[str] = ("float32.cu",)) -> Path:
        tree = self.folder / name
        shutil.copytree(SOURCES / "cuda", tree / "cuda")
        shutil.copytree(SOURCES / "core", tree / "core")
        text = (tree / "cuda" / file).read_text()
        assert old in text, f"{old!r} is not in {file} any more"
        (tree / "cuda" / file).write_text(text.replace(old, new, 1))
        replaced = {unit: compile_unit(tree / "cuda" / unit, tree / f"{unit}.o", self.flags) for unit in units}
        return link(list({**self.objects, **replaced}.values()), tree / "_cuda.so", self.flags)


def build(folder: Path, flags: Sequence[str]) -> Build:
    jobs = {unit: SOURCES / "cuda" / unit for unit in UNITS} | {"shim.cpp": SHIM / "shim.cpp"}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = {unit: pool.submit(compile_unit, path, folder / f"{unit}.o", flags) for unit, path in jobs.items()}
        objects = {unit: future.result() for unit, future in done.items()}
    return Build(folder, tuple(flags), objects, link(list(objects.values()), folder / "_cuda.so", flags))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build(tmp_path_factory.mktemp("simulated"), [])


@pytest.fixture(scope="session")
def built_with_asan(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build(tmp_path_factory.mktemp("asan"), ASAN)


@pytest.fixture(scope="session")
def simulated(built: Build) -> ModuleType:
    """The module `fedincentive._cuda`, running on the CPU."""
    return load(built.module)


SPAN = 2048  # columns after which the CPU kernels may stop early


@dataclass(frozen=True)
class Answer:
    values: np.ndarray  # bfloat16 as its 16 bits
    not_finite: int
    weightless: int
    clients: list[int]
    rounding: np.ndarray | float = 0.0  # how far another order of summation may be from it


def request(rows, dtype, wide):
    outputs = np.full(rows.shape[1], 77, dtype=np.float64 if wide else rows.dtype)
    pointers = np.array([row.ctypes.data for row in rows], dtype=np.uint64)
    return outputs, (pointers, np.array([rows.shape[1]]), np.array([outputs.ctypes.data], dtype=np.uint64), len(rows))


def reduce_rows(module, rows, dtype="float32", trim=0, weights=(), divisor=0.0, wide=False, memory=None) -> Answer:
    """Calls a module's `reduce` (or `reduce_from_host`, if memory is given) on the rows of an array."""
    outputs, arrays = request(rows, dtype, wide)
    settings = (CODES[dtype], wide, trim, list(weights), divisor, 0)
    if memory is None:
        return Answer(outputs, *module.reduce(*arrays, *settings, 0, host_memory()))
    return Answer(outputs, *module.reduce_from_host(*arrays, *settings, memory, None))


def reduce_groups(module, groups, trim=0, weights=(), memory=None):
    """The results of several arrays (one row per client) in one call, and what was found."""
    outputs = [np.full(rows.shape[1], 77, rows.dtype) for rows in groups]
    given = (
        np.array([row.ctypes.data for rows in groups for row in rows], np.uint64),
        np.array([output.size for output in outputs]),
        np.array([output.ctypes.data for output in outputs], np.uint64),
        *(len(groups[0]), CODES[str(groups[0].dtype)], False, trim, list(weights), 0.0, 0),
    )
    if memory is None:
        return outputs, module.reduce(*given, 0, host_memory())
    return outputs, module.reduce_from_host(*given, memory, None)


def host_memory() -> Callable[[int], int]:
    """allocate(bytes) for the simulated device, whose memory is the host's: filled with rubbish, of the exact size."""
    held = []

    def allocate(size: int) -> int:
        held.append(np.full(size, 0xA5, np.uint8))
        return held[-1].ctypes.data

    return allocate


@pytest.fixture(scope="session")
def together() -> Callable[..., tuple[list[np.ndarray], tuple]]:
    return reduce_groups


@pytest.fixture(scope="session")
def device_memory() -> Callable[[], Callable[[int], int]]:
    return host_memory


@dataclass(frozen=True)
class Calls:
    """What was asked of the simulated device: launches, and the sizes of copies and allocations."""

    log: Path

    def of(self, what: str) -> list[int]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == what]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.setenv("FEDINCENTIVE_SHIM_CALLS", str(tmp_path / "calls"))
    return Calls(tmp_path / "calls")


def reduce_rows_on_cpu(rows, dtype="float32", trim=0, weights=(), divisor=0.0, wide=False) -> Answer:
    """The same request to the CPU kernels."""
    from fedincentive.aggregation import native

    def ask(columns, early):
        outputs, arrays = request(columns, dtype, wide)
        settings = ([], CODES[dtype], wide, trim, list(weights), divisor, 0.0, 1, native.isa(), early)
        *counts, clients, _ = native.load().reduce(*arrays, *settings)
        return outputs, counts, set(clients)

    outputs, counts, _ = ask(rows, early=False)
    # Clients are named only to a caller that may stop early, which within so few columns nobody does.
    spans = [rows[:, at : at + SPAN] for at in range(0, rows.shape[1], SPAN)]
    found = *counts, sorted(set().union(*(ask(columns, early=True)[2] for columns in spans)))
    values = widen(rows, dtype)
    if trim and not len(weights):
        return Answer(outputs, *found, rounding(values, dtype, trim, divisor))
    return Answer(outputs, *found, pair_rounding(values, dtype, weights, wide))


def pair_rounding(values: np.ndarray, dtype: str, weights: Sequence[float], wide: bool) -> np.ndarray | float:
    """Pairs of float32 have 48 bits where the CPU's float64 has 53: seen where values cancel, and in one rounding in
    millions."""
    if dtype == "float64" or wide:
        return 0.0
    size = np.abs(values).max(axis=0, initial=0.0, where=np.isfinite(values))
    return len(values) * 2.0**-46 * size


def rounding(values: np.ndarray, dtype: str, trim: int, divisor: float) -> np.ndarray:
    """The unweighted trimmed mean is added up four values at a time in their own precision on the CPU."""
    kept = np.abs(np.sort(values, axis=0)[trim : len(values) - trim])
    steps = {"float64": len(values) * 2.0**-52, "float32": 2.0**-22, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    with np.errstate(over="ignore", invalid="ignore"):
        return steps[dtype] * kept.sum(axis=0) / (divisor or len(kept)) + 2.0**-149


def same_results(ours: Answer, cpu: Answer, dtype: str = "float32") -> np.ndarray:
    """Per value: the same bits, or NaN in both (which NaN depends on the processor), or apart by rounding alone."""
    one, two = ours.values, cpu.values
    bits = f"u{one.itemsize}"
    with np.errstate(invalid="ignore"):
        near = (np.abs(widen(one, dtype) - widen(two, dtype)) <= cpu.rounding) & np.any(cpu.rounding)
    return (one.view(bits) == two.view(bits)) | ((one != one) & (two != two)) | near


@pytest.fixture(scope="session")
def same() -> Callable[[Answer, Answer], np.ndarray]:
    return same_results


@pytest.fixture(scope="session")
def reduce() -> Callable[..., Answer]:
    return reduce_rows


@pytest.fixture(scope="session")
def on_cpu() -> Callable[..., Answer]:
    return reduce_rows_on_cpu


def columns(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Every kind of input, as float64 columns of n clients."""
    normal = rng.normal(size=(n, 6))
    ties = rng.integers(-2, 3, size=(n, 6)).astype(float)
    huge = np.where(rng.random((n, 4)) < 0.3, 1e30 * np.sign(normal[:, :4]), normal[:, :4])
    bad = normal.copy()
    bad[rng.random(bad.shape) < 0.1] = np.nan
    infinite = np.where(rng.random((n, 6)) < 0.15, np.inf * np.sign(normal), ties)
    return {
        "normal": normal,
        "sorted": np.sort(normal, axis=0),
        "reversed": np.sort(normal, axis=0)[::-1],
        "constant": np.full((n, 2), 0.1),
        "ties": ties,
        "zeros": np.where(rng.random((n, 4)) < 0.5, -0.0, 0.0),
        "subnormal": 1e-40 * rng.integers(-9, 10, size=(n, 3)),
        "tiny": 1e-7 * rng.integers(-9, 10, size=(n, 2)),
        "huge": huge,
        "nan": bad,
        "infinite": infinite,
        "both": np.where(rng.random((n, 3)) < 0.2, np.nan, infinite[:, :3]),
        "all nan": np.full((n, 1), np.nan),
    }


def narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """float64 values in a dtype; bfloat16 by truncation, as 16 bits."""
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtype)
        bits = values.astype(np.float32).view(np.uint32)
        return np.where(np.isnan(values), 0x7FC0, bits >> 16).astype(np.uint16)


def widen(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype != "bfloat16":
        return values.astype(np.float64)
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def zoo_rows(n: int, dtype: str = "float32", seed: int = 0, kinds: Sequence[str] = ()) -> np.ndarray:
    """All kinds of input side by side: one row per client, in the given dtype."""
    chosen = columns(n, np.random.default_rng([seed, n]))
    return narrow(np.hstack([chosen[kind] for kind in kinds or chosen]), dtype)


@pytest.fixture(scope="session")
def zoo() -> Callable[..., np.ndarray]:
    return zoo_rows


@pytest.fixture(scope="session")
def wide() -> Callable[[np.ndarray, str], np.ndarray]:
    return widen


def run_hunt(module: Path, *arguments: str, asan: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs find_fault.py on a module, in a process of its own: one process can load only one module of a name."""
    if asan:
        compiler = os.environ.get("CXX", "g++")
        found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
        env |= {"LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
    command = [sys.executable, Path(__file__).with_name("find_fault.py"), module, *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


@pytest.fixture(scope="session")
def find_fault() -> Callable[..., subprocess.CompletedProcess[str]]:
    return run_hunt
