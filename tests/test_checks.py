"""The strict reader: every refusal names the section, the key and the value."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction

import pytest
import yaml

from fedincentive import checks
from fedincentive.checks import nearest, read, setting
from fedincentive.errors import SettingError


@dataclass(frozen=True)
class Sample:
    rounds: int = setting(checks.integer(1, 10), help="How many.")
    beta: Fraction = setting(checks.exact(above=0), Fraction(2))
    gamma: float = setting(checks.real(above=0.0), 0.5)
    share: float = setting(checks.real(0.0, 1.0), 0.5)
    phi: str = setting(checks.one_of("audited", "paper"), "audited")
    path: str | None = setting(checks.optional(checks.text), None)
    resume: bool = setting(checks.flag, False)


def test_values_are_kept_and_defaults_filled() -> None:
    given = read(Sample, {"rounds": 3, "beta": "0.05", "gamma": 1, "path": "x"}, "incentive")
    assert given == Sample(3, Fraction(1, 20), 1.0, path="x")
    assert isinstance(given.gamma, float)
    assert read(Sample, yaml.safe_load("{rounds: 3, gamma: 1e-06}"), "incentive").gamma == 1e-6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rounds": 3, "bta": "2"}, "incentive has no setting 'bta'. Did you mean 'beta'?"),
        ({"rounds": 3, "zzz": 1}, "incentive has no setting 'zzz'. Known: beta, "),
        ({}, "incentive.rounds is required. How many."),
        ({"rounds": 0}, "incentive.rounds must be between 1 and 10, not 0."),
        ({"rounds": 2.0}, "incentive.rounds must be a whole number, not 2.0."),
        ({"rounds": True}, "incentive.rounds must be a whole number, not True."),
        ({"rounds": 3, "beta": 0.1}, 'incentive.beta must be a quoted decimal such as "2" or "0.05", not 0.1.'),
        ({"rounds": 3, "beta": "two"}, "incentive.beta must be a decimal number, not 'two'."),
        ({"rounds": 3, "beta": "1e99999999"}, "incentive.beta must be a decimal number, not '1e99999999'."),
        ({"rounds": 3, "beta": "1e9_9999999"}, "incentive.beta must be a decimal number, not '1e9_9999999'."),
        ({"rounds": 3, "beta": "-1"}, "incentive.beta must be greater than 0, not '-1'."),
        ({"rounds": 3, "beta": "1/0"}, "incentive.beta must be a decimal number"),
        ({"rounds": 3, "gamma": 0}, "incentive.gamma must be greater than 0.0, not 0."),
        ({"rounds": 3, "gamma": float("nan")}, "incentive.gamma must be a finite number, not nan."),
        ({"rounds": 3, "gamma": "1e999"}, "incentive.gamma must be a finite number, not inf."),
        ({"rounds": 3, "share": 1.5}, "incentive.share must be between 0.0 and 1.0, not 1.5."),
        ({"rounds": 3, "phi": "papr"}, "incentive.phi is 'papr'. Did you mean 'paper'?"),
        ({"rounds": 3, "phi": 7}, "incentive.phi is 7. Known: audited, paper."),
        ({"rounds": 3, "path": ""}, "incentive.path must be a non-empty string, not ''."),
        ({"rounds": 3, "resume": "yes"}, "incentive.resume must be true or false, not 'yes'."),
        ([1], "incentive must be a mapping of settings, not [1]."),
    ],
)
def test_every_refusal_names_the_key_and_the_value(values: object, message: str) -> None:
    with pytest.raises(SettingError) as refused:
        read(Sample, values, "incentive")  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_nearest_lists_all_when_nothing_is_near() -> None:
    assert nearest("qqqq", ["b", "a"]) == " Known: a, b."


def test_the_nearest_of_many_is_found_in_no_time() -> None:
    """A stranger may send any name to a server of many agents."""
    agents = [f"agent-{i:05d}" * 10 for i in range(10_000)]
    for word in ("agent-77777" * 10 + "x", "agent-" * 10**5):
        start = time.process_time()
        assert len(nearest(word, agents)) < 30_000
        assert time.process_time() - start < 1.0


@pytest.mark.parametrize("value", ["1e400", "-1e400", "1e-400", 10**400, "1e18", "1e-18"])
def test_money_beyond_what_64_bits_hold_is_refused(value) -> None:
    with pytest.raises(SettingError, match="between 1e-18 and 1e18") as refused:
        checks.exact()("incentive.beta", value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan"), "1e400"])
def test_a_number_that_no_float_holds_is_refused(value) -> None:
    with pytest.raises(SettingError, match="must be a finite number") as refused:
        checks.real()("incentive.eta", value)
    assert len(str(refused.value)) < 200
