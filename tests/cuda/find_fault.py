"""Finds a fault in a built module: `python find_fault.py MODULE KIND` says whether results differ from the CPU's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from conftest import (  # noqa: E402
    CODES,
    Answer,
    host_memory,
    load,
    reduce_groups,
    reduce_rows,
    reduce_rows_on_cpu,
    same_results,
    zoo_rows,
)


def halves(size: int) -> np.ndarray:
    """Every pair of sorted halves of zeros and ones: what a merging network must sort, by the 0-1 principle."""
    steps = np.arange(size // 2) >= np.arange(size // 2, -1, -1)[:, None]
    lower, upper = np.meshgrid(np.arange(len(steps)), np.arange(len(steps)))
    return np.vstack([steps[lower.ravel()].T, steps[upper.ravel()].T]).astype(np.float32)


def differs(module: ModuleType, rows: np.ndarray, memory: int | None = None, **settings: object) -> bool:
    ours, cpu = reduce_rows(module, rows, memory=memory, **settings), reduce_rows_on_cpu(rows, **settings)
    return not same_results(ours, cpu).all() or ours.clients != cpu.clients


def warp(module: ModuleType) -> bool:
    return differs(module, zoo_rows(200, kinds=["normal", "ties"]), trim=60)


def network(module: ModuleType) -> bool:
    rows = np.ascontiguousarray(halves(32))
    return any(differs(module, rows, trim=trim) for trim in range(1, 16))


def many(module: ModuleType) -> bool:
    return differs(module, zoo_rows(1100, kinds=["normal", "ties"]), trim=300)


def zoo(module: ModuleType) -> bool:
    rows = zoo_rows(20, kinds=["normal", "ties", "nan", "infinite"])
    return any(differs(module, rows, trim=3, weights=given) for given in ((), np.linspace(1, 2, 20)))


def pieces(module: ModuleType) -> bool:
    rows = np.random.default_rng(0).normal(size=(10, 3000)).astype(np.float32)
    return differs(module, rows, trim=2, memory=60_000)


def arrays(module: ModuleType) -> bool:
    """Many arrays in one call, on the device and from the host, of sizes around a strip's."""
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(5, size)).astype(np.float32) for size in (1, 127, 128, 129, 0, 7, 300)]
    return any(
        not np.array_equal(made, reduce_rows_on_cpu(rows, trim=2).values)
        for memory in (None, 30_000)
        for rows, made in zip(groups, reduce_groups(module, groups, trim=2, memory=memory)[0], strict=True)
    )


def cancelling(module: ModuleType) -> bool:
    """Sums that need more than the 24 bits of a float32."""
    rows = np.float32([[1e6], [0.3], [-1e6], [0.4]]).repeat(3, axis=1)
    return differs(module, rows, weights=np.float64([1, 2, 1, 2]))


def orders(module: ModuleType) -> bool:
    """Kernels with shared memory, where the order in which the shim runs threads could matter."""
    cases = [(20, 3, True), (150, 50, True), (700, 200, False)]
    return any(
        differs(module, zoo_rows(n, kinds=["normal", "ties"]), trim=trim, weights=np.ones(n) if weighted else ())
        for n, trim, weighted in cases
    )


def everything(module: ModuleType) -> bool:
    """Every kernel once, sizes that end inside a block, arrays that end where their memory ends."""
    found = False
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for n, trim in ((3, 0), (5, 1), (33, 5), (130, 2), (1026, 100)):
            for weights in ((), np.ones(n)) if n < 130 else ((),):
                found |= differs_separately(module, n, dtype, trim, weights)
    return found | differs_separately(module, 130, "float32", 40, ())  # fibers are slow under AddressSanitizer


def differs_separately(module: ModuleType, n: int, dtype: str, trim: int, weights: np.ndarray | tuple) -> bool:
    """With an allocation of its own for every client."""
    rows = [row.copy() for row in zoo_rows(n, dtype, kinds=["ties", "normal", "constant"])]
    cpu = reduce_rows_on_cpu(np.array(rows), dtype, trim, weights)
    pointers = np.array([row.ctypes.data for row in rows], np.uint64)
    differs = False
    for call, last in ((module.reduce, (0, host_memory())), (module.reduce_from_host, (10**8, None))):
        out = np.empty_like(rows[0])
        target = np.array([out.ctypes.data], np.uint64)
        settings = (len(rows), CODES[dtype], False, trim, list(weights), 0.0, 0, *last)
        ours = Answer(out, *call(pointers, np.array([out.size]), target, *settings))
        differs |= not same_results(ours, cpu, dtype).all()
    return differs


if __name__ == "__main__":
    wrong = globals()[sys.argv[2]](load(Path(sys.argv[1])))
    print("noticed" if wrong else "fine")
