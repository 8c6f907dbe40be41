"""No stacked copy: beside the result, a call needs about a megabyte per thread, however many clients there are."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from fedincentive.aggregation import trimmed_mean, weighted_mean, median

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

n, m = 40, 1_000_000
x = [np.full(m, float(i), np.float32) for i in range(n)]
if sys.argv[1] == "strided":
    x = [np.repeat(row, 2).reshape(m, 2)[:, 1] for row in x]
rules = {
    "trimmed": lambda: trimmed_mean(x, 4, threads=2),
    "mean": lambda: weighted_mean(x, threads=2),
    "weighted": lambda: trimmed_mean(x, 4, weights=range(1, n + 1), threads=2),
    "median": lambda: median(x, threads=2),
}
small = [row[:1000] for row in x]
trimmed_mean(small, 4, threads=2)
before = peak()
result = rules[sys.argv[2]]()
print(peak() - before, result.nbytes)
"""


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("rule", ["trimmed", "mean", "weighted", "median"])
def test_peak_memory(layout, rule, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, layout, rule], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    extra, result = map(int, done.stdout.split())
    assert extra <= result + 2 * 2**20 + 2**19  # half a megabyte for the interpreter itself
