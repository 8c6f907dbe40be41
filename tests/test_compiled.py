"""What the compiled module writes and copies is what Python writes and copies, and it leaves to Python all else."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import fedincentive
from fedincentive import _native, entry, sealed
from fedincentive.compiled import compiled
from fedincentive.errors import LedgerError
from fedincentive.identity import Answers
from fedincentive.provenance.keys import words

busy = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


class Name(str):
    pass


class Count(IntEnum):
    ONE = 1


TEXTS = st.one_of(
    st.text(st.characters(), max_size=40),  # lone surrogates too
    st.text(st.sampled_from('"\\/\b\f\n\r\t\0\x1f\x7f\x80é\u2028\ud800\udfff\uffff\U0001f600 a~'), max_size=12),
    st.text("az", min_size=30, max_size=70),  # more than one block of plain characters
    st.builds("".join, st.tuples(st.text("az", min_size=28, max_size=68), st.characters(), st.text("az", max_size=40))),
)
LIMIT = 2**63
NUMBERS = st.one_of(st.integers(), st.integers(-LIMIT - 2, -LIMIT + 2), st.integers(LIMIT - 2, LIMIT + 2))
PLAIN = st.recursive(
    TEXTS | NUMBERS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(TEXTS, inner, max_size=5)
    ),
    max_leaves=12,
)
ODD = st.one_of(
    st.none(), st.booleans(), st.floats(), TEXTS.map(Name), st.just(Count.ONE), st.just({1: 2}),
    st.just({Name("k"): 2}), st.just({None: 2}), st.just({True: 2}), st.just(OrderedDict(b=1, a=2)),
    st.just(MappingProxyType({"b": 1})), st.just(b"raw"), st.just({1, 2}), st.just({"a": 1, 2: 3}),
)  # fmt: skip
ANY = st.recursive(
    PLAIN | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def outcome(work: Any, *values: Any, **named: Any) -> tuple[str, Any]:
    """What a call gives, with its exact types, or how it fails."""
    try:
        made = work(*values, **named)
    except Exception as error:
        return type(error).__name__, str(error)
    return repr(made), made


@pytest.fixture
def without_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "fedincentive._native", None)
    monkeypatch.delattr(fedincentive, "_native", raising=False)
    compiled.cache_clear()
    yield
    compiled.cache_clear()


def nested(depth: int, value: Any = 1) -> Any:
    for k in range(depth):
        value = [value] if k % 2 else {"a": value}
    return value


def fits(value: Any) -> bool:
    """Whether all numbers are of 64 bits, as compiled code has them."""
    if isinstance(value, (list, tuple)):
        return all(map(fits, value))
    return (
        all(map(fits, value.values()))
        if isinstance(value, dict)
        else not (isinstance(value, int) and abs(value) > LIMIT - 1)
    )


@busy
@given(PLAIN)
@example("\ud83d\ude00")  # two surrogates that are no character
@example({"\uffff": 1, "\U00010000": 2, "é": 3, "z": 4, "": 5})
def test_plain_values_are_written_as_json_writes_them(value: Any) -> None:
    tight = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert entry.canonical(value) == tight
    assert sealed.written(value) == json.dumps(value, sort_keys=True)
    if fits(value):  # by compiled code, not by the way round it
        assert _native.canonical(value) == tight


@busy
@given(ANY)
def test_whatever_json_writes_or_refuses_is_written_or_refused_alike(value: Any) -> None:
    tight = outcome(json.dumps, value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert outcome(entry.canonical, value) == tight
    assert outcome(sealed.written, value) == outcome(json.dumps, value, sort_keys=True)


@pytest.mark.parametrize(
    "value", [True, None, 1.5, Name("a"), Count.ONE, {1: 2}, {Name("k"): 1}, b"raw", 2**63], ids=repr
)
def test_what_is_not_plain_is_left_to_json(value: Any) -> None:
    for whole in (value, [value], {"a": 1, "b": [value]}):
        assert _native.canonical(whole) is None
        assert _native.interleaved((b"<", b",", b">"), {"a": 1, "b": whole}) is None


def test_values_may_be_nested_as_deep_as_json_allows() -> None:
    for depth in (0, 1, 63, 64, 65, 200):
        assert entry.canonical(nested(depth)) == json.dumps(nested(depth), separators=(",", ":"))
        assert (_native.canonical(nested(depth)) is None) == (depth > 64)
    round_about: list[Any] = []
    round_about.append(round_about)
    with pytest.raises(ValueError, match="Circular"):
        entry.canonical(round_about)


@busy
@given(ANY, st.integers(0, 4))
def test_a_copy_is_made_or_refused_alike(value: Any, depth: int) -> None:
    made = outcome(entry.plain, "x", value, depth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry, "compiled", lambda name: None)
        assert made == outcome(entry.plain, "x", value, depth)


LIMITS = [LIMIT - 1, 1 - LIMIT, 0, "", "é", "\U0001f600", "\xa0b", "\x7f", "\ud800", LIMIT, -LIMIT, 2**200, -(2**200)]
LIMITS += [True, None, Name("a"), Count.ONE, [], (), {}, {"": 1}, {"\n": 1}, {Name("k"): 1}, {1: 1}, (1, ("a",))]


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("value", LIMITS, ids=ascii)
def test_copies_have_limits(value: Any, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for whole in (value, [value], {"a": 1, "b": value}, [{"a": value}]):
        made = outcome(entry.plain, "x", whole, depth)
        assert (_native.plain_copy(whole, depth) is None) == (made[0] == "LedgerError")
        with monkeypatch.context() as patch:
            patch.setattr(entry, "compiled", lambda name: None)
            assert made == outcome(entry.plain, "x", whole, depth)


def test_a_copy_shares_nothing_that_can_change() -> None:
    value = {"rows": {"a": {"s": 1}, "b": {"s": 2}}, "list": [[1], ({"x": "y"},)]}
    made = _native.plain_copy(value, 6)
    assert made == {"rows": {"a": {"s": 1}, "b": {"s": 2}}, "list": [[1], [{"x": "y"}]]}
    assert list(made) == ["rows", "list"]
    for one, other in ((made, value), (made["rows"], value["rows"]), (made["rows"]["b"], value["rows"]["b"])):  # type: ignore[call-overload]
        assert one is not other
    for one, other in zip(made["list"], value["list"], strict=True):
        assert one is not other and type(one) is list
    assert made["list"][1][0] is not value["list"][1][0]  # type: ignore[index]


@busy
@given(st.dictionaries(TEXTS, PLAIN, max_size=4), st.dictionaries(TEXTS, ANY, max_size=4))
def test_words_of_reports_are_those_of_all_they_say(shared: dict[str, Any], own: dict[str, Any]) -> None:
    shared = {name: value for name, value in shared.items() if name not in own}
    own = dict(sorted(own.items()))
    assert outcome(lambda: Answers(shared).words(own)) == outcome(words, "report", {**shared, **own})


def test_parts_have_one_value_between_each_two() -> None:
    assert _native.interleaved((b"<", b"|", b">"), {"b": "\n", "a": [2]}) == b'<"\\n"|[2]>'  # in the dict's own order
    assert _native.interleaved((b"<>",), {}) == b"<>"
    for parts in ((), (b"<",), (b"<", b"|", b">", b"")):
        with pytest.raises(ValueError, match="one value is needed between two parts"):
            _native.interleaved(parts, {"a": 1, "b": 2})


@pytest.mark.usefixtures("without_compiled")
def test_all_is_the_same_where_the_compiled_module_cannot_be_loaded() -> None:
    assert compiled("canonical") is None
    value = {"b": [1, "é"], "a": {"s": 2}}
    assert entry.canonical(value) == '{"a":{"s":2},"b":[1,"\\u00e9"]}'
    assert sealed.written(value) == '{"a": {"s": 2}, "b": [1, "\\u00e9"]}'
    assert entry.plain("x", value) == value
    with pytest.raises(LedgerError, match=r"x\.a is 1\.5"):
        entry.plain("x", {"a": 1.5})
    assert Answers({"run": "demo"}).words({"agent": "a", "s": 3}) == words(
        "report", {"run": "demo", "agent": "a", "s": 3}
    )
