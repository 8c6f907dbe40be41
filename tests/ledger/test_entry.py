"""An entry that breaks a rule cannot be made, and its bytes are its own for ever."""

from __future__ import annotations

import doctest
import json
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedincentive import entry
from fedincentive.errors import LedgerError
from fedincentive.ledger import Checkpoint, Entry, chain, export, verify


def make(**changes) -> Entry:
    fields = {
        "run": "demo", "round": 3, "kind": "settlement", "rule": "contribution/1", "inputs": {"beta": "2"},
        "postings": {"a": 5, "b": -5}, "claims": (),
    }  # fmt: skip
    return Entry(**{**fields, **changes})


def test_the_canonical_form_is_fixed():
    """Exported ledgers have these bytes; the hashes were made with sha256sum. A change would void old checkpoints."""
    made = make(inputs={"beta": "2", "s": {"\u00e9": 1, "b": 2}, "list": [1, "x"]}, claims=("budget-balanced",))
    assert made.to_json() == (
        '{"claims":["budget-balanced"],"inputs":{"beta":"2","list":[1,"x"],"s":{"b":2,"\\u00e9":1}},"kind":"settlement",'
        '"postings":{"a":5,"b":-5},"round":3,"rule":"contribution/1","run":"demo","version":1}'
    )
    first = chain.genesis(10**6)
    assert first == "c70a3021d57e6df4d7ab3e701ea7950184c618146c63a03f14b9386210ca85a7"
    assert chain.link(1, first, made.body) == "60801daab8fe78be87b38a244e84b4391c5cb9a9f4840062bbee10c5616cb8e0"


amounts = st.dictionaries(st.sampled_from(["a", "b", "\u00e9", 'q"', "\U0001f600"]), st.integers(-(2**60), 2**60))
json_values = st.recursive(
    st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from(["", "x", 'a"b', "\u00fc", "kind"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["kind", "postings", "z", 'x"postings']), inner)
    ),
    max_leaves=8,
)


@given(amounts, st.dictionaries(st.sampled_from(["kind", "postings", "inputs", "s"]), json_values))
def test_json_round_trip_and_the_envelope(postings, inputs):
    balanced = {**postings, "rest": -sum(postings.values())}
    try:
        made = make(postings=balanced, inputs=inputs)
    except LedgerError as error:
        assert "64 bits" in str(error) or "deeply" in str(error)
        return
    assert Entry.from_json(made.to_json()) == made
    assert hash(Entry.from_json(made.to_json())) == hash(made)
    whole = json.loads(made.body)
    assert json.loads(entry.posted_text(made.body)) == balanced
    assert verify.envelope(made.body) == {name: value for name, value in whole.items() if name != "inputs"}


def test_later_changes_to_the_callers_mappings_do_not_reach_the_entry():
    postings, inputs = {"a": 5, "b": -5}, {"s": {"a": 1}}
    made = make(postings=postings, inputs=MappingProxyType(inputs))
    body = made.body
    postings["a"] = 6
    inputs["s"]["a"] = 9
    assert (made.body, made.postings, made.inputs) == (body, {"a": 5, "b": -5}, {"s": {"a": 1}})


BAD_NUMBERS = [1.0, float("nan"), True, None, np.int64(1), np.float64(1), 2**63, -(2**63)]


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=repr)
def test_floats_numpy_scalars_bools_and_overflow_are_refused_with_their_path(bad):
    with pytest.raises(LedgerError, match=r"postings\.a is"):
        make(postings={"a": bad, "b": -5})
    with pytest.raises(LedgerError, match=r"inputs\.s\.ann is"):
        make(inputs={"s": {"ann": bad}})
    with pytest.raises(LedgerError, match=r"inputs\.list\[1\] is"):
        make(inputs={"list": [1, bad]})
    with pytest.raises(LedgerError, match="round"):
        make(round=bad)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"postings": {"a": 5, "b": -4}}, "sum to 1 minor units"),
        ({"postings": {"a": "5", "b": -5}}, "amounts are ints"),
        ({"postings": {"": 5, "b": -5}}, "non-empty"),
        ({"postings": {1: 5, "b": -5}}, "keys are"),
        ({"postings": {"a\n": 5, "b": -5}}, "printable"),
        ({"postings": {"\ud800": 5, "b": -5}}, "printable"),
        ({"postings": {"a" * 201: 5, "b": -5}}, "longer than 200"),
        ({"postings": [1]}, "mappings"),
        ({"inputs": {"x": b"raw"}}, "only ints, strings"),
        ({"inputs": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}, "too deeply"),
        ({"kind": "Tranche"}, "short name in small letters"),
        ({"kind": "commitment"}, "moves no money"),
        ({"rule": "contribution"}, "a name and a version"),
        ({"run": ""}, "run"),
        ({"run": "x\x00"}, "run"),
        ({"round": -1}, "round"),
        ({"claims": (1,)}, "claims must be strings"),
        ({"kind": "correction"}, "which entry"),
        ({"kind": "correction", "inputs": {"corrects": 0}}, "which entry"),
    ],
)
def test_an_entry_that_breaks_a_rule_cannot_be_made(changes, words):
    with pytest.raises(LedgerError, match=words):
        make(**changes)


def test_a_budget_balanced_entry_cannot_touch_the_treasury():
    make(postings={"a": 5, "treasury": -5})
    for postings in ({"a": 5, "treasury": -5}, {"a": 0, "treasury": 0}):
        with pytest.raises(LedgerError, match="budget-balanced but posts"):
            make(postings=postings, claims=("budget-balanced",))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(":5", ": 5"),
        lambda text: text.replace('"version":1', '"version":2'),
        lambda text: text.replace('"a":5', '"a":5.0'),
        lambda text: text.replace('"a":5', '"a":6'),
        lambda text: text.replace('"a":5', '"a":1,"a":5'),
        lambda text: text[:-1],
        lambda text: "[]",
        lambda text: text.replace('"run":"demo",', ""),
    ],
)
def test_only_the_exact_bytes_are_read_back(spoil):
    with pytest.raises(LedgerError):
        Entry.from_json(spoil(make().to_json()))


def test_checkpoints_are_written_count_colon_hash():
    checkpoint = Checkpoint(12, "ab" * 32)
    assert Checkpoint.parse(f" {checkpoint}\n") == checkpoint
    named = Checkpoint(12, "ab" * 32, "cd" * 8)
    assert str(checkpoint) == "12:" + "ab" * 32 and str(named) == f"{checkpoint}@{'cd' * 8}"
    assert Checkpoint.parse(str(named)).ledger == "cd" * 8 and named == checkpoint
    assert [
        c.ledger for c in Checkpoint.find(f"head {named}. {checkpoint}@ {checkpoint}, {'9' * 5000}:{'ab' * 32}")
    ] == ["cd" * 8, "", ""]
    assert Checkpoint.find('{"count": ' + "9" * 5000 + ', "hash": "' + "ab" * 32 + '"}') == []
    for bad in ("", "12", "x:" + "ab" * 32, "12:" + "AB" * 32, "12:abc", "-1:" + "ab" * 32):
        with pytest.raises(LedgerError, match="COUNT:HASH"):
            Checkpoint.parse(bad)


@pytest.mark.parametrize("module", [entry, chain, verify, export], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
