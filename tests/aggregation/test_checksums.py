"""CRC-32C in every way a processor has, whole and of chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedincentive.aggregation import native


def test_the_checksum_is_crc32c() -> None:
    crc32c = native.load().crc32c
    assert crc32c(b"123456789") == 0xE3069283  # the check value every CRC-32C publishes
    assert crc32c(bytes(32)) == 0x8A9136AA and crc32c(b"") == 0


def crc32c_by_definition(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 255, 256, 257, 1000, 2**14 - 1, 2**14, 2**14 + 1, 3 * 2**14 + 2053])
def test_every_way_to_the_checksum_leads_there(size: int) -> None:
    """Tables, and what instructions the processor has for it: some take 256 bytes at a time, or halve 16 KB."""
    data = np.random.default_rng(size).bytes(size)
    found = native.load().crc32c_every_way(data)
    assert set(found) == {crc32c_by_definition(data)} == {native.load().crc32c(data)}
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert len(found) == 1 + ({"sse4_2", "pclmulqdq"} <= flags) + ({"avx512f", "vpclmulqdq"} <= flags)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 256, 257, 1000])
def test_checksums_of_chunks_are_those_of_each(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    for chunk in (1, 8, 24, 64, 100):
        expected = [native.load().crc32c(data[i : i + chunk]) for i in range(0, size, chunk)]
        assert native.load().crc32c_chunks(data, chunk) == expected
