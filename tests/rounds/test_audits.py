"""Audited runs: whoever did not do what it says is found, whoever did is not, and nobody chooses who is looked at."""

from __future__ import annotations

import copy
import dataclasses
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keyring import ring_of
from table import BLIND, answer, play, play_until, set_table

from fedincentive import ledger
from fedincentive.agent import Strategy
from fedincentive.audit import Auditor
from fedincentive.center import Center, state
from fedincentive.center.audits import extent
from fedincentive.errors import BroadcastRefused, QuorumError, ReportRefused, SettingError
from fedincentive.game import read, repaired_example
from fedincentive.identity import CENTER
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.provenance import audits, beacon

AUDITORS = ("ann", "bea", "cleo")
NAMES = ("clinic", "hospital", "lab", "practice")
GAME = read(
    {
        "game": {
            "kind": "data-value",
            "each": {"cost": 0.01, "b": 20.0},
            "w0": [0.25, -1.0],
            "agents": [
                {"name": name, "s_max": s_max, "s0": s_max, "ideal": ideal}
                for name, s_max, ideal in zip(
                    NAMES, (250.5, 400, 90, 700), ([0.5, 1.5], [1.0, 2.0], [0.2, 0.7], [1 / 3, 0.1]), strict=True
                )
            ],
        }
    }
)
RING = ring_of((*NAMES, *AUDITORS))
LIES = ("under-train", "phantom", "replay", "copy", "sign-flip", "gaussian", "zero-d", "inflate-d", "scaled")


class Audited:
    """An audited run with its ledger, without payments: what money follows from it is tested where money is."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.book = folder, ledger.open(folder / "l.db")
        options = {"mechanism": "fedavg", "rounds": 5, "auditors": AUDITORS, "audit": 1.0, **options}
        self.center, self.players = set_table(
            options.pop("game", GAME),
            options.pop("mechanism"),
            keys=options.pop("keys", RING),
            book=self.book,
            folder=options.pop("state", folder / "state"),
            oracles=BLIND,
            receipts=options.pop("receipts", False),
            **options,
        )

    def play(self) -> dict[str, int]:
        play(self.center, self.players)
        return self.center.run.failed

    def player(self, name: str) -> Any:
        return next(player for player in self.players if player.name == name)

    @property
    def entries(self) -> list[Any]:
        return [record.entry for record in self.book.entries("test")]

    @property
    def memos(self) -> list[Any]:
        return [entry for entry in self.entries if entry.rule == audits.RULE]

    def findings(self) -> list[str]:
        """What both verifiers find; they must name the same kinds."""
        ours = {finding.name for finding in verify(self.book, recompute=True).findings}
        theirs = {name for name, _, _ in standalone.check(list(to_jsonl(self.book)))[0]}
        assert ours == theirs
        return sorted(ours)


def test_honest_agents_pass_every_audit_and_the_ledger_says_so(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    assert table.play() == {} and table.findings() == []
    assert [memo.kind for memo in table.memos] == [f"audit-{step}" for step in range(5)]
    assert all(memo.inputs["failed"] == [] for memo in table.memos)
    looked = [one["agent"] for memo in table.memos for item in memo.inputs["heard"] for one in item["verdicts"]]
    assert set(looked) == set(NAMES) and len(looked) >= 20  # some passes were repeated
    assert table.center.outcome.status == "complete"
    said = str(extent(table.center.run))
    assert "not every agent committed to records" in said and "committed records" not in said  # a game has none


@pytest.mark.parametrize("lie", LIES)
def test_a_liar_is_found_in_its_first_lie_and_counts_no_more(tmp_path: Path, lie: str) -> None:
    table = Audited(tmp_path, lies={"hospital": lie})
    first = 1 if lie == "replay" else 0  # there is no step to replay before the first one
    assert table.play() == {"hospital": first}
    assert table.findings() == []
    run = table.center.run
    assert run.delivered_total["hospital"] == first * run.s_max["hospital"] and run.delivered["hospital"] == 0
    asked = [entry.inputs["said"] for entry in table.entries if entry.kind == "reports-train"]
    assert ["hospital" in said for said in asked] == [True] * (first + 2) + [False] * (3 - first)


def test_what_a_found_liar_sends_is_not_aggregated(tmp_path: Path) -> None:
    table = Audited(tmp_path, lies={"hospital": "sign-flip"})
    play_until(table.center, table.players, "train", 2)  # it is found by now
    before, answers = table.center.w["w"], {}
    assert table.center.missing == ("clinic", "lab", "practice")
    for name in table.center.missing:
        report = table.player(name).respond(table.center.broadcast())
        answers[name] = report.update["w"]
        table.center.submit(report)
    table.center.close()
    np.testing.assert_allclose(table.center.w["w"], before + sum(answers.values()) / 3, rtol=1e-15)


@pytest.mark.parametrize("lie", ["copy", "replay"])
def test_copies_and_replays_are_audited_whatever_the_coins_say(tmp_path: Path, lie: str) -> None:
    table = Audited(tmp_path, lies={"hospital": lie}, audit=1e-9)
    assert table.play() == {"hospital": 0 if lie == "copy" else 1}
    assert table.findings() == []


def test_what_auditors_find_is_added_to_a_copy_of_the_run_alone(tmp_path: Path) -> None:
    """A round that cannot be closed leaves the run as it was."""
    table = Audited(tmp_path)
    play_until(table.center, table.players, "audit")
    before = copy.deepcopy(table.center.run.audits)
    (first, *_) = table.center.run.copy().audits
    first["heard"].append({"auditor": "ann", "silent": list(NAMES)})
    for heard in first["tasks"].values():
        heard.append(["ann", audits.SILENT])
    first["value"] = "another"
    assert table.center.run.audits == before


def test_coins_fall_as_often_as_agreed_and_nobody_is_spared(tmp_path: Path) -> None:
    value = beacon.mixed("terms", 1, {"a": "x"})
    agents = [f"agent-{i}" for i in range(20_000)]
    drawn = audits.coins(value, agents, audits.chance(0.1, 0.25))
    assert abs(len(drawn) / 20_000 - 0.08) < 0.006  # three standard deviations
    firsts = [audits.order(value, agent, AUDITORS)[0] for agent in agents]
    assert all(abs(firsts.count(auditor) / 20_000 - 1 / 3) < 0.01 for auditor in AUDITORS)
    again = {agent for agent in agents if audits.repeated(value, agent, 0.25)}
    assert abs(len(again) / 20_000 - 0.25) < 0.0095
    assert abs((len(drawn) + len(drawn & again)) / 20_000 - 0.1) < 0.009  # second looks are part of `audit`


@pytest.mark.parametrize(("rechecks", "looks"), [(0.0, 1), (1.0, 2)])
def test_passes_are_checked_again_as_often_as_agreed(tmp_path: Path, rechecks: float, looks: int) -> None:
    table = Audited(tmp_path, rechecks=rechecks)
    assert table.play() == {} and table.findings() == []
    looked = [one["agent"] for memo in table.memos for item in memo.inputs["heard"] for one in item["verdicts"]]
    assert sorted(looked) == sorted(NAMES * 5 * looks)


def test_the_terms_say_how_often_anybody_is_audited(tmp_path: Path) -> None:
    agreed = Audited(tmp_path, audit=0.1).center.run.terms
    assert audits.agreed(agreed) == ("audit/3", Fraction(1, 11), Fraction(1, 10))
    del agreed["settings"]["rechecks"]
    assert audits.agreed(agreed) == ("audit/2", 0.1, 0.1)
    del agreed["lag"]
    assert audits.agreed(agreed) == ("audit/1", 0.1, 0.1)


def test_no_auditor_can_know_whose_pass_is_checked_again(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    for step in range(5):
        play_until(table.center, table.players, "audit", step)
        draws, told = table.center.run.audits[0]["next"], table.center.broadcast()
        assert table.center.run.audits[0]["step"] == step
        seen = json.dumps([told.settings, told.audits, told.reveal, list(to_jsonl(table.book))])
        links = beacon.chain(str(table.center.run.audit_seed).encode(), 7)
        assert links[step + 1] in seen and draws == links[step + 2] not in seen
        play_until(table.center, table.players, "train" if step < 3 else "confirm")


# Auditors who disagree, lie or are silent


class Liar(Auditor):
    """Says the opposite of what it found, or always the same."""

    says: str | None = None

    def _verdict(self, said: Any) -> dict[str, Any]:
        found = super()._verdict(said)
        other = {audits.PASS: audits.FAIL, audits.FAIL: audits.PASS}
        return {**found, "found": self.says or other[found["found"]]}


def with_liars(table: Audited, *names: str, says: str | None = None) -> None:
    for player in table.players:
        if player.name in names:
            player.__class__ = Liar
            player.says = says


def test_one_false_verdict_harms_nobody(tmp_path: Path) -> None:
    table = Audited(tmp_path, rounds=8)
    with_liars(table, "bea", says=audits.FAIL)
    assert table.play() == {} and table.findings() == []
    said = [one["found"] for memo in table.memos for item in memo.inputs["heard"] for one in item["verdicts"]]
    assert audits.FAIL in said


def test_one_friendly_auditor_spares_a_liar_only_where_it_is_drawn_first(tmp_path: Path) -> None:
    table = Audited(tmp_path, lies={"hospital": "sign-flip"}, rounds=10)
    with_liars(table, "bea", says=audits.PASS)
    failed = table.play()
    assert "hospital" in failed and table.findings() == []
    first = next(memo for memo in table.memos if "hospital" in memo.inputs["failed"])
    assert first.inputs["step"] == failed["hospital"]


def test_two_false_auditors_convict_which_is_what_remains(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    with_liars(table, "bea", "cleo", says=audits.FAIL)
    assert table.play() and table.findings() == []


def test_a_run_that_has_too_few_agents_left_ends_and_says_so(tmp_path: Path) -> None:
    table = Audited(tmp_path, aggregation="trimmed-mean", alpha=0.2, lies={"lab": "gaussian", "clinic": "gaussian"})
    assert table.play() == {"clinic": 0, "lab": 0} and table.findings() == []
    ended = table.center.outcome
    assert (ended.status, ended.trained) == ("stopped", 2) and "audits failed clinic, lab" in ended.advice
    assert [memo.kind for memo in table.memos] == ["audit-0", "audit-1"]


def test_a_silent_auditor_is_passed_over_and_named(tmp_path: Path) -> None:
    table = Audited(tmp_path, lies={"lab": "gaussian"})
    play_until(table.center, table.players, "audit")
    mute = table.center.broadcast().audits[0]["auditor"]
    table.player(mute).respond = lambda *given: None
    assert table.play() == {"lab": 0} and table.findings() == []
    silent = [item["auditor"] for memo in table.memos for item in memo.inputs["heard"] if "silent" in item]
    assert silent and set(silent) == {mute}


@pytest.mark.parametrize(("friends", "spared"), [(("bea",), False), (("bea", "ann"), True)])
def test_a_center_that_calls_an_auditor_silent_cannot_spare_a_liar_with_one_friend(
    tmp_path: Path, friends: tuple[str, ...], spared: bool
) -> None:
    """The center drops what honest auditors say until its friend is drawn. A second one has to agree with it."""
    table = Audited(tmp_path, lies={"lab": "sign-flip"}, rounds=6 if spared else 14, repeats=50)
    with_liars(table, *friends, says=audits.PASS)
    for name in set(AUDITORS) - set(friends):
        respond, dropped = table.player(name).respond, []

        def unheard(told: Any, respond: Any = respond, dropped: list[Any] = dropped) -> Any:
            fresh = all(not task["found"] for task in told.audits)
            dropped.append(told)
            return None if fresh and len(dropped) % 2 else respond(told)

        table.player(name).respond = unheard
    assert ("lab" not in table.play()) == spared and table.findings() == []


def test_without_auditors_who_answer_the_run_stops_and_can_go_on(tmp_path: Path) -> None:
    table = Audited(tmp_path, repeats=1)
    mute = {name: table.player(name).respond for name in AUDITORS}
    for name in AUDITORS:
        table.player(name).respond = lambda *given: None
    with pytest.raises(QuorumError, match="is silent, and no other one is left. That is undecided"):
        table.play()
    for name, respond in mute.items():
        table.player(name).respond = respond
    assert table.play() == {} and table.findings() == []


# Links


class Hides:
    """An agent that does not answer in some steps, or at the end."""

    def __init__(self, player: Any, steps: tuple[int, ...] = (), phases: tuple[str, ...] = ("train",)) -> None:
        self.player, self.steps, self.phases = player, steps, phases
        self.respond, player.respond = player.respond, self

    def __call__(self, told: Any, *honest: Any) -> Any:
        hidden = told.phase in self.phases and (told.phase != "train" or told.step in self.steps)
        return None if hidden else self.respond(told, *honest)


def test_a_link_that_was_withheld_follows_from_the_next_one(tmp_path: Path) -> None:
    table = Audited(tmp_path, lies={"lab": "sign-flip"}, audit=1.0)
    Hides(table.player("practice"), (1, 2))
    assert table.play() == {"lab": 0}
    memo = table.memos[0]
    assert (memo.kind, memo.round) == ("audit-0", 3)  # steps 0, 1 and 2 had to wait for the link of step 3
    assert table.findings() == []


def test_who_never_shows_its_link_fails_and_everybody_is_audited(tmp_path: Path) -> None:
    table = Audited(tmp_path, audit=1e-9)
    Hides(table.player("practice"), (3, 4), ("train", "confirm"))
    assert table.play() == {"practice": 2}
    assert table.findings() == []
    assert [(memo.kind, memo.inputs["withheld"]) for memo in table.memos] == [
        ("audit-2", ["practice"]),
        ("audit-3", []),
        ("audit-4", []),
    ]
    looked = [{one["agent"] for item in memo.inputs["heard"] for one in item["verdicts"]} for memo in table.memos]
    assert looked[0] == {"clinic", "hospital", "lab"}


@pytest.mark.parametrize("lag", [1, 3])
def test_a_partner_that_withholds_its_links_delays_a_verdict_by_the_agreed_steps(tmp_path: Path, lag: int) -> None:
    """The partner stays away for good; the liar's audit does not wait, and all coins of its step are heads."""
    how = {"payment": "contribution", "beta": "1", "options": {"deposit": {"lag": lag}}, "rounds": 8}
    table = Audited(tmp_path, lies={"lab": "sign-flip"}, audit=1e-9, **how)
    Hides(table.player("practice"), (1, 2, 3, 4, 5, 6, 7))
    assert table.play() == {"lab": 0} and table.findings() == []
    memo = table.memos[0]
    assert (memo.kind, memo.round, memo.inputs["late"]) == ("audit-0", lag, ["practice"])
    looked = {one["agent"] for item in memo.inputs["heard"] for one in item["verdicts"]}
    assert looked == set(NAMES)  # the partner's own update of that step too
    assert "practice" not in table.center.run.failed  # it came to the last exchange, and keeps its deposit
    assert table.book.balances("test")["escrow"] == 0


def test_a_center_that_waits_longer_for_links_than_agreed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedincentive.center import audits as own

    table, draw = Audited(tmp_path, lies={"lab": "sign-flip"}, rounds=8), own._draw

    def patient(run: Any, ended: bool) -> bool:
        waits = not ended and own.link_at(run, "practice", run.audits[0]["step"] + 1) is None
        return not waits and draw(run, ended)

    Hides(table.player("practice"), (1, 2, 3, 4, 5))
    with monkeypatch.context() as changed:
        changed.setattr(own, "_draw", patient)
        table.play()
    assert "audit" in table.findings()


def test_no_agent_signs_a_longer_delay_than_its_deposit_is_for(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    table.center.run.terms["lag"] = 5
    table.center._open_round()
    with pytest.raises(BroadcastRefused, match="delay verdicts by 5 steps, deposits are for 3"):
        table.players[0].respond(table.center.broadcast())


class Loses:
    """A message that is lost so many times on its way to the center."""

    def __init__(self, player: Any, phase: str, times: int) -> None:
        self.phase, self.left, self.said = phase, times, []
        self.respond, player.respond = player.respond, self

    def __call__(self, told: Any, *honest: Any) -> Any:
        report = self.respond(told, *honest)
        if told.phase != self.phase:
            return report
        self.said.append(report)
        self.left -= 1
        return None if self.left >= 0 else report


@pytest.mark.parametrize(("lost", "failed"), [(1, {}), (3, {}), (4, {"practice": 4})])
def test_a_lost_last_message_is_asked_for_again(tmp_path: Path, lost: int, failed: dict[str, int]) -> None:
    table = Audited(tmp_path, repeats=3, audit=1e-9)
    player = Loses(table.player("practice"), "confirm", lost)
    assert table.play() == failed and table.findings() == []
    said = [dataclasses.replace(report, cosignature=None) for report in player.said if report.round == 5]
    assert len(said) == min(lost, 3) + 1 and all(report == said[0] for report in said)


def test_a_failed_agent_that_falls_silent_delays_nobody(tmp_path: Path) -> None:
    table = Audited(tmp_path, lies={"lab": "sign-flip"})
    Hides(table.player("lab"), (2, 3, 4), ("train", "confirm"))
    assert table.play() == {"lab": 0}
    assert [memo.round for memo in table.memos] == [1, 2, 3, 4, 5] and table.findings() == []


def test_a_wrong_or_missing_link_is_refused(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    play_until(table.center, table.players, "train", 1)
    player = table.player("clinic")
    report = player.respond(table.center.broadcast())
    links = player.notary.links
    for wrong in (None, links[0], links[2], links[1].upper(), "0" * 64, "x"):
        with pytest.raises(ReportRefused, match="hash chain|not signed"):
            table.center.submit(dataclasses.replace(report, reveal=wrong))
    assert table.center.submit(report)


def test_an_agent_keeps_its_link_while_the_step_before_is_not_in_the_ledger(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    play_until(table.center, table.players, "train", 1)
    player = table.player("clinic")
    player.notary._state["reported"] = -1  # as if the entry had not been shown
    player.notary._read = lambda entry: None
    with pytest.raises(BroadcastRefused, match="does not show what was reported in the step before"):
        player.respond(table.center.broadcast())


def test_a_center_that_shows_another_link_than_it_anchored_is_refused(tmp_path: Path) -> None:
    from fedincentive import terms
    from fedincentive.identity import answers, broadcast, signed

    table = Audited(tmp_path)
    play_until(table.center, table.players, "train", 1)
    told = dataclasses.replace(table.center.broadcast(), reveal="0" * 64)
    said = broadcast(told, answers(told, terms.digest(table.center.run.terms)))
    told = dataclasses.replace(told, signature=signed(RING.private[CENTER], said))
    with pytest.raises(BroadcastRefused, match="center's own link"):
        table.player("clinic").respond(told)


# What a center can do to an auditor


@pytest.mark.parametrize("change", ["model", "said", "step", "order", "draw", "unsigned"])
def test_an_auditor_gives_no_verdict_on_what_the_agent_did_not_sign(tmp_path: Path, change: str) -> None:
    from fedincentive import terms
    from fedincentive.identity import answers, broadcast, signed

    table = Audited(tmp_path)
    play_until(table.center, table.players, "audit")
    told = table.center.broadcast()
    task = told.audits[0]
    tasks, settings = copy.deepcopy(list(told.audits)), json.loads(json.dumps(dict(told.settings)))
    if change == "model":
        told = dataclasses.replace(told, w={"w": told.w["w"] + 1e-9})
    elif change == "said":
        tasks[0]["said"]["delivered"] += 1
    elif change == "step":
        tasks[0]["round"] += 1
    elif change in ("order", "draw"):
        settings["links"][change]["clinic"] = "0" * 64
    told = dataclasses.replace(told, audits=tasks, settings=settings)
    said = broadcast(told, answers(told, terms.digest(table.center.run.terms)))
    told = dataclasses.replace(told, signature=None if change == "unsigned" else signed(RING.private[CENTER], said))
    with pytest.raises(BroadcastRefused):
        table.player(task["auditor"]).respond(told)


def test_verdicts_on_others_or_of_strangers_are_refused(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    play_until(table.center, table.players, "audit")
    told = table.center.broadcast()
    name = told.audits[0]["auditor"]
    report = table.player(name).respond(told)
    for changes in (
        {"verdicts": []},
        {"verdicts": [*report.verdicts, report.verdicts[0]]},
        {"verdicts": [{**one, "found": "pass "} for one in report.verdicts]},
        {"verdicts": [{**one, "step": 1} for one in report.verdicts]},
        {"verdicts": [{**one, "why": 3} for one in report.verdicts]},
        {"verdicts": "pass"},
        {"signature": None},
        {"agent": "nobody"},
    ):
        with pytest.raises(ReportRefused):
            table.center.submit(dataclasses.replace(report, **changes))
    assert not table.center.submit(dataclasses.replace(report, agent="clinic"))  # it is not asked
    assert table.center.submit(report)


def test_what_an_auditor_signs_must_be_a_verdict(tmp_path: Path) -> None:
    table = Audited(tmp_path)
    play_until(table.center, table.players, "audit")
    auditor = table.player(table.center.broadcast().audits[0]["auditor"])
    for wrong in (
        {"found": "perhaps"},
        {"why": "a" * 201},
        {"why": "\n"},
        {"opened": -1},
        {"opened": True},
        {"more": 1},
    ):
        auditor._last = None, None
        auditor._verdict = lambda said, wrong=wrong: {**Auditor._verdict(auditor, said), **wrong}
        with pytest.raises(ReportRefused, match="verdict|reason"):
            table.center.submit(auditor.respond(table.center.broadcast()))


# Crashes


@pytest.mark.parametrize("phase", ["train", "audit", "confirm"])
def test_a_run_killed_in_any_phase_goes_on_to_the_same_end(tmp_path: Path, phase: str) -> None:
    how = {"rounds": 5, "auditors": AUDITORS, "audit": 1.0 if phase == "audit" else 0.5, "seed": 3}
    table = Audited(tmp_path, lies={"lab": "sign-flip"}, **how)
    Hides(table.player("practice"), (2,))
    play_until(table.center, table.players, phase, 3)
    answer(table.center, [player for player in table.players if player.name in table.center.missing][:1])
    table.center.memory = None
    saved = {player.name: player.state() for player in table.players}
    table.center.release()
    center, players = set_table(
        GAME, "fedavg", keys=RING, book=table.book, folder=tmp_path / "state", oracles=BLIND, lies={"lab": "sign-flip"},
        receipts=False, resume=True, **how,
    )  # fmt: skip
    for player in players:
        player.restore(saved[player.name])
    table.center, table.players = center, players
    table.play()
    assert table.findings() == [] and set(table.center.run.failed) <= {"lab"}


def test_the_state_keeps_the_models_of_open_audits_only(tmp_path: Path) -> None:
    table = Audited(tmp_path, rounds=6)
    Hides(table.player("practice"), (1, 2, 3))
    seen: list[int] = []
    play(table.center, table.players, lambda result: seen.append(len(list((tmp_path / "state").glob("model-*")))))
    assert max(seen) == 5 and seen[-1] == 1  # steps 0 to 3 wait for a link, and the newest one; then nobody waits


def test_a_run_without_a_state_keeps_them_in_memory(tmp_path: Path) -> None:
    table = Audited(tmp_path, state=None, lies={"lab": "sign-flip"})
    Hides(table.player("practice"), (1, 2))
    assert table.play() == {"lab": 0} and table.findings() == []


# What is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"auditors": ["ann", "bea"]}, "at least 3 are needed"),
        ({"auditors": ["ann", "bea", "clinic"]}, "'clinic', who is a party"),
        ({"auditors": ["ann", "bea", "center"]}, "'center', who is a party"),
        ({"auditors": ["ann", "bea", "dora"]}, "no public key of auditor 'dora'"),
        ({"auditors": ["ann", "bea", "Clinic"]}, "looks like"),
        ({"settlement": "commitment", "mechanism": "2p-upbred", "beta": "1"}, "settlement is .commitment."),
    ],
)
def test_runs_that_cannot_be_audited_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Audited(tmp_path, **changes)


def test_an_audited_run_needs_keys_a_ledger_and_anchors(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"incentive\.keys is not"):
        Center(*_bare(tmp_path))
    table = Audited(tmp_path)
    settings, mechanism, enrolled, w = _bare(tmp_path)
    with pytest.raises(SettingError, match="there is no ledger"):
        Center(settings, mechanism, enrolled, w, keys=RING)
    with pytest.raises(SettingError, match="without the anchor"):
        Center(settings, mechanism, [dataclasses.replace(e, anchor=None) for e in enrolled], w, table.book, keys=RING)


def _bare(tmp_path: Path) -> tuple[Any, Any, Any, Any]:
    from fedincentive import Settings, mechanisms
    from fedincentive.messages import Enrol

    settings = Settings.read({"mechanism": "fedavg", "run": "bare", "auditors": AUDITORS})
    enrolled = [Enrol(name, 10.0, 10.0, anchor="0" * 64) for name in NAMES]
    return settings, mechanisms.get("fedavg", settings), enrolled, {"w": np.zeros(2)}


# Where audits meet the rest of a run


def test_agents_that_move_are_audited_by_the_s_that_was_broadcast(tmp_path: Path) -> None:
    game = repaired_example()  # its updates depend on everyone's s
    table = Audited(tmp_path, mechanism="upbred", game=game, keys=ring_of((*game.agents, *AUDITORS)), rounds=3)
    assert table.play() == {} and table.findings() == []


@pytest.mark.parametrize("more", [{"verdicts": [{"x": "y"}]}, {"declined": "no"}])
def test_a_report_with_words_that_nobody_asked_for_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    table = Audited(tmp_path)
    play_until(table.center, table.players, "train")
    agent, told = table.players[0], table.center.broadcast()
    honest = agent.respond(told)
    with pytest.raises(ReportRefused):
        table.center.submit(agent.notary.sign(dataclasses.replace(honest, **more), told))


def test_a_draw_without_enough_agents_ends_the_run_and_gives_deposits_back(tmp_path: Path) -> None:
    lies = {"clinic": "under-train", "hospital": "under-train", "lab": "under-train"}
    how = {"payment": "contribution", "beta": "1", "sampled": 2, "rounds": 12, "audit_seed": 3}
    table = Audited(tmp_path, lies=lies, **how)
    assert set(table.play()) <= set(lies)
    assert table.center.outcome.status in ("stopped", "complete") and table.findings() == []
    assert table.book.balances("test")["escrow"] == 0


def test_whoever_failed_does_not_count_for_the_quorum(tmp_path: Path) -> None:
    table = Audited(tmp_path, lies={"hospital": "under-train"}, quorum=1.0)
    liar = table.player("hospital")
    answers = liar.respond
    liar.respond = lambda told, honest=(): None if table.center.run.failed else answers(told, honest)
    assert set(table.play()) == {"hospital"} and table.center.outcome.status == "complete"


def test_a_round_whose_state_could_not_be_saved_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Audited(tmp_path, audit=0.01, audit_seed=1)
    play_until(table.center, table.players, "train")
    for _ in range(2):
        answer(table.center, table.players)
        table.center.close()
    answer(table.center, table.players)
    save, broken = state.save, []

    def once(*given: Any) -> None:
        if not broken:
            broken.append(True)
            raise OSError("no space")
        save(*given)

    monkeypatch.setattr(state, "save", once)
    with pytest.raises(OSError, match="no space"):
        table.center.close()
    table.center.close()
    assert table.play() == {} and table.findings() == []


@pytest.mark.parametrize("payment", ["truthful", "both"])
def test_a_payment_that_is_not_taken_back_is_refused(tmp_path: Path, payment: str) -> None:
    with pytest.raises(SettingError, match="'truthful' is made in a run with auditors"):
        Audited(tmp_path, mechanism="t-upbred", payment=payment)


def test_a_tranche_that_names_another_step_is_found(tmp_path: Path) -> None:
    table = Audited(tmp_path, payment="contribution", beta="1", lies={"hospital": "under-train"})
    table.play()
    tranche = next(e for e in table.entries if e.kind == "tranche")
    forged = dataclasses.replace(tranche, inputs={**tranche.inputs, "step": -1})
    with ledger.open(tmp_path / "forged.db") as book:
        for entry in table.entries:
            book.append(forged if entry == tranche else entry)
        found = [finding.message for finding in verify(book, recompute=True).findings]
        theirs = [str(finding) for finding in standalone.check(list(to_jsonl(book)))[0]]
    for told in (found, theirs):
        assert any("it says step -1, the next one is 0" in message for message in told)


# Terms that are proposed again


class Leaves(Strategy):
    """Declines when the terms are proposed for the so-manieth time."""

    def __init__(self, offer: int) -> None:
        self.offer = offer

    def declines(self, view: Any, offer: Any) -> str:
        return "no, thank you" if view.broadcast.round == self.offer else ""


def test_new_terms_draw_from_links_that_nobody_has_seen(tmp_path: Path) -> None:
    """Whoever writes the second terms knows the links that were shown with the first: they draw nothing any more."""
    table = Audited(tmp_path, strategies={"lab": Leaves(0), "clinic": Leaves(1)}, lies={"hospital": "sign-flip"})
    shown: dict[str, set[str]] = {"hospital": set(), "practice": set()}
    for offer in range(3):
        answer(table.center, table.players)
        for name, before in shown.items():
            link = table.center._reports[name].claim["reveal"]
            anchor = table.center.run.terms["agents"][name]["anchor"]
            assert link not in before and beacon.follows(anchor, link)
            assert not before or anchor in before  # it follows from the one before: it could not be chosen either
            before.add(link)
        table.center.close()
        assert (table.center.run.phase == "accept") == (offer < 2)
    assert table.play() == {"hospital": 0} and table.findings() == []
    assert table.center.run.agents == ("hospital", "practice")


def test_no_agent_signs_new_terms_with_the_anchors_of_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedincentive.center import center as module

    without = module.without
    monkeypatch.setattr(
        module, "without", lambda run, mechanism, declined, links: without(run, mechanism, declined, {})
    )
    table = Audited(tmp_path, strategies={"lab": Leaves(0)})
    answer(table.center, table.players)
    table.center.close()
    with pytest.raises(BroadcastRefused, match="The terms of run 'test' say"):
        table.player("practice").respond(table.center.broadcast())


def test_terms_cannot_be_proposed_more_often_than_there_are_links(tmp_path: Path) -> None:
    table = Audited(tmp_path, strategies={"lab": Leaves(beacon.OFFERS)})
    table.center.run.round = beacon.OFFERS
    anchors = {name: beacon.anchor(table.player(name).notary.links[beacon.OFFERS :]) for name in NAMES}
    agents = {name: {**table.center.run.terms["agents"][name], "anchor": anchors[name]} for name in NAMES}
    table.center.run.terms = {**table.center.run.terms, "agents": agents}
    table.center._open_round()
    answer(table.center, table.players)
    table.center.close()
    assert (table.center.run.phase, table.center.run.status) == ("done", "declined")
