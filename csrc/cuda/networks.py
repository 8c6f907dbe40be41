"""Writes networks.cuh: Batcher's odd-even mergesort as literal code.

A loop or a constexpr fold over a table of comparators takes minutes to compile and leaves the values in local memory;
literal indices leave them in registers. Run `python csrc/cuda/networks.py` after a change; a test compares the file
with what this script prints.
"""

from __future__ import annotations

from pathlib import Path

SIZES = (8, 16, 32, 64, 128)

HEADER = """\
// Sorting networks as literal code. Written by networks.py, not by hand.
#pragma once

namespace fedincentive {
namespace cuda {

// clang-format off
#define X(a, b) exchange(v[a], v[b]);
"""

FOOTER = """\
#undef X
// clang-format on

}  // namespace cuda
}  // namespace fedincentive
"""


def merge(low: int, size: int, step: int) -> list[tuple[int, int]]:
    """The comparators that merge two sorted halves of every step-th wire from `low` (Knuth, TAOCP 3, 5.3.4)."""
    if 2 * step >= size:
        return [(low, low + step)]
    ends = merge(low, size, 2 * step) + merge(low + step, size, 2 * step)
    return ends + [(i, i + step) for i in range(low + step, low + size - step, 2 * step)]


def sort(size: int, low: int = 0) -> list[tuple[int, int]]:
    """The comparators that sort `size` (a power of two) wires from `low`."""
    if size == 1:
        return []
    half = size // 2
    return sort(half, low) + sort(half, low + half) + merge(low, size, 1)


def text() -> str:
    """The whole header."""
    parts = [HEADER]
    for size in SIZES:
        pairs = sort(size)
        parts.append(f"template <class T>\n__device__ __forceinline__ void sort_network(T (&v)[{size}]) {{")
        lines = [" ".join(f"X({a}, {b})" for a, b in pairs[i : i + 12]) for i in range(0, len(pairs), 12)]
        parts.append("\n".join(f"  {line}" for line in lines) + "\n}\n")
    return "\n".join([*parts, FOOTER])


if __name__ == "__main__":
    Path(__file__).with_name("networks.cuh").write_text(text())
