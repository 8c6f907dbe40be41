"""Arrays with one entry per agent, checked once at the border."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import shown
from ..errors import GameError

Array = NDArray[np.float64]


def vector(name: str, value: Any, *, low: float | None = None, above: float | None = None) -> Array:
    """`value` as finite float64 numbers (a scalar stays a scalar and means every agent)."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise GameError(f"{name} must be numbers, not {shown(value)}.") from None
    if not np.isfinite(array).all():
        raise GameError(f"{name} must be finite, but {_first(array, ~np.isfinite(array))}.")
    if low is not None and (array < low).any():
        raise GameError(f"{name} must be at least {low:g}, but {_first(array, array < low)}.")
    if above is not None and (array <= above).any():
        raise GameError(f"{name} must be greater than {above:g}, but {_first(array, array <= above)}.")
    return array


def per_agent(name: str, value: Any, n: int, **bounds: float | None) -> Array:
    """`vector` with exactly one entry per agent; a scalar is repeated."""
    array = vector(name, value, **bounds)
    if array.ndim == 0:
        return np.full(n, float(array))
    if array.shape != (n,):
        raise GameError(f"{name} needs one number for each of the {n} agents, but has shape {array.shape}.")
    return array


def shaped(name: str, array: Array, *shapes: tuple[int, ...]) -> None:
    """Raises GameError unless `array` has one of these shapes."""
    if array.shape not in shapes:
        raise GameError(f"{name} must have shape {' or '.join(map(str, shapes))}, not {array.shape}.")


def _first(array: Array, bad: Any) -> str:
    if array.ndim == 0:
        return f"it is {float(array):g}"
    where = tuple(int(k[0]) for k in np.nonzero(bad))
    return f"entry {where[0] if len(where) == 1 else where} is {float(array[where]):g}"
