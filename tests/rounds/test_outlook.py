"""What a host logs before the first round, and the runs it stops because most agents would lose."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fedincentive import mechanisms
from fedincentive.center.outlook import outlook
from fedincentive.errors import SettingError
from fedincentive.hosting import HostSettings, Session
from fedincentive.messages import Enrol
from fedincentive.settings import Settings

SIZES = {"big": 300.0, "mid": 200.0, "small": 100.0}
ENROLLED = [Enrol(name, size, size / 2) for name, size in SIZES.items()]


def seen(classes: int | None = None, **incentive: Any) -> Any:
    settings = Settings.read({"beta": "0.5", "cost": 0.1, **incentive})
    return outlook(mechanisms.get(settings.mechanism, settings), ENROLLED, classes)


def line(page: Any, title: str) -> str:
    return next(text.split(title, 1)[1].strip() for text in page.lines if text.strip().startswith(title))


def test_the_page_has_at_most_ten_lines_with_the_numbers_of_the_run():
    page = seen(value_per_nat=10.0)
    assert len(page.lines) <= 10
    assert line(page, "phase 1") == "about 2 rounds, 6 messages each way"
    assert line(page, "price").startswith("0.5 credits per point; a point costs its owner 0.1")
    assert line(page, "worth").endswith("and 300 to all; all points together cost 60")  # 3 x 10 nats x 10; 600 x 0.1
    # p_i = beta (s_i - mean of the others): 0.5 (300 - 150) and 0.5 (100 - 250)
    assert line(page, "payments").startswith(
        "if all give everything, big receives the most, 75 credits, and small pays the most, 75"
    )
    assert "delivery" not in line(page, "loses") and page.losers == {}


def test_who_loses_for_certain_and_at_least_how_much():
    page = seen()  # worth at most 10: big 10 - 30 + 75 > 0, mid 10 - 20 + 0, small 10 - 10 - 75
    assert page.losers == pytest.approx({"mid": 10.0, "small": 75.0})
    assert page.bad
    assert line(page, "loses") == "even if the model becomes perfect: small at least 75, mid at least 10 credits"


def test_a_model_is_worth_no_more_than_its_classes():
    """ln(2) nats at 10 each are 6.93: mid loses 20 - 6.93, although 10 nats (loss_cap) would make up for its cost."""
    page = seen(classes=2, value_per_nat=10.0, beta="0.3")
    assert page.losers == pytest.approx({"mid": 20 - 6.931472, "small": 45 + 10 - 6.931472}) and page.bad
    assert line(page, "worth").startswith(
        "a model is worth at most 6.93147 to an agent (value_per_nat = 10 for each of at most 0.6931 nats: 2 classes)"
    )


def test_where_classes_are_not_known_ten_are_an_example_and_stop_nothing():
    page = seen(value_per_nat=5.0, beta="0.3")  # 10 ln 10 = 23.0 < 20 + 0: only as an example
    assert page.losers == {"small": pytest.approx(5.0)} and not page.bad
    page = seen(value_per_nat=10.0, beta="0.3")
    assert page.losers == {} and line(page, "loses") == (
        "nobody for certain; with 10 classes or fewer small at least 31.9741 credits"
    )


def test_the_most_that_each_can_owe():
    # nothing delivered while the others give everything: 0.5 times their mean
    assert line(seen(), "can owe") == "at most small 125, mid 100, big 75 credits"
    assert line(seen(mechanism="fedavg"), "can owe") == "nobody can owe anything"


def test_without_costs_or_where_agents_choose_nobody_is_called_a_loser():
    assert seen(cost=0.0).losers == {}
    assert "center cannot know" in line(seen(cost=0.0), "price")
    assert seen(mechanism="upbred").losers == {}
    assert line(seen(mechanism="fedavg-strategic"), "phase 1").startswith("agents measure")


def test_the_rounds_of_a_given_gamma_are_those_of_theorem_2():
    # the largest gap is 150, each round moves gamma (beta - cost) = 0.5 x 0.4
    assert line(seen(gamma=0.5), "phase 1").startswith("about 750 rounds, 2250 messages")
    assert "leave incentive.gamma out" in line(seen(gamma=0.5, round_limit=700), "phase 1")
    assert line(seen(cost={"big": 0.1, "mid": 0.6, "small": 0.1}), "phase 1") == (
        "ends early: mid is paid less for a point than it costs; raise incentive.beta above 0.6"
    )


@pytest.mark.parametrize("accepts", [False, True])
def test_a_run_in_which_most_lose_stops_with_the_page_unless_accepted(tmp_path, caplog, accepts):
    settings = Settings.read({"beta": "0.5", "cost": 0.1, "rounds": 1})
    host = HostSettings(output=str(tmp_path), accept_losses=accepts)
    session = Session(settings, host, logging.getLogger("fedincentive.test"))
    try:
        with caplog.at_level(logging.INFO, logger="fedincentive.test"):
            if accepts:
                session.center(ENROLLED, {})
            else:
                with pytest.raises(
                    SettingError, match=r"2 of 3 agents lose[\s\S]*small at least 75[\s\S]*accept_losses to true"
                ):
                    session.center(ENROLLED, {})
    finally:
        session.close()
    assert any("Before the first round" in text for text in caplog.messages) == accepts  # never twice
    assert (tmp_path / "run" / "state").exists() == accepts
