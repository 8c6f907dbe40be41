"""Every rule with every option set to what it should not be, and with updates of every wrong kind: a result, or an
error of ours that names what is wrong; never another exception."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fedincentive.aggregation import geometric_median, rule, rules, weighted_mean
from fedincentive.aggregation.testing import updates
from fedincentive.errors import AggregationError, FedIncentiveError

X = updates("normal", 9, 6, np.float32)
NAMES = [*(each.name for each in rules()), "nnm+median", "bucketing+krum", "arc+meamed", "clipping+nnm+trimmed-mean"]
HOSTILE = [
    *(None, True, -1, 0, 5, 10**400, -(10**30), 0.5, 1e-320, 1e300, float("nan"), float("inf"), "2", b"2", "", 1j),
    *([], [1, 2], {}, {"a": 1}, {1, 2}, (), object(), np.float32(0.1), np.int64(2), np.array([1, 2]), np.array(2)),
    *(np.ma.masked, np.datetime64("2020-01-01"), range(9), X, lambda: 1, float, "byzfl", "nearest", "drop", "raise"),
]
WRONG = {
    "nothing": [],
    "none": None,
    "a number": 3,
    "a string": "abc",
    "one array": np.zeros(3),
    "nones": [None] * 9,
    "strings": ["a"] * 9,
    "numbers": [1.0] * 9,
    "integers": [np.arange(6)] * 9,
    "objects": [np.array([object()])] * 9,
    "complex": [np.zeros(3, complex)] * 9,
    "dates": [np.zeros(3, "M8[s]")] * 9,
    "structured": [np.zeros(3, "f4,f4")] * 9,
    "bytes swapped": [np.zeros(3, ">f4")] * 9,
    "long doubles": [np.zeros(3, np.longdouble)] * 9,
    "of two shapes": [np.zeros(3, np.float32)] * 8 + [np.zeros(4, np.float32)],
    "of two types": [np.zeros(3, np.float32)] * 8 + [np.zeros(3)],
    "empty": [np.zeros(0, np.float32)] * 9,
    "scalars": [np.array(1.0)] * 9,
    "empty mappings": [{}] * 9,
    "other keys": [{"a": X[0]}] * 8 + [{"b": X[0]}],
    "keys that are no strings": [{1: X[0], None: X[0]}] * 9,
    "nested": [{"a": {"b": X[0]}}] * 9,
    "a generator": (row for row in X),
    "a mapping of clients": {i: row for i, row in enumerate(X)},
    "a set": {1, 2, 3},
    "too few": X[:1],
    "missing files": ["/nowhere/a.safetensors", "/nowhere/b.safetensors", "/nowhere/c.safetensors"],
    "not finite": [np.full(6, v, np.float32) for v in (np.nan, np.inf, -np.inf) * 3],
    "huge": [np.full(6, v, np.float64) for v in (1e308, -1e308, 1e-308) * 3],
}


def sane(chosen) -> dict:
    given = {"trim": 2, "f": 1, "clip": 1.0, "center": np.zeros(6, np.float32)}
    return {option: value for option, value in given.items() if option in chosen.takes}


def harmless(call) -> str:
    """Empty, or what another exception than ours said."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call()
    except FedIncentiveError as error:
        return "" if len(str(error)) > 15 else f"says only {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_options(name):
    chosen = rule(name)
    wrong = []
    for option in chosen.options:
        for value in HOSTILE:
            one_of = {"trim", "alpha", "share"}
            given = {k: v for k, v in sane(chosen).items() if k != option and not {k, option} <= one_of}
            said = harmless(lambda g=given, o=option, v=value: chosen.use(X, **g, **{o: v}))
            if said and value is not None:
                wrong.append(f"{option}={value!r:.40}: {said:.150}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_updates(name):
    chosen = rule(name)
    said = {kind: harmless(lambda g=given: chosen(g, **arguments(chosen))) for kind, given in WRONG.items()}
    wrong = [f"{kind}: {text:.150}" for kind, text in said.items() if text]
    assert not wrong, "\n".join(wrong)


def arguments(chosen) -> dict:
    return chosen.arguments(9, sane(chosen))


@pytest.mark.parametrize("setting", ["tolerance", "iterations"])
@pytest.mark.parametrize("value", [None, -1, "2", 10**400, float("nan"), float("inf"), [1], 1j], ids=repr)
def test_how_closely_the_geometric_median_is_found_is_checked(setting, value):
    with pytest.raises(AggregationError, match=setting):
        geometric_median(X, **{setting: value})


def test_weights_without_values_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(AggregationError, match="weights must be numbers"):
        weighted_mean(X, torch.ones(9, device="meta"))
