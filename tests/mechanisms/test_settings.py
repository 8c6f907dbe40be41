"""The one schema of the incentive mapping."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction

import pytest

from fedincentive.errors import SettingError
from fedincentive.mechanisms import Settings


def test_every_setting_is_documented() -> None:
    rows = Settings.documentation()
    assert [name for name, *_ in rows] == [field.name for field in dataclasses.fields(Settings)]
    assert all(len(text) > 10 for *_, text in rows)
    allowed = {name: values for name, _, values, _ in rows}
    assert allowed["server_optimizer"] == "`sgd`, `adam`" and allowed["slope"].startswith("`bounded`, ")
    assert allowed["round_limit"] == "1 or more" and allowed["eta"] == "above 0"


def test_defaults_are_valid_settings_themselves() -> None:
    plain = {key: value for key, value in Settings().plain().items()}
    assert Settings.read(plain) == Settings()


def test_plain_survives_json() -> None:
    settings = Settings.read({"beta": "0.05", "cost": {"a": 0.5, "b": 1}, "fine": "7/3"})
    assert Settings.read(json.loads(json.dumps(settings.plain()))) == settings
    assert settings.beta == Fraction(1, 20)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bta": "2"}, "no setting 'bta'.*'beta'"),
        ({"beta": 0.05}, r'beta must be a quoted decimal such as "2" or "0.05", not 0.05'),
        ({"beta": "0"}, "beta must be greater than 0"),
        ({"beta": "-1"}, "beta must be greater than 0"),
        ({"gamma": 0}, "gamma must be greater than 0"),
        ({"gamma": float("nan")}, "gamma must be a finite number"),
        ({"eta": -1.0}, "eta must be greater than 0"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"payment": ["contribution", 7]}, r"payment\[1\] must be a non-empty string, not 7"),
        ({"settlement": "later"}, "settlement is 'later'"),
        ({"quorum": 0.0}, "quorum must be greater than 0"),
        ({"quorum": 1.5}, "quorum must be between"),
        ({"alpha": 0.5}, "alpha must be between"),
        ({"cost": {"a": -1.0}}, "cost.a must be at least 0"),
        ({"cost": "cheap"}, "cost must be a finite number"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_wrong_settings_are_named(values, message) -> None:
    with pytest.raises(SettingError, match=message):
        Settings.read(values)


def test_cost_of_names_an_agent_without_one() -> None:
    with pytest.raises(SettingError, match="no number for agent 'c'; known: a, b"):
        Settings.read({"cost": {"a": 1.0, "b": 2.0}}).cost_of("c")


def test_what_agents_are_told_is_plain_and_keeps_the_audits_secret() -> None:
    from fedincentive import mechanisms

    public = mechanisms.get("t-upbred", Settings.read({"audit": 0.5, "audit_seed": 1234})).public()
    plain = json.dumps(public)
    assert json.loads(plain) == public
    assert "1234" not in plain and "audit_seed" not in plain and "keys" not in plain
