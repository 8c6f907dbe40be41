"""Mechanisms by name, and mechanisms from other packages."""

from __future__ import annotations

import pytest
from packages import install
from table import played

from fedincentive import mechanisms
from fedincentive.errors import SettingError
from fedincentive.game import repaired_example
from fedincentive.mechanisms import Settings

NAMES = ["fedavg", "upbred", "t-upbred", "2p-upbred", "trim-2p-upbred", "fedavg-strategic"]

EXTENSION = '''
from fedincentive.mechanisms import Mechanism, Promises

class HalfAndHalf(Mechanism):
    """Everyone gives half of what it has."""

    name = "half"

    def start(self, run):
        run.s = {agent: points // 2 for agent, points in run.s_max.items()}
        return "train"

class NotOne:
    def __init__(self, settings):
        pass
'''


@pytest.fixture
def extension(tmp_path, monkeypatch):
    """An installed package, as pip would leave it, that offers mechanisms."""
    points = (
        "[fedincentive.mechanisms]\nhalf = house_rules:HalfAndHalf\nwrong = house_rules:NotOne\n"
        "gone = house_rules_gone:Nothing\nfedavg = house_rules:HalfAndHalf\n"
    )
    monkeypatch.syspath_prepend(str(install(tmp_path, "house_rules", EXTENSION, points)))


def test_ours_are_there_and_say_their_name() -> None:
    assert mechanisms.names()[:6] == NAMES
    for name in NAMES:
        assert mechanisms.get(name, Settings()).name == name


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="no mechanism '2p-upbread'. Did you mean '2p-upbred'"):
        mechanisms.get("2p-upbread", Settings())


def test_another_package_adds_a_mechanism(extension) -> None:
    assert "half" in mechanisms.names()
    run = played(repaired_example(), "half", rounds=3)
    assert run.outcome.s == {"agent-1": 2.5, "agent-2": 2.5}
    assert run.outcome.status == "complete"


def test_ours_cannot_be_replaced(extension) -> None:
    assert type(mechanisms.get("fedavg", Settings())).__module__.startswith("fedincentive.")


def test_a_broken_extension_is_named(extension) -> None:
    with pytest.raises(SettingError, match="'gone' .house_rules_gone:Nothing. cannot be loaded"):
        mechanisms.get("gone", Settings())
    with pytest.raises(SettingError, match="'wrong'.*derive it from mechanisms.Mechanism"):
        mechanisms.get("wrong", Settings())


def test_a_trimmed_mechanism_aggregates_by_the_trimmed_mean() -> None:
    assert mechanisms.get("trim-2p-upbred", Settings()).rule == "trimmed-mean"
    assert mechanisms.get("trim-2p-upbred", Settings.read({"aggregation": "median"})).rule == "median"
    with pytest.raises(SettingError, match="no aggregation rule 'men'"):
        mechanisms.get("fedavg", Settings.read({"aggregation": "men"}))


@pytest.mark.parametrize(
    ("name", "values", "n", "message"),
    [
        ("2p-upbred", {}, 1, "payment is 'contribution' with 1 agent.*at least 2 agents or set payment: none"),
        ("t-upbred", {}, 1, "payment is 'truthful' with 1 agent"),
        ("trim-2p-upbred", {}, 2, "needs at least 3 agents, not 2"),
        ("trim-2p-upbred", {"alpha": 0.49}, 4, "alpha = 0.49: that needs at least 5 agents, not 4"),
        ("fedavg", {"aggregation": "krum", "alpha": 0.3}, 5, "'krum' with alpha = 0.3: that needs at least 7"),
    ],
)
def test_numbers_of_agents_that_make_no_sense(name, values, n, message) -> None:
    with pytest.raises(SettingError, match=message):
        mechanisms.get(name, Settings.read(values)).check(n)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_fedavg_takes_any_number_of_agents(n) -> None:
    mechanisms.get("fedavg", Settings()).check(n)


def test_settings_that_contradict_a_mechanism() -> None:
    with pytest.raises(SettingError, match="fedavg-strategic is the mechanism without payments"):
        mechanisms.get("fedavg-strategic", Settings.read({"payment": "contribution"}))
    with pytest.raises(SettingError, match="commitment.*, but upbred has no phase 1"):
        mechanisms.get("upbred", Settings.read({"payment": "contribution", "settlement": "commitment"}))
