"""Whether there is nothing but numbers in an array."""

from __future__ import annotations

import numpy as np

from . import native
from .updates import NUMPY_CODES

SMALL = 65536  # bytes that NumPy has looked at before the way to the kernel is prepared


def all_finite(values: np.ndarray, threads: int | None = None) -> bool:
    """No NaN and no infinity; read once, with all threads where it is large.

    >>> all_finite(np.float32([1, 2])), all_finite(np.float32([1, np.inf]))
    (True, False)
    """
    code = None if values.nbytes <= SMALL else NUMPY_CODES.get(values.dtype)
    if code is None or not values.flags.c_contiguous:
        return bool(np.isfinite(values).all())
    most = max(1, values.nbytes >> 20)  # a thread is worth it from about a megabyte on
    workers = 1 if most == 1 else min(native.thread_count(threads), most)  # to ask for the cores takes longer
    address = values.__array_interface__["data"][0]
    return bool(native.load().all_finite(address, values.size, code, workers, native.isa()))
