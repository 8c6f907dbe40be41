"""The quick ways to write, check and count what is signed agree with the plain ones."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedincentive.center.log import with_cosignatures
from fedincentive.identity import Answers
from fedincentive.payments import quantise
from fedincentive.provenance.keys import PrivateKey, words
from fedincentive.provenance.notes import Cosignatures, Head, Note

VALUES = st.one_of(st.integers(-(2**63), 2**63), st.text(max_size=30))
FIELDS = st.dictionaries(st.sampled_from(["agent", "delivered", "nonce", "s", "update", "valuation", "zeta"]), VALUES)
SHARED = st.dictionaries(st.sampled_from(["model", "phase", "round", "run", "seen", "terms", "%s", "é"]), VALUES)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(SHARED, st.lists(FIELDS, min_size=1, max_size=4))
def test_words_of_reports_are_canonical_json(shared: dict[str, int | str], reports: list[dict[str, int | str]]) -> None:
    made = Answers(shared)
    for own in reports:
        assert made.words(dict(sorted(own.items()))) == words("report", {**shared, **own})


@given(st.floats(-1e12, 1e12) | st.integers(-(10**12), 10**12), st.sampled_from([1, 2, 10**6]))
def test_counting_is_exact_and_half_goes_to_even(value: float, scale: int) -> None:
    for near in (value, value // 1 + 0.5):
        assert quantise(near, scale) == round(Fraction(near) * scale)


KEYS = {name: PrivateKey(name) for name in ("a", "St. Mary + 1/2", "é")}
NOTE = Note(Head("ledger", 3, bytes(32)).text).signed(PrivateKey("center"))
LINE = {name: str(NOTE.cosigned(key, 1000).signatures[-1]) for name, key in KEYS.items()}


@pytest.mark.parametrize("name", KEYS)
def test_a_line_counts_as_it_does_in_a_note(name: str) -> None:
    key = KEYS[name].public
    other = str(Note(Head("ledger", 4, bytes(32)).text).cosigned(KEYS[name], 1000).signatures[-1])
    lines = [LINE[name], other, LINE[name][:-4], LINE[name].replace("—", "-"), f" {LINE[name]}", f"{LINE[name]} x"]
    lines += ["", "—", "— ", f"{LINE[name]}\n", LINE["a" if name != "a" else "é"], LINE[name].replace("A", "B", 1)]
    found = [Cosignatures(NOTE.text).time_of(line, key) for line in lines]
    assert found == [1000] + [None] * (len(lines) - 1)
    assert Note.parse(with_cosignatures(str(NOTE), {name: LINE[name]}, {name: key})).cosigned_at(key) == 1000


def test_a_checkpoint_has_one_cosignature_of_each_however_often_they_sign() -> None:
    public = {name: key.public for name, key in KEYS.items()}
    note = str(NOTE)
    for time in range(40):  # a checkpoint may stand for many rounds, and its note must stay readable
        note = with_cosignatures(note, {n: str(NOTE.cosigned(k, time).signatures[-1]) for n, k in KEYS.items()}, public)
    assert [line.name for line in Note.parse(note).signatures] == [
        "center",
        *sorted(k.in_notes for k in public.values()),
    ]
    assert with_cosignatures(note, {"a": None, "é": "junk"}, public) == note
