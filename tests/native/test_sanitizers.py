"""Builds the kernels with a C++ test program under each sanitizer, and with the 64-byte unit, and runs it."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedincentive.aggregation import native

pytestmark = pytest.mark.timeout(1800)  # the kernels compile for minutes beside another suite
HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
UNITS = [
    *("core/plan", "core/process", "core/files", "core/mapped", "core/crc32c", "core/sha256"),
    *("cpu/dispatch", "cpu/reduce", "cpu/stored", "cpu/distances"),
    *("cpu/isa_scalar", "cpu/isa_avx2", "cpu/isa_avx512"),
]
COMMON = [
    "-std=c++17",
    "-O1",
    "-g",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-maybe-uninitialized",
    f"-I{CSRC}",
]
VARIANTS = {
    # checks as calls, not inline: the same findings, and the unrolled networks compile in seconds instead of minutes
    "address": ["-fsanitize=address", "--param", "asan-instrumentation-with-call-threshold=0"],
    "undefined": ["-fsanitize=undefined", "-fno-sanitize-recover=all"],
    # the 64-byte unit's logic on CPUs without AVX-512
    "wide": ["-DWITH_WIDE_UNIT"],
}
# Which flags the units of an instruction set get. dispatch.cpp refers to the AVX-512 unit, so it is always built.
ISA_FLAGS = {
    "isa_avx2": ["-mavx2", "-mf16c", "-mfma"],
    "isa_avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"],
}


def build(compiler: str, folder: Path, variant: str) -> Path:
    flags = VARIANTS[variant]

    def compile_one(source: Path) -> str:
        output = folder / f"{source.stem}.o"
        isa = ["-mavx2"] if variant == "wide" and source.stem == "isa_avx512" else ISA_FLAGS.get(source.stem, [])
        # the AVX-512 unit cannot run under a sanitizer here; instrumenting it would only take time
        checked = [] if variant != "wide" and source.stem == "isa_avx512" else flags
        subprocess.run([compiler, *COMMON, *checked, *isa, "-c", str(source), "-o", str(output)], check=True)
        return str(output)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, [*(CSRC / f"{unit}.cpp" for unit in UNITS), *HERE.glob("*_test.cpp")]))
    program = folder / "kernels_test"
    subprocess.run([compiler, *flags, "-pthread", *objects, "-o", str(program)], check=True)
    return program


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels(variant, needs, tmp_path):
    if variant == "wide" and "avx2" not in native.load().supported_isas():
        pytest.skip("this CPU has no AVX2 to run the 64-byte unit with")
    program = build(needs("g++"), tmp_path, variant)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " 0 failures" in done.stdout and int(done.stdout.split()[0]) > 100_000
