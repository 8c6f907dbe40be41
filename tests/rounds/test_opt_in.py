"""Before money moves: what agents are offered, who declines, and what budgets allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keyring import folder_of, ring_of
from table import play, play_until, set_table

from fedincentive import engine, ledger, mechanisms
from fedincentive.agent import Agent, ClosedFormSite, LossSite, Strategy
from fedincentive.agent.sites import alone
from fedincentive.center import Center
from fedincentive.center.enrolment import enrol, within_budgets
from fedincentive.errors import BroadcastRefused, ReportRefused, SettingError
from fedincentive.game import outside_options, random_data_value, repaired_example
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.messages import Enrol, Report
from fedincentive.payments.deposit import within_budget
from fedincentive.settings import Settings

GAME = random_data_value(5, 4)
NAMES = GAME.agents
PHASED = {"beta": "7", "gamma": 9.0, "rounds": 3}
HAPPY = replace(GAME, outside_option=np.full(4, -1e6))
UNHAPPY = replace(GAME, outside_option=np.array([-1e6, 1e6, -1e6, -1e6]))


class Leaver(Strategy):
    """Leaves whatever it is offered, and keeps what that was."""

    def declines(self, view, offer):
        self.offer = offer
        return "I never wanted to"


def settings(**values) -> Settings:
    return Settings.read({"mechanism": "2p-upbred", **PHASED, **values})


def test_who_is_better_off_alone_leaves_and_the_others_play(tmp_path: Path) -> None:
    with ledger.open(tmp_path / "book.db") as book:
        center, agents = set_table(UNHAPPY, "2p-upbred", opt_in=True, book=book, **PHASED)
        assert center.broadcast().phase == "accept" and set(center.broadcast().settings["terms"]["agents"]) == set(
            NAMES
        )
        outcome = play(center, agents)
        assert outcome.status == "complete" and list(outcome.declined) == [NAMES[1]]
        assert "alone" in outcome.declined[NAMES[1]]
        first = next(book.entries()).entry
        assert set(first.inputs["terms"]["agents"]) == set(outcome.payments) == set(NAMES) - {NAMES[1]}
        assert all(NAMES[1] not in record.entry.postings for record in book.entries())
        assert verify(book, recompute=True).clean and not standalone.check(list(to_jsonl(book)))[0]


def test_nobody_leaves_who_is_no_worse_off(tmp_path: Path) -> None:
    center, agents = set_table(HAPPY, "2p-upbred", opt_in=True, **PHASED)
    with_phase = play(center, agents)
    center, agents = set_table(HAPPY, "2p-upbred", **PHASED)
    assert center.broadcast().phase != "accept"
    without = play(center, agents)
    assert with_phase.payments == without.payments and with_phase.digest == without.digest
    assert not with_phase.declined


def test_too_few_end_the_run_by_name_and_nothing_is_charged(tmp_path: Path) -> None:
    stay = replace(GAME, outside_option=np.array([1e6, 1e6, 1e6, -1e6]))
    with ledger.open(tmp_path / "book.db") as book:
        center, agents = set_table(stay, "2p-upbred", opt_in=True, book=book, folder=tmp_path / "state", **PHASED)
        outcome = play(center, agents)
        assert outcome.status == "declined" and set(outcome.declined) == set(NAMES[:3])
        assert "Too few agents take part" in outcome.advice and "Nothing was charged" in outcome.advice
        assert not any(outcome.payments.values()) and not list(book.entries())
        assert center.conclude(stay).certificate is not None


def test_those_who_stay_sign_anew(tmp_path: Path) -> None:
    keys = ring_of(NAMES)
    with ledger.open(tmp_path / "book.db") as book:
        options = {"keys": keys, "book": book, "strategies": {NAMES[2]: Leaver()}, **PHASED}
        center, agents = set_table(GAME, "2p-upbred", **options)
        before = center.broadcast().settings["terms"]
        outcome = play(center, agents)
        assert outcome.status == "complete" and outcome.basis == "signed"
        entry = next(book.entries()).entry
        assert entry.round == 1 and set(entry.inputs["accepted"]) == set(NAMES) - {NAMES[2]}
        assert entry.inputs["terms"]["id"] != before["id"]
        assert verify(book, recompute=True).clean and not standalone.check(list(to_jsonl(book)))[0]


def test_a_refusal_in_anothers_name_is_refused() -> None:
    keys = ring_of(NAMES)
    center, agents = set_table(GAME, "2p-upbred", keys=keys, **PHASED)
    told = center.broadcast()
    honest = agents[0].respond(told)
    with pytest.raises(ReportRefused, match="not signed with its key"):
        center.submit(replace(honest, declined="no, thank you"))
    with pytest.raises(ReportRefused, match="unsigned"):
        center.submit(Report(told.run, told.round, "accept", NAMES[0], declined="no"))
    assert center.submit(honest)


def test_a_run_with_more_agents_than_were_shown_first_is_not_signed() -> None:
    """A center may propose again to fewer, one round later; anything else shows other terms than were signed."""
    keys = ring_of(NAMES)
    center, agents = set_table(GAME, "2p-upbred", keys=keys, strategies={NAMES[2]: Leaver()}, **PHASED)
    again, others = set_table(GAME, "2p-upbred", keys=keys, **PHASED)
    agents[0].respond(center.broadcast())
    with pytest.raises(BroadcastRefused, match="other terms"):
        agents[0].respond(again.broadcast())


def test_terms_are_not_proposed_again_once_the_run_has_begun() -> None:
    keys = ring_of(NAMES)
    center, agents = set_table(GAME, "2p-upbred", keys=keys, **PHASED)
    play_until(center, agents, "train")
    agents[0].respond(center.broadcast())
    center.run.terms = {**center.run.terms, "agents": {n: center.run.terms["agents"][n] for n in NAMES[:3]}}
    center.run.phase, center.run.round = "accept", center.run.round + 1
    center._open_round()
    with pytest.raises(BroadcastRefused, match="other terms"):
        agents[0].respond(center.broadcast())


def test_declining_is_for_the_beginning() -> None:
    center, agents = set_table(GAME, "fedavg", rounds=2)
    report = next(iter(engine.answers(center.broadcast(), agents)))
    with pytest.raises(ReportRefused, match="declines in a train round"):
        center.submit(replace(report, declined="enough"))


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\nb", 5])
def test_a_reason_is_a_short_text(bad) -> None:
    center, _ = set_table(GAME, "2p-upbred", opt_in=True, **PHASED)
    with pytest.raises(ReportRefused):
        center.submit(Report("test", 0, "accept", NAMES[0], declined=bad))


def test_an_offer_is_what_the_terms_say() -> None:
    leaver = Leaver()
    sums = {"lump_sums": {NAMES[0]: "3", NAMES[1]: "-3"}}
    center, agents = set_table(GAME, "2p-upbred", opt_in=True, strategies={NAMES[0]: leaver}, **PHASED, **sums)
    agents[0].respond(center.broadcast())
    offer, s = leaver.offer, GAME.s_max
    assert offer.payment == pytest.approx(GAME.payments(s, 7.0)[0] + 3.0)
    assert offer.worst == pytest.approx(7.0 * np.mean(s[1:]) - 3.0) and offer.deposit == 0.0
    best = GAME.valuation.optimum(s)
    assert offer.utility == pytest.approx((GAME.values(best, s) - GAME.costs(s))[0] + offer.payment)
    assert offer.alone == pytest.approx(outside_options(GAME)[0])


def test_lump_sums_of_those_who_left_are_spread(tmp_path: Path) -> None:
    sums = {"lump_sums": {NAMES[1]: "3", NAMES[0]: "-2", NAMES[2]: "-1"}}
    with ledger.open(tmp_path / "book.db") as book:
        center, agents = set_table(
            GAME, "2p-upbred", opt_in=True, book=book, strategies={NAMES[1]: Leaver()}, **PHASED, **sums
        )
        for agent in agents:
            agent.alone = None
        play(center, agents)
        posted = next(r.entry for r in book.entries() if r.entry.kind == "lump").postings
        assert dict(posted) == {NAMES[0]: -1_000_000, NAMES[2]: 0, NAMES[3]: 1_000_000}
        assert verify(book, recompute=True).clean and not standalone.check(list(to_jsonl(book)))[0]


def test_a_run_with_points_that_nobody_has_is_certified_without_the_game(tmp_path: Path) -> None:
    ended = engine.play(GAME, lies={NAMES[0]: "phantom"}, mechanism="2p-upbred", **PHASED)
    assert ended.s[NAMES[0]] == 2 * GAME.s_max[0] and ended.certificate.regret.basis == "unavailable"


def test_a_run_that_rests_short_charges_nothing(tmp_path: Path) -> None:
    low = {"beta": "0.01", "gamma": 20.0, "rounds": 5, "lump_sums": {"agent-1": "3", "agent-2": "-3"}}
    with ledger.open(tmp_path / "book.db") as book:
        center, agents = set_table(repaired_example(), "2p-upbred", book=book, **low)
        outcome = play(center, agents)
        assert outcome.status == "rested" and not any(outcome.payments.values())
        assert not any(record.entry.postings for record in book.entries())


def test_a_saved_proposal_is_taken_up_again(tmp_path: Path) -> None:
    values = {"opt_in": True, **PHASED}
    center, agents = set_table(UNHAPPY, "2p-upbred", folder=tmp_path, **values)
    for report in engine.answers(center.broadcast(), agents):
        center.submit(report)
    center.close()
    assert center.broadcast().phase == "accept" and center.run.declined
    center.release()
    resumed, agents = set_table(UNHAPPY, "2p-upbred", folder=tmp_path, resume=True, **values)
    assert resumed.run.agents == center.run.agents and resumed.broadcast().settings == center.broadcast().settings
    assert play(resumed, agents).status == "complete"


# Budgets


def enrolled(**budgets: float) -> list[Enrol]:
    return [Enrol(name, s, 0.0, budget=budgets.get(name)) for name, s in (("a", 60.0), ("b", 50.0), ("c", 25.5))]


def test_a_budget_bounds_what_an_agent_owes_while_it_delivers() -> None:
    made = mechanisms.get("2p-upbred", settings(beta="0.08"))
    owes = 0.08 * ((60 + 50) / 2 - 25.5)
    assert enrol(made, enrolled(c=owes)).s_max["c"] == 25_500_000
    assert enrol(made, enrolled(a=0.0)).s_max["a"] == 60_000_000  # it is paid
    with pytest.raises(SettingError, match=r"Agent 'c' would owe 2.36 in run 'run' .* its budget is 2.35: raise it"):
        enrol(made, enrolled(c=2.35))
    for bad in (-1.0, float("nan"), float("inf"), "much"):
        with pytest.raises(SettingError, match="budget"):
            enrol(made, enrolled(c=bad))


AUDITED = {
    "auditors": ["x", "y", "z"], "audit": 0.1, "rechecks": 0.0, "detection": 0.9, "rounds": 40, "beta": "0.08",
}  # fmt: skip


def test_who_cannot_pay_the_deposit_counts_with_what_it_covers(caplog) -> None:
    made = mechanisms.get("2p-upbred", settings(**AUDITED))
    deposit = made.payments[-1]
    counted = within_budgets(made, enrolled(a=0.75))
    assert counted["a"] == deposit.covered(750_000, 60 * 10**6, 3) == 41 * 10**6  # above the others' mean it owes none
    assert deposit.of_points(41 * 10**6, 3) <= 750_000 < deposit.of_points(42 * 10**6, 3)
    assert counted["b"] == 50 * 10**6 and "Agent a counts with 41 of its 60 points" in caplog.text
    assert within_budgets(made, enrolled(a=3.0))["a"] == 60 * 10**6
    with pytest.raises(
        SettingError, match="Agent 'a' .* the deposit of a single point is 0.020223, of all 1.08; its budget is 0.015"
    ):
        within_budgets(made, enrolled(a=0.015))
    with pytest.raises(SettingError, match="Agent 'c' would owe 2.36"):  # and 0.459 beside it
        within_budgets(made, enrolled(c=2.5))


@pytest.mark.parametrize("seed", range(30))
def test_no_larger_number_of_points_would_fit_a_budget(seed: int) -> None:
    """By trying every whole number of points."""
    rng = np.random.default_rng(seed)
    terms = {**AUDITED, "audit": float(rng.choice([0.05, 0.5, 0.9])), "rounds": int(rng.integers(1, 60))}
    made = mechanisms.get("2p-upbred", settings(**terms)).payments
    s_max = {name: int(rng.integers(1, 60)) * 10**6 for name in "abcd"}
    budget = int(rng.integers(0, 6 * 10**6))

    def fits(s: int) -> bool:
        charged = 0.08 * (sum(v for k, v in s_max.items() if k != "a") / 3 - s) / 10**6
        return made[-1].of_points(s, 4) + max(0, round(charged * 10**6)) <= budget

    best = max((s * 10**6 for s in range(1, s_max["a"] // 10**6 + 1) if fits(s * 10**6)), default=0)
    assert within_budget(made, s_max, "a", budget, 10**6, 10**6) == best


def test_phantom_points_that_nobody_can_back_do_not_count_against_others() -> None:
    made = mechanisms.get("2p-upbred", settings(**AUDITED))
    agents = [Enrol("a", 10.0, 0.0, budget=50.0), Enrol("b", 10.0, 0.0), Enrol("m", 1e9, 0.0, budget=2.5)]
    counted = within_budgets(made, agents)
    assert counted["a"] == 10 * 10**6 and counted["m"] < 150 * 10**6


def test_an_agent_gives_no_more_than_it_is_counted_with() -> None:
    site = ClosedFormSite(GAME, 0)
    agent = Agent(NAMES[0], site, "fixed", s0=float(GAME.s_max[0]))
    center, _ = set_table(GAME, "2p-upbred", opt_in=True, **PHASED)
    told = center.broadcast()
    terms = {**told.settings["terms"], "agents": {**told.settings["terms"]["agents"]}}
    terms["agents"][NAMES[0]] = {**terms["agents"][NAMES[0]], "s_max": 1_000_000, "deposit": 5}
    agent.respond(replace(told, settings={**told.settings, "terms": terms}))
    later = replace(told, phase="contribute", s={**told.s, NAMES[0]: 3.0}, settings={**told.settings})
    assert agent.respond(later).s == 1.0


def audited(tmp_path: Path, game: Any, **values: Any) -> tuple[Center, list[Any], Path]:
    """An audited run in the engine, with all keys."""
    keys = folder_of(tmp_path / "keys", [*game.agents, "x", "y", "z"])
    given = {**PHASED, "rounds": 4, "audit": 0.5, "auditors": ["x", "y", "z"], "keys": str(keys), **values}
    book = ledger.open(tmp_path / "book.db")
    return (*engine.table(game, settings(**given), ledger=book, state=tmp_path / "state"), tmp_path / "book.db")


def test_an_audited_run_counts_what_a_budget_covers(tmp_path: Path) -> None:
    """The largest agent owes nothing, and its budget covers a deposit for a part of its points."""
    game = random_data_value(5, 4)
    i = int(np.argmax(game.s_max))
    rich = np.where(np.arange(4) == i, 140.0, np.inf)
    center, agents, path = audited(tmp_path, replace(game, budget=rich))
    with center:
        name, terms = game.agents[i], center.run.terms["agents"]
        assert terms[name]["s_max"] < terms[name]["enrolled"] and terms[name]["s_max"] % 10**6 == 0
        assert terms[name]["deposit"] <= 140 * 10**6
        outcome = play(center, agents)
    assert outcome.status == "complete" and outcome.s[name] == terms[name]["s_max"] / 10**6
    assert sum(outcome.payments.values()) == 0
    with ledger.read(path) as book:
        assert verify(book, recompute=True).clean
        assert {r.entry.kind for r in book.entries()} >= {"deposit", "tranche", "refund"}


@pytest.mark.parametrize("what", ["deposit", "s_max"])
def test_no_agent_signs_a_deposit_that_its_terms_do_not_ask_for(tmp_path: Path, what: str) -> None:
    center, agents, _ = audited(tmp_path, GAME)
    with center:
        given = center.run.terms["agents"][NAMES[0]]
        given[what] -= 10**6
        center._open_round()  # the center signs what it likes
        with pytest.raises(BroadcastRefused, match="The terms of run"):
            agents[0].respond(center.broadcast())


# What training alone is worth


class Learner:
    """w moves to the mean of the data; the loss is the distance from it."""

    def __init__(self, w0=None) -> None:
        data = np.array([1.0, 2.0, 3.0, 6.0])
        train = lambda w, rows, step: {"w": 0.5 * (data[rows].mean() - w["w"])}  # noqa: E731
        loss = lambda w: float(abs(data.mean() - w["w"][0]))  # noqa: E731
        self.site = LossSite(4, train, loss, order=np.arange(4), reward=3.0, cost_per_point=0.1, w0=w0)


def test_training_alone_is_measured_from_the_first_model() -> None:
    assert Learner().site.alone(5) is None  # it does not know the first model
    site = Learner({"w": np.zeros(1)}).site
    distance = 3.0 * 0.5**5
    assert site.alone(5) == pytest.approx(3.0 - distance - 0.4)
    assert alone(site, 0) == pytest.approx(0.0)  # at least what it has by doing nothing
    assert site.alone(5, eta=2.0) == pytest.approx(3.0 - 0.4)
    assert site.expects({}) == 3.0
