"""Attacks by name: what each one sends."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.adversary import ATTACKS, MISREPORTS, Misreport, attack, flip_labels, misreport
from fedincentive.errors import SettingError

D = {"w": np.array([1.0, -2.0, 3.0]), "count": np.array(4, np.int64)}
HONEST = [{"w": np.array([1.0, 2.0, 3.0]) + 0.1 * k, "count": np.array(k)} for k in range(8)]


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_every_attack_keeps_shapes_types_and_counters(name) -> None:
    update = {"w": D["w"].astype(np.float32), "count": D["count"]}
    sent = attack(name)(update, [{**h, "w": h["w"].astype(np.float32)} for h in HONEST], step=3)
    assert list(sent) == ["w", "count"]
    assert sent["w"].shape == (3,) and sent["w"].dtype == np.float32
    assert sent["count"] == 4
    assert np.array_equal(update["w"], D["w"])  # the honest update is left alone


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("sign-flip", None, [-1.0, 2.0, -3.0]),
        ("sign-flip", 10, [-10.0, 20.0, -30.0]),
        ("zero", None, [0.0, 0.0, 0.0]),
        ("scaled", 5, [5.0, -10.0, 15.0]),
        ("ipm", 2, [-2.7, -4.7, -6.7]),
    ],
)
def test_what_is_sent(name, size, expected) -> None:
    assert attack(name, size)(D, HONEST)["w"] == pytest.approx(expected)


def test_gaussian_is_seeded_by_agent_and_step() -> None:
    noise = attack("gaussian", 2.0, seed=1)
    assert np.array_equal(noise(D, step=4)["w"], noise(D, step=4)["w"])
    assert not np.array_equal(noise(D, step=4)["w"], noise(D, step=5)["w"])
    assert not np.array_equal(noise(D, step=4)["w"], attack("gaussian", 2.0, seed=2)(D, step=4)["w"])
    wide = attack("gaussian", 2.0)({"w": np.zeros(20_000)})["w"]
    assert wide.std() == pytest.approx(2.0, rel=0.05)


def test_alie_hides_inside_the_honest_spread() -> None:
    values = np.stack([h["w"] for h in HONEST])
    sent = attack("alie")(D, HONEST)["w"]
    assert values.mean(axis=0) - sent == pytest.approx(1.5 * values.std(axis=0))
    assert np.all(sent > attack("alie", 3.0)(D, HONEST)["w"])


@pytest.mark.parametrize(("name", "check"), [("nan", np.isnan), ("inf", np.isinf)])
def test_spoilt_updates(name, check) -> None:
    assert check(attack(name)(D)["w"]).sum() == 1


@pytest.mark.parametrize("name", ["alie", "ipm"])
def test_what_is_made_from_honest_updates_says_when_it_sees_none(name) -> None:
    with pytest.raises(SettingError, match=f"'{name}' is made from the honest updates"):
        attack(name)(D)


def test_flipped_labels() -> None:
    labels = np.arange(10)
    assert list(flip_labels(labels, 10)) == list(range(9, -1, -1))
    assert np.array_equal(flip_labels(flip_labels(labels, 10), 10), labels)
    with pytest.raises(SettingError, match="between 0 and 4, not 0 to 9"):
        flip_labels(labels, 5)


def test_unknown_names_are_met_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="no attack 'signflip'. Did you mean 'sign-flip'"):
        attack("signflip")
    with pytest.raises(SettingError, match="no misreport 'inflate-w'. Did you mean 'inflate-"):
        misreport("inflate-w")


@pytest.mark.parametrize("name", sorted(MISREPORTS))
def test_every_misreport_says_something_else(name) -> None:
    lie = misreport(name)
    assert lie != Misreport()
    if lie.s:
        assert lie.s(2.0, 5.0) != 2.0 and 0.0 <= lie.s(2.0, 5.0) <= 5.0
    if lie.delivered:
        assert lie.delivered(5.0, 5.0) == 5.0
    if lie.valuation:
        assert lie.valuation(2.0) != 2.0 and lie.valuation(-2.0) != -2.0
        assert (lie.valuation(2.0) > 2.0) == (lie.valuation(-2.0) > -2.0)
    if lie.update:
        assert not np.array_equal(lie.update(D)["w"], D["w"])


def test_an_attack_is_a_misreport_of_d() -> None:
    assert misreport("sign-flip").update.name == "sign-flip"
