"""The incentive table of a run config, as Flower hands it over."""

from __future__ import annotations

from fractions import Fraction

import pytest
from fedincentive.plugins.flower.settings import nested, read

from fedincentive.errors import SettingError


def test_core_and_host_settings_are_read_from_flat_keys() -> None:
    settings, host = read(
        {
            "num-server-rounds": 3,
            "incentive.mechanism": "upbred",
            "incentive.beta": "0.05",
            "incentive.round-limit": 50,
            "incentive.round-timeout": 20.0,
            "incentive.agents": 7,
            "incentive.cost.site-a": 0.25,
            "incentive.cost.site-b": 1,
            "incentive.strategy.site-b": "free-rider",
        }
    )
    assert settings.mechanism == "upbred"
    assert settings.beta == Fraction(1, 20)
    assert settings.round_limit == 50
    assert settings.cost == {"site-a": 0.25, "site-b": 1.0}
    assert (host.agents, host.round_timeout, host.strategy) == (7, 20.0, {"site-b": "free-rider"})


def test_an_empty_string_is_not_given() -> None:
    settings, _ = read({"incentive.run": "", "incentive.sampled": "", "incentive.ledger": ""}, run="from-flower")
    assert (settings.run, settings.sampled, settings.ledger) == ("from-flower", None, None)
    assert read({"incentive.run": "mine"}, run="from-flower")[0].run == "mine"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("incentive.round-limt", 5, "Did you mean 'round_limit'"),
        ("incentive.round-timout", 5.0, "Did you mean 'round_timeout'"),
        ("incentive.beta", 0.1, "quoted decimal"),
        ("incentive.agents", 0, "at least 1"),
        ("incentive.start", 1.5, "between 0.0 and 1.0"),
        ("incentive.mechanism.a", "x", "incentive.mechanism must be"),
    ],
)
def test_a_wrong_setting_is_named(key: str, value: object, words: str) -> None:
    with pytest.raises(SettingError, match=words.replace("(", "\\(")):
        read({key: value})


def test_options_may_be_by_agent() -> None:
    given = {"incentive.options.level.targets.site-a": "3", "incentive.options.level.targets.site_b": "4"}
    found = nested({**given, "incentive.options.level.half-life": "5"})
    assert found == {"options": {"level": {"targets": {"site-a": "3", "site_b": "4"}, "half_life": "5"}}}
    with pytest.raises(SettingError, match="both a value and a table"):
        nested({"incentive.options.level.targets": "1", **given})


def test_a_key_cannot_be_value_and_table() -> None:
    with pytest.raises(SettingError, match="both a value and a table"):
        nested({"incentive.cost": 1.0, "incentive.cost.a": 2.0})


def test_what_is_equal_but_not_the_same_is_read_again() -> None:
    """What was read once is remembered, for every message carries it."""
    for _ in range(2):
        assert str(read({"incentive.cost": 0.0})[0].cost) == "0.0"
        assert str(read({"incentive.cost": -0.0})[0].cost) == "-0.0"
        assert read({"incentive.rounds": 1})[0].rounds == 1
        with pytest.raises(SettingError, match="rounds"):
            read({"incentive.rounds": True})
        with pytest.raises(SettingError, match=r"seed|rounds"):
            read({"incentive.rounds": -(10**100_000)})  # a number that cannot be written out
        assert [read({"incentive.rounds": 1}, run=run)[0].run for run in ("a", "b")] == ["a", "b"]
    assert read({"incentive.rounds": 1}) is read({"incentive.rounds": 1})
