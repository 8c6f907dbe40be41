"""The compiled module: what it says of itself, which instructions each unit may contain, and that old CPUs run it."""

from __future__ import annotations

import doctest
import importlib
import os
import platform
import re
import subprocess
import sys

import pytest

import fedincentive
from fedincentive.aggregation import native
from fedincentive.errors import NativeUnavailable

x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="about x86 instruction sets")
MODULES = [
    *("clipping", "coordinatewise", "distance_based", "geometric", "mixing", "native", "near_median", "reference"),
    *("bounds", "rules", "shares", "subsets", "testing"),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    module = importlib.import_module(f"fedincentive.aggregation.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_info_for_the_doctor():
    info = native.info()
    assert info["isa"] in info["supported"] and set(info["supported"]) <= set(info["compiled"])
    assert info["threads"] >= 1 and info["compiled"][0] == "scalar"


def test_importing_needs_neither_torch_nor_time(tmp_path):
    code = "import sys, fedincentive.aggregation; assert 'torch' not in sys.modules and 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_missing_module_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "fedincentive._native", None)
    monkeypatch.delattr(fedincentive, "_native", raising=False)
    with pytest.raises(NativeUnavailable, match="pip install"):
        native.load()


@x86
def test_wide_instructions_stay_in_their_units(needs):
    """The module is loaded on every CPU: outside the functions of an instruction set's namespace there is no AVX."""
    command = [needs("objdump"), "-d", "--no-show-raw-insn", native.load().__file__]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    function, stray, seen = "", [], {"avx2": 0, "avx512": 0, "scalar": 0}
    for line in listing.splitlines():
        if line.endswith(">:"):
            function = line
            continue
        match = re.match(r"\s*[0-9a-f]+:\s+(\w+)\s*(.*)", line)
        unit = next((name for name in ("avx512", "avx2", "scalar") if f"fedincentive{len(name)}{name}" in function), "")
        if not match or not unit and not match[1].startswith("v"):
            continue
        if unit:
            seen[unit] += 1
        if (
            match[1].startswith(("v", "k"))
            and unit not in ("avx2", "avx512")
            or "%zmm" in match[2]
            and unit != "avx512"
        ):
            stray.append((function, line))
    assert not stray, stray[:3]
    assert min(seen.values()) > 1000, seen


@x86
@pytest.mark.parametrize(("cpu", "isa"), [("Nehalem", "scalar"), ("Haswell", "avx2")])
def test_older_cpus_run_it(cpu, isa, needs, tmp_path):
    """Under an emulated older CPU the import and all rules work, with the instruction set that CPU has."""
    program = (
        "import numpy as np; from fedincentive.aggregation import native, trimmed_mean, median, krum;"
        f"assert native.isa() == {isa!r}, native.isa();"
        "x = [np.float32([i, -i, 0.5]) for i in range(25)];"
        "assert trimmed_mean(x, 2).tolist() == [12, -12, 0.5] == median(x).tolist();"
        "assert trimmed_mean([r.astype(np.float16) for r in x], 2, weights=[1] * 25).tolist() == [12, -12, 0.5];"
        "krum(x, 3); print('ran')"
    )
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": "", "OPENBLAS_CORETYPE": "Nehalem"}
    environment.pop("FEDINCENTIVE_ISA", None)
    done = subprocess.run(
        [needs("qemu-x86_64"), "-cpu", cpu, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert done.stdout.strip() == "ran", done.stderr[-2000:]
