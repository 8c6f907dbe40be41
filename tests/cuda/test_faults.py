"""The tests prove themselves: each of these faults, put into the source, is noticed."""

from __future__ import annotations

import pytest

# file, what stands there, what a careless hand makes of it, the unit to compile again, how it is looked for
FAULTS = {
    "missing barrier": ("trimmed_warp.cuh", "    __syncthreads();\n", "", "float32.cu", "warp"),
    "single-buffered tile": ("trimmed_warp.cuh", "(g % 2)", "(g % 1)", "float32.cu", "warp"),
    "dropped comparator": ("networks.cuh", "X(15, 31)", "", "float32.cu", "network"),
    "NaN unmapped": ("device.cuh", "value == value ? value : infinity<T>()", "value", "float32.cu", "zoo"),
    "ties cut elsewhere": ("device.cuh", "seen_low >= trimmed", "seen_low > trimmed", "float32.cu", "zoo"),
    "bracket off by one": ("trimmed_streamed.cuh", "pivot(i) + 1;", "pivot(i) + 2;", "float32.cu", "many"),
    "wrong array": (
        "device.cuh",
        "job.starts + middle) <= first",
        "job.starts + middle) < first",
        "float32.cu",
        "arrays",
    ),
    "lost half of a pair": (
        "sums.cuh",
        "low += (high - (sum - part)) + (value - part);",
        "low += part - part;",
        "float32.cu",
        "cancelling",
    ),
    "packed over its neighbour": (
        "from_host.cu",
        "result += padded(part.size * request_.result_size());",
        "result += part.size;",
        "from_host.cu",
        "arrays",
    ),
    "marks not cleared": ("reduce.cu", "memory + room.tally, 0,", "memory + room.tally, 1,", "reduce.cu", "zoo"),
    "result not awaited": (
        "reduce.cu",
        'check(cudaStreamSynchronize(state_->stream), "running the kernels");',
        "",
        "reduce.cu",
        "zoo",
    ),
    "buffers used too soon": (
        "from_host.cu",
        "    lanes[0]->finish(findings);\n    lanes[0]->start",
        "    lanes[0]->start",
        "from_host.cu",
        "pieces",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed(built, find_fault, name):
    file, old, new, unit, kind = FAULTS[name]
    broken = find_fault(built.changed(name.replace(" ", "-"), file, old, new, [unit]), kind)
    assert broken.stdout == "noticed\n" or broken.returncode < 0, broken.stdout + broken.stderr


@pytest.mark.parametrize("kind", ["warp", "network", "many", "zoo", "pieces", "arrays", "cancelling"])
def test_without_a_fault_nothing_is_noticed(built, find_fault, kind):
    clean = find_fault(built.module, kind)
    assert clean.stdout == "fine\n", clean.stdout + clean.stderr


@pytest.mark.parametrize("seed", ["2", "3"])
def test_the_order_in_which_threads_run_does_not_matter(built, find_fault, seed):
    clean = find_fault(built.module, "orders", FEDINCENTIVE_SHIM_SEED=seed)
    assert clean.stdout == "fine\n", clean.stdout + clean.stderr


def test_no_byte_outside_is_touched(built_with_asan, find_fault):
    clean = find_fault(built_with_asan.module, "everything", asan=True)
    assert clean.returncode == 0 and clean.stdout == "fine\n", clean.stdout + clean.stderr


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("device.cuh", "place.coordinate < __ldg", "place.coordinate <= __ldg"),
        ("trimmed_warp.cuh", "2 * kWarp * (kWarp + 1)", "2 * kWarp * kWarp"),
    ],
    ids=["global", "shared"],
)
def test_bytes_outside_are_noticed(built_with_asan, find_fault, file, old, new):
    broken = find_fault(built_with_asan.changed(f"outside-{file}", file, old, new), "everything", asan=True)
    assert broken.returncode != 0 and "heap-buffer-overflow" in broken.stderr, broken.stdout + broken.stderr
