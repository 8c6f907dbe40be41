"""No two agents have names that a reader takes for each other."""

from __future__ import annotations

import pytest

from fedincentive import Settings, mechanisms
from fedincentive.center.enrolment import enrol, wrong_with
from fedincentive.center.names import likeness
from fedincentive.errors import SettingError
from fedincentive.messages import Enrol

PLAYED = mechanisms.get("2p-upbred", Settings())
ALIKE = [
    ("ann", "\u0430nn"),  # Cyrillic a
    ("ann", "Ann"),
    ("ann", "\uff41\uff4e\uff4e"),  # full width
    ("ann", "a\ufe0fnn"),  # a selector that draws nothing
    ("ann", "ann\u3164"),  # a filler that draws nothing
    ("bob", "b\u03bfb"),  # Greek o
    ("site-1", "site\u20101"),
    ("site 1", "site  1"),
    ("office", "o\ufb03ce"),  # a ligature
    ("stra\u00dfe", "STRASSE"),
    ("\u0421\u041e\u0420\u0415", "COPE"),
    ("a2", "a\u00b2"),
    ("\u00e9cole", "\u00c9COLE"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_look_alikes_are_refused_together_and_both_named(one, other):
    assert likeness(one) == likeness(other)
    with pytest.raises(SettingError) as caught:
        enrol(PLAYED, [Enrol(one, 1.0, 0.0), Enrol("zoe", 1.0, 0.0), Enrol(other, 1.0, 0.0)])
    assert ascii(one) in str(caught.value) and ascii(other) in str(caught.value)
    assert ascii(one) in wrong_with(Enrol(other, 1.0, 0.0), PLAYED, 3, ["zoe", one])
    assert not wrong_with(Enrol(one, 1.0, 0.0), PLAYED, 3, ["zoe", one])  # the same agent again


@pytest.mark.parametrize("name", ["Treasury", "tr\u0435asury", "TREASURY", "treasury\u3164"])
def test_nobody_looks_like_the_treasury(name):
    assert "looks like the account 'treasury'" in wrong_with(Enrol(name, 1.0, 0.0), PLAYED, 3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "printable"),
        ("a" * 201, "printable"),
        ("a\nb", "printable"),
        ("a\u200bb", "printable"),  # zero width
        ("a\u202eb", "printable"),  # from right to left
        ("a\u00a0b", "printable"),
        (" ann", "without spaces around it: 'ann'"),
        ("ann ", "without spaces around it: 'ann'"),
        ("e\u0301cole", r"composed form (NFC): '\xe9cole'"),
        ("\u3164", "nothing of it can be seen"),
    ],
)
def test_names_are_composed_stripped_and_printable(name, words):
    assert words in wrong_with(Enrol(name, 1.0, 0.0), PLAYED, 3)
    with pytest.raises(SettingError):
        enrol(PLAYED, [Enrol(name, 1.0, 0.0), Enrol("zoe", 1.0, 0.0)])


def test_ordinary_names_stand_beside_each_other():
    names = [
        "ann",
        "anna",
        "a1",
        "al",
        "a-1",
        "a_1",
        "1",
        "01",
        "\u00e9cole",
        "ecole",
        "\u0430\u043d\u043d\u0430",
        "\u5317\u4eac",
        "site 1",
    ]
    assert enrol(PLAYED, [Enrol(name, 1.0, 0.0) for name in names]).agents == tuple(sorted(names))
