"""Rules that treat every coordinate by itself: weighted mean, trimmed mean, median."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Literal

import numpy as np

from ..errors import AggregationError
from .shares import shares_of
from .tiles import StoredBatch, gather
from .updates import Batch, with_counts

NanPolicy = Literal["raise", "drop", "propagate"]
Normalize = Literal["kept", "paper"]
LARGEST_SHARE = 0.5 - 1e-9  # nearer to one half too little is left between the ends to be averaged


def weighted_mean(
    updates: Iterable[Any],
    weights: Sequence[float] | None = None,
    *,
    nan_policy: NanPolicy = "raise",
    threads: int | None = None,
) -> Any:
    """sum_i w_i x_i / sum_i w_i, coordinate by coordinate; without weights the plain mean.

    `updates` is a sequence of NumPy arrays, CPU torch tensors, or mappings of them; the result is of the same kind,
    shape and dtype, sums are taken in float64, and the inputs are never changed. In a mapping, integer entries (a
    BatchNorm counter) take the maximum over clients. Paths of safetensors files do as well, see `StoredUpdates`.

    `nan_policy` says what happens where a NaN or infinity would enter the result: "raise" names the clients, "drop"
    leaves out every client that sent one, "propagate" lets it through.

    >>> import numpy as np
    >>> weighted_mean([np.float32([1, 2]), np.float32([4, 8])], weights=[2, 1])
    array([2., 4.], dtype=float32)
    """
    return aggregate(updates, 0, weights, "kept", nan_policy, threads)


def trimmed_mean(
    updates: Iterable[Any],
    trim: int | None = None,
    *,
    alpha: float | None = None,
    share: float | None = None,
    cap: float | None = None,
    weights: Sequence[float] | None = None,
    normalize: Normalize = "kept",
    nan_policy: NanPolicy = "raise",
    threads: int | None = None,
) -> Any:
    """Per coordinate, drop the k smallest and the k largest values and average the rest (Yin et al., 2018):

        sum_{k < r <= n-k} x_(r) / (n - 2k)

    k is `trim`, or `trim_count(alpha, n)`. With `weights` the kept values are averaged by weight; the trim is by count
    all the same. Ties go by position, as a stable sort would cut them. `normalize="paper"` divides by n (or by the
    weight of all clients) instead of what was kept. NaN sorts as the largest value and infinities are ordinary
    extremes, so up to k bad clients per side have no effect; see `weighted_mean` for `nan_policy` and the rest. Without
    weights, or with equal ones, four kept values at a time are added in their own precision before float64 takes over.

    `share` trims by weight instead of by count: per coordinate that part of all weight is cut off each end, and whoever
    is there keeps the rest of their own. Clients that hold at most `share` of the weight together cannot move the
    result outside the range of the others. `cap` first cuts off the weights so that nobody holds more than that part;
    a client with more than half is refused by name.

    >>> import numpy as np
    >>> trimmed_mean([np.float32([v]) for v in (1, 2, 3, 4, 1000)], trim=1)
    array([3.], dtype=float32)
    >>> trimmed_mean([np.float32([v]) for v in (1, 2, 3, 4, np.nan)], alpha=0.2, weights=[1, 1, 1, 2, 1])
    array([3.25], dtype=float32)
    >>> trimmed_mean([np.float32([v]) for v in (1, 2, 1000)], share=0.25, weights=[2, 1, 1])
    array([1.5], dtype=float32)
    """
    if sum(given is not None for given in (trim, alpha, share)) != 1:
        raise AggregationError(
            "Give either trim (a count per side), alpha (a part of the clients) or share (a part of the weight); "
            f"got {trim=}, {alpha=} and {share=}."
        )
    if share is not None:
        share = as_written("share", share)
        if not 0 <= share < 0.5:
            raise AggregationError(f"share={share} must be at least 0 and below 0.5: it is trimmed on both sides.")
        share = min(share, LARGEST_SHARE)
    elif cap is not None:
        raise AggregationError(f"cap={cap} goes with share: trimming by count does not look at the weights.")
    if (given := trim) is not None:
        try:
            trim = None if isinstance(given, (bool, np.bool_)) else operator.index(given)
        except TypeError:
            trim = None
        if trim is None:
            raise AggregationError(f"trim={given!r} must be a whole number of clients per side.")
    if cap is not None:
        cap = as_written("cap", cap)
    return aggregate(updates, trim, weights, normalize, nan_policy, threads, alpha=alpha, share=share, cap=cap)


def median(updates: Iterable[Any], *, nan_policy: NanPolicy = "raise", threads: int | None = None) -> Any:
    """The coordinate-wise median: the middle value, or the mean of the two middle ones.

    See `weighted_mean` for what updates may be and for `nan_policy`.

    >>> import numpy as np
    >>> median([np.float64([1, 5]), np.float64([2, np.inf]), np.float64([9, 4])])
    array([2., 5.])
    """
    return aggregate(updates, None, None, "kept", nan_policy, threads)


def trim_count(alpha: float, n: int) -> int:
    """The smallest whole k with k / n >= alpha, compared in float division.

    ceil(alpha * n) would make 8 of 0.07 x 100 and int() 28 of 0.29 x 100:

    >>> trim_count(0.07, 100), trim_count(0.29, 100), trim_count(1 / 11, 11), trim_count(0.1, 15)
    (7, 29, 1, 2)
    """
    alpha = as_written("alpha", alpha)
    if not 0 <= alpha < 0.5:
        raise AggregationError(f"alpha={alpha} must be at least 0 and below 0.5: it is trimmed on both sides.")
    if n < 1:
        raise AggregationError(f"n={n} must be at least 1.")
    k = math.floor(alpha * n)
    while k > 0 and (k - 1) / n >= alpha:
        k -= 1
    while k / n < alpha:
        k += 1
    return k


def as_written(setting: str, value: Any) -> float:
    """A number as it was written: float32's 0.1 is 0.1 and not 0.10000000149, of which 10 clients would have two.

    >>> as_written("alpha", np.float32(0.1)), as_written("alpha", "0.1")
    Traceback (most recent call last):
    fedincentive.errors.AggregationError: alpha='0.1' must be a number.
    """
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise AggregationError(f"{setting}={value!r} must be a number.") from None
    return float(str(np.dtype(dtype).type(number))) if dtype in ("float32", "float16") else number


def aggregate(
    updates: Iterable[Any],
    trim: int | None,
    weights: Sequence[float] | None,
    normalize: str,
    nan_policy: str,
    threads: int | None,
    *,
    alpha: float | None = None,
    share: float | None = None,
    cap: float | None = None,
) -> Any:
    """The rule over updates in memory or on disk. trim None: alpha, or share, or median."""
    check_choice("nan_policy", nan_policy, ("raise", "drop", "propagate"))
    check_choice("normalize", normalize, ("kept", "paper"))
    if not (trim is None and alpha is None and share is None):  # the median has no weights
        updates, weights = with_counts(updates, weights)
    with gather(updates) as batch:
        return settle(batch, trim, weights, normalize, nan_policy, threads, alpha, share, cap)


def settle(
    batch: Batch | StoredBatch,
    trim: int | None,
    weights: Sequence[float] | None,
    normalize: str,
    nan_policy: str,
    threads: int | None,
    alpha: float | None,
    share: float | None = None,
    cap: float | None = None,
) -> Any:
    """Runs the kernel; where `nan_policy` says so, once more without the clients that sent non-finite values."""
    factors = None if weights is None else check_weights(weights, batch.clients)
    present = list(range(batch.clients))
    while True:
        n = len(present)
        count = 0 if share is not None else trim_of(trim, alpha, n)
        chosen = batch if n == batch.clients else batch.select(present)
        kept = None if factors is None else factors[present]
        if count > 0 and kept is not None and kept[0] > 0 and (kept == kept[0]).all():
            kept = None  # no need to find the client of each value
        if share is not None:
            kept = shares_of(np.ones(n) if kept is None else kept, cap, [batch.whose(i) for i in present])
        divisor = 0.0 if normalize == "kept" else float(n) if kept is None else float(kept.sum())
        early = nan_policy != "propagate"
        results, found = chosen.reduce(
            trim=count, weights=kept, divisor=divisor, share=share or 0.0, threads=threads, early=early
        )
        if found.not_finite == 0 or nan_policy == "propagate":
            break
        # All at once: of many clients that send infinities a median keeps, and would find, one or two at a time.
        guilty = found.clients if nan_policy == "raise" else batch.not_finite(threads=threads)
        if nan_policy == "raise" or len(guilty) == batch.clients:
            whose = [batch.whose(i) for i in guilty]
            cut = f"{count} per side" if count else f"{share:g} of the weight per side" if share else ""
            where = f"after trimming {cut}" if cut else "in the sum"
            raise AggregationError(not_finite_message(found.not_finite, whose, where, found.stopped))
        present = [i for i in present if i not in set(guilty)]
    if found.weightless and nan_policy != "propagate":
        raise AggregationError(
            f"In {found.weightless} coordinates all clients left after trimming {count} per side have weight 0; "
            "trim less or give them a weight."
        )
    return chosen.assemble(results)


def not_finite_message(coordinates: int, clients: list[str], where: str, stopped: bool) -> str:
    return (
        f"{'At least ' if stopped else ''}{coordinates} coordinates keep a NaN or infinity {where}; it comes from "
        f"clients {shorten(clients)}. "
        'Leave these clients out, trim more, or have them dropped (nan_policy "drop").'
    )


def shorten(clients: Sequence[object], limit: int = 20) -> str:
    shown = ", ".join(map(str, clients[:limit]))
    return shown if len(clients) <= limit else f"{shown} and {len(clients) - limit} more"


def trim_of(trim: int | None, alpha: float | None, n: int) -> int:
    if alpha is not None:
        trim = trim_count(alpha, n)
    if trim is None:
        return (n - 1) // 2
    if trim < 0:
        raise AggregationError(f"trim={trim} must not be negative.")
    if 2 * trim >= n:
        source = f"trim={trim}" if alpha is None else f"alpha={alpha} (trim={trim})"
        raise AggregationError(f"{source} per side leaves nothing of n={n} clients; 2 * trim must be below n.")
    return trim


def check_choice(setting: str, value: str, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise AggregationError(f"{setting}={value!r} is unknown; choose one of {', '.join(choices)}.")


def check_weights(weights: Sequence[float], clients: int) -> np.ndarray:
    """Weights as float64, scaled by a power of two (which changes no result) so that sums cannot overflow."""
    single = getattr(weights, "ndim", 1) == 0  # an array with one number, which NumPy calls iterable
    if single or isinstance(weights, (Mapping, Set, str, bytes)) or not isinstance(weights, Iterable):
        raise AggregationError(
            f"weights is a {type(weights).__name__}: give a list with a number for each client, in the updates' order."
        )
    given, values = list(weights), []
    if len(given) != clients:
        raise AggregationError(f"There are {len(given)} weights for {clients} clients; give one per client.")
    for index, weight in enumerate(given):
        try:
            values.append(float(weight))
        except OverflowError:
            values.append(math.inf)
        except (TypeError, ValueError, RuntimeError):  # a tensor without values raises the last
            raise AggregationError(f"Client {index}'s weight is {weight!r}; weights must be numbers.") from None
    for index, value in enumerate(values):
        if not math.isfinite(value) or value < 0:
            raise AggregationError(f"Client {index}'s weight is {value}; weights must be finite and not negative.")
    if max(values) == 0:
        raise AggregationError(f"All {clients} weights are 0; at least one must be positive.")
    return np.ldexp(np.array(values), -math.frexp(max(values))[1])
