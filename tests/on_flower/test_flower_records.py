"""Arrays as Flower stores them: the same bytes, without its detours."""

from __future__ import annotations

import numpy as np
import pytest
from fedincentive.plugins.flower.records import to_arrays, to_record, view
from flwr.app import Array

SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (1,) * 20]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2", "|b1", "<i8", "|u1", "<c8", "<U3"])
def test_an_array_has_the_bytes_that_flower_gives_it(kind: str, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, kind)
    record = to_record({"w": array})
    assert record["w"] == Array(array)
    read = to_arrays(record)["w"]
    assert read.dtype == array.dtype and read.shape == shape and np.array_equal(read, array)
    assert not read.flags.writeable


def test_an_array_in_another_order_is_stored_as_flower_stores_it() -> None:
    table = np.arange(12.0).reshape(3, 4)
    for array in (table.T, table[:, ::2], np.asfortranarray(table)):
        record = to_record({"w": array})
        assert record["w"] == Array(array) and np.array_equal(to_arrays(record)["w"], array)


def test_two_arrays_with_one_head_have_their_own_values() -> None:
    assert [view(Array(np.full(2, value))).tolist() for value in (1.0, 2.0)] == [[1.0, 1.0], [2.0, 2.0]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 20_000,
        b"\x93NUMPY\x07\x00\x10\x00" + b" " * 30,
        Array(np.zeros(3)).data[:-1],
        Array(np.zeros(3)).data.replace(b"<f8", b"|O8"),
        Array(np.zeros(3)).data.replace(b"(3,)", b"(-3,)"),
    ],
)
def test_what_is_no_array_is_refused(data: bytes) -> None:
    for _ in range(2):
        with pytest.raises(ValueError):
            view(Array("float64", (3,), "numpy.ndarray", data))
