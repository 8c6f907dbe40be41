"""What nvcc makes of the kernels: no stack, no spills, few registers, one coalesced load per client and coordinate."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from missing import missing

SOURCES = Path(__file__).parents[2] / "csrc" / "cuda"
DTYPES = ["float32", "float64", "float16", "bfloat16"]
DEVICES = ["sm_86", "sm_90"]
# Of 65,536: so that 1536, 1024, 640 and 384 threads are resident.
REGISTERS = {8: 40, 16: 40, 32: 56, 64: 96, 128: 168}
COMPARATORS = {8: 19, 16: 63, 32: 191, 64: 543, 128: 1471}
FLAGS = ["-std=c++17", "-O3", "--fmad=false"]


def nvcc() -> str:
    home = os.environ.get("CUDA_HOME")
    found = (
        shutil.which(f"{home}/bin/nvcc") if home else shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    )
    if found is None:
        missing("nvcc is missing: the CUDA kernels' registers and loads are not checked. Install the CUDA toolkit 13.")
    return found


def compile_unit(folder: Path, dtype: str) -> tuple[str, str]:
    """The PTX, and what ptxas says of it for every device."""
    real = ",".join(DEVICES)
    command = [nvcc(), *FLAGS, f"-gencode=arch=compute_75,code=[{real}]", "-Xptxas=-v", "--keep"]
    command += [f"--keep-dir={folder}", "-c", str(SOURCES / f"{dtype}.cu"), "-o", str(folder / f"{dtype}.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (ptx,) = folder.glob(f"{dtype}*.ptx")
    return ptx.read_text(), done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, tuple[str, str]]:
    nvcc()
    folder = tmp_path_factory.mktemp("static")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(DTYPES, pool.map(lambda dtype: compile_unit(folder, dtype), DTYPES), strict=True))


def reports(text: str) -> list[tuple[str, str, str, int]]:
    """(kernel, device, memory line, registers) of every kernel ptxas compiled."""
    pattern = r"Compiling entry function '(\w+)' for '(\w+)'.*?\n +(\d+ bytes stack frame.*?)\n.*?Used (\d+) registers"
    return [(name, device, line, int(used)) for name, device, line, used in re.findall(pattern, text, re.S)]


def bodies(ptx: str) -> dict[str, str]:
    return dict(re.findall(r"\.entry (\w+)\(.*?\)[^{]*\{(.*?)\n\}", ptx, re.S))


def network(name: str) -> tuple[int, bool] | None:
    """(N, weighted) of a network kernel's mangled name."""
    match = re.search(r"trimmed_network.*Li(\d+)ELb([01])E", name)
    return (int(match[1]), match[2] == "1") if match else None


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_stack_and_no_spills(compiled, dtype):
    found = reports(compiled[dtype][1])
    assert len(found) == len(DEVICES) * len(bodies(compiled[dtype][0])) > 30
    for name, device, line, _ in found:
        assert line == "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", (name, device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_registers(compiled, dtype):
    share = 2 if dtype == "float64" else 1
    seen = set()
    for name, device, _, used in reports(compiled[dtype][1]):
        if found := network(name):
            seen.add(found)
            assert used <= REGISTERS[found[0] * share], f"{name} uses {used} registers on {device}"
        elif "trimmed_warp" in name:
            assert used <= 64, f"{name} uses {used} registers on {device}: 1024 threads do not fit"
    assert len(seen) == (8 if dtype == "float64" else 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_network_loads_every_client_once_and_compares_no_more_than_it_must(compiled, dtype):
    item = {"float32": "f32", "float64": "f64"}.get(dtype, "u16")
    for name, body in bodies(compiled[dtype][0]).items():
        assert not re.search(r"\b(ld|st)\.local|\bcall\b", body), name
        if (found := network(name)) is None:
            continue
        clients, weighted = found
        assert len(re.findall(r"ld\.global\.nc\.[ub]64\b", body)) - 4 <= clients + 1, name  # addresses
        loads = len(re.findall(rf"ld\.global\.nc\.{item}\b", body))
        weights = 8 * (weighted and item == "f64")  # a loop over the weights, unrolled by four, and its rest
        assert clients <= loads <= clients + weights, name
        if dtype != "float64":
            assert len(re.findall(r"\bmin\.f32\b", body)) == COMPARATORS[clients]
            assert len(re.findall(r"\bmax\.f32\b", body)) == COMPARATORS[clients]


def test_products_are_not_fused_with_sums(compiled):
    """The CPU rounds both; a fused multiply-add in a sum would give other bits. (Divisions have their own in SASS.) The
    one place that needs one is the exact product of a value and a weight, in float32."""
    for dtype in DTYPES:
        for name, body in bodies(compiled[dtype][0]).items():
            assert "fma.rn.f64" not in body, name
            pairs = dtype != "float64" and "Doubles" not in name and "Lb1E" in name and "examine" not in name
            assert ("fma.rn.f32" in body) == pairs, name


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_no_float64_instruction_is_executed_for_every_value(compiled, dtype):
    """Where values are added as pairs of float32, float64 only finishes a coordinate: counts do not grow with N."""
    seen = 0
    for name, body in bodies(compiled[dtype][0]).items():
        if "Doubles" in name or "examine" in name or "kept_bounds" in name:
            continue
        wide = len(re.findall(r"\b(?:add|sub|mul|div|fma|cvt)\.[.\w]*f64", body))
        assert wide <= (40 if "trimmed_warp" in name else 20), (name, wide)  # a warp adds up its lanes in float64
        seen += 1
    assert seen >= 15
