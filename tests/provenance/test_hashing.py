"""Many hashes at once: compiled or not, they are those of the standard library."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from hashlib import sha256

import pytest

import fedincentive
from fedincentive.aggregation import native
from fedincentive.provenance import hashing

LENGTHS = [*range(0, 200), 1000, 4096, 100_003]


@pytest.fixture(params=["compiled", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the package is installed, and where its compiled module cannot be loaded."""
    if request.param == "one by one":
        monkeypatch.setitem(sys.modules, "fedincentive._native", None)
        monkeypatch.delattr(fedincentive, "_native", raising=False)
    hashing.compiled.cache_clear()
    assert (hashing.compiled("sha256_nodes") is None) == (request.param == "one by one")
    yield
    hashing.compiled.cache_clear()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", [1, 16, 40])
def test_leaves_are_salted_hashes_of_records_of_any_length(size: int) -> None:
    draw = random.Random(size)
    records = [draw.randbytes(length) for length in LENGTHS]
    salts = draw.randbytes(size * len(records))
    wanted = (sha256(b"\0" + salts[size * k : size * (k + 1)] + one).digest() for k, one in enumerate(records))
    assert hashing.leaves(salts, records) == b"".join(wanted)
    assert hashing.leaves(b"", []) == b""
    for wrong in (b"", salts[:-1]):
        with pytest.raises(ValueError, match="are no salts for"):
            hashing.leaves(wrong, records)
    with pytest.raises(TypeError):
        hashing.leaves(salts, ["text", *records[1:]])  # type: ignore[list-item]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, 101])
def test_nodes_are_hashes_of_pairs(count: int) -> None:
    hashes = [random.Random(k).randbytes(32) for k in range(count)]
    wanted = (sha256(b"\1" + hashes[k] + hashes[k + 1]).digest() for k in range(0, count - 1, 2))
    assert hashing.nodes(b"".join(hashes)) == b"".join(wanted)


def test_every_way_of_this_processor_is_sha_256() -> None:
    draw = random.Random(1)
    for length in LENGTHS:
        data = draw.randbytes(length)
        assert set(native.load().sha256_every_way(data)) == {sha256(data).digest()}
