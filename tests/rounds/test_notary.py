"""Agents with keys against a hostile center: what it forges, replays, forks or tells in two ways is refused."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from commands import command
from keyring import ring_of
from table import BLIND, agents_of, answer, play, play_until, set_table

from fedincentive import ledger, terms
from fedincentive.center import rounds
from fedincentive.center.log import Log
from fedincentive.errors import BroadcastRefused, LogForked, ReportRefused, RunError
from fedincentive.game import random_data_value, repaired_example
from fedincentive.identity import CENTER, answers, broadcast, signed
from fedincentive.ledger import Entry, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.messages import Broadcast
from fedincentive.provenance import receipts
from fedincentive.provenance.notes import Note
from fedincentive.provenance.witness import convicts

GAME = repaired_example()


class Table:
    """A signed run with its ledger, stopped where a test wants it."""

    def __init__(self, folder: Path, phase: str = "train", trained: int = 1, game: Any = GAME, **values: Any) -> None:
        self.ring, self.folder = ring_of(game.agents), folder
        self.book = ledger.open(folder / "l.db")
        values = {"mechanism": "2p-upbred", "rounds": 3, "beta": "0.5", "gamma": 5.0, **values}
        self.center, self.agents = set_table(
            game,
            values.pop("mechanism"),
            keys=self.ring,
            book=self.book,
            folder=folder / "state",
            oracles=BLIND,
            **values,
        )
        play_until(self.center, self.agents, phase, trained)

    def again(self, told: Broadcast) -> Broadcast:
        """A broadcast signed by the real center's key, whatever it says: what a hostile center can do."""
        key = self.ring.private[CENTER]
        said = broadcast(told, answers(told, terms.digest(self.center.run.terms)))
        return dataclasses.replace(told, signature=signed(key, said))

    def files(self, agent: str, kind: str) -> list[Path]:
        return sorted((self.folder / "state" / "receipts" / agent).glob(f"{kind}-*.json"))


def test_an_honest_run_is_never_refused_and_ends_in_cosigned_receipts(tmp_path: Path) -> None:
    table = Table(tmp_path, "accept", 0, random_data_value(3, 4), gamma=9.0, beta="7")
    outcome = play(table.center, table.agents)
    found = verify(table.book, recompute=True)
    assert outcome.basis == "signed" and found.clean and not found.unbound
    assert "is what each of them signed" in str(table.center.conclude().certificate)
    log_key = table.ring.public[CENTER]
    for agent in table.agents:
        assert not table.files(agent.name, "fork") and not table.files(agent.name, "dispute")
        total = 0
        for path in table.files(agent.name, "receipt"):
            proven, times = receipts.verify(path.read_text(), log_key, table.ring.public.values())
            assert set(times) == {other.name for other in table.agents}
            total += proven.entry.postings.get(agent.name, 0)
        assert total == outcome.payments[agent.name]


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "done"},
        {"round": 10**9},
        {"round": 3},
        {"step": 7},
        {"s": {"agent-1": 0.0, "agent-2": 5.0}},
        {"settings": {}},
        {"run": "other"},
        {"log": None},
        {"signature": None},
        {"signature": "A" * 88},
        {"signature": "\ud800"},
    ],
)
def test_what_its_center_did_not_sign_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    table = Table(tmp_path)
    told = table.center.broadcast()
    with pytest.raises(BroadcastRefused):
        table.agents[0].respond(dataclasses.replace(told, **changes))
    assert table.center.submit(table.agents[0].respond(told))  # and the real one is answered as ever


def test_another_model_than_the_signed_one_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    told = table.center.broadcast()
    with pytest.raises(BroadcastRefused, match="not signed by the center"):
        table.agents[0].respond(dataclasses.replace(told, w={"w": told.w["w"] + 1e-12}))


def test_broadcasts_count_in_order_and_twice_is_the_same(tmp_path: Path) -> None:
    table = Table(tmp_path)
    old = table.center.broadcast()
    first = table.agents[0].respond(old)
    assert table.agents[0].respond(old).signature == first.signature
    answer(table.center, table.agents)
    table.center.close()
    table.agents[0].respond(table.center.broadcast())
    with pytest.raises(BroadcastRefused, match="after a later one"):
        table.agents[0].respond(old)


def test_a_broadcast_of_another_run_with_the_same_keys_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    (tmp_path / "other").mkdir()
    other = Table(tmp_path / "other")
    other.ring = table.ring
    with pytest.raises(BroadcastRefused):
        table.agents[0].respond(other.center.broadcast())


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t["agents"]["agent-1"].update(s_max=1),
        lambda t: t["agents"]["agent-1"].update(key=t["agents"]["agent-2"]["key"]),
        lambda t: t["agents"].pop("agent-1"),
        lambda t: t.update(center=t["agents"]["agent-2"]["key"]),
        lambda t: t.update(run="other"),
        lambda t: t.pop("scale"),
        lambda t: t.update(agents=7),
    ],
)
def test_terms_that_are_not_what_it_enrolled_with_are_not_signed(tmp_path: Path, change: Any) -> None:
    table = Table(tmp_path, "accept", 0)
    told = table.center.broadcast()
    given = json.loads(json.dumps(told.settings["terms"]))
    change(given)
    forged = dataclasses.replace(told, settings={**told.settings, "terms": given})
    said = broadcast(forged, answers(forged, terms.digest(given)))
    forged = dataclasses.replace(forged, signature=signed(table.ring.private[CENTER], said))
    with pytest.raises(BroadcastRefused, match="terms"):
        table.agents[0].respond(forged)


def rewritten(table: Table, folder: Path, seed: int) -> ledger.Ledger:
    """The center's own ledger, made anew with one amount changed: every hash after it fits."""
    book = ledger.open(folder / f"fork-{seed}.db")
    rng = random.Random(seed)
    entries = [record.entry for record in table.book.entries()]
    victim = rng.choice([k for k, entry in enumerate(entries) if k])
    for k, entry in enumerate(entries):
        if k == victim:
            entry = Entry(
                entry.run, entry.round, entry.kind, entry.rule, {**entry.inputs, "fork": seed}, entry.postings
            )
        book.append(entry)
    return book


@pytest.mark.parametrize("seed", range(12))
def test_a_rewritten_history_is_a_fork_and_the_evidence_is_kept(tmp_path: Path, seed: int) -> None:
    table = Table(tmp_path)
    answer(table.center, table.agents)
    table.center.close()
    with rewritten(table, tmp_path, seed) as book:
        log = Log(book, "test", table.ring.private[CENTER])
        witnessed = table.center.run.witnessed.values()
        told = table.again(dataclasses.replace(table.center.broadcast(), log=log.told(witnessed, "")))
        try:
            table.agents[0].respond(told)
        except LogForked:
            evidence = json.loads(table.files("agent-1", "fork")[0].read_text())
            assert evidence["seen"] != evidence["shown"] and evidence["key"] == table.ring.public[CENTER].vkey
            with pytest.raises(LogForked, match="says nothing more"):
                table.agents[0].respond(table.center.broadcast())
        else:
            # What was changed came after all that this agent had seen: the others are told the true story, and one
            # size with two signed roots convicts.
            table.agents[1].respond(table.center.broadcast())
            two = {"seen": told.log["note"], "shown": table.center.broadcast().log["note"]}
            assert convicts(two, table.ring.public[CENTER])


def test_an_agent_that_is_called_absent_keeps_what_it_said(tmp_path: Path) -> None:
    table = Table(tmp_path)
    told = table.center.broadcast()
    table.center.submit(table.agents[1].respond(told))
    table.agents[0].respond(told)  # it answers, and the center says it did not
    table.center.close()
    table.agents[0].respond(table.center.broadcast())
    kept = json.loads(table.files("agent-1", "dispute")[0].read_text())
    assert kept["claim"]["agent"] == "agent-1" and "agent-1" in json.loads(kept["entry"])["inputs"]["absent"]


@pytest.mark.parametrize("changed", [{"delivered": 1}, {"owes": 7}, {"valuation": None}])
def test_an_agent_whose_signature_stands_under_other_words_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """The signature is the agent's own; what the ledger puts over it is not."""
    honest = rounds._said

    def forged(answer: Any) -> dict[str, Any]:
        said = honest(answer)
        if answer.claim["agent"] == "agent-1":
            said = {key: value for key, value in {**said, **changed}.items() if value is not None}
        return said

    table = Table(tmp_path)
    monkeypatch.setattr(rounds, "_said", forged)
    answer(table.center, table.agents)
    table.center.close()
    for agent in table.agents:
        agent.respond(table.center.broadcast())
    (file,) = table.files("agent-1", "dispute")
    assert not table.files("agent-2", "dispute")
    kept = json.loads(file.read_text())
    assert json.loads(kept["entry"])["inputs"]["said"]["agent-1"]["signature"] == kept["signature"]
    done = command("ledger", "dispute", tmp_path / "l.db", file, "--agent", "agent-1")
    assert done.exit_code == 0 and "has other words in its name" in done.output, done.output
    with ledger.read(tmp_path / "l.db") as book:
        findings = verify(book, recompute=True).findings
        others, _ = standalone.check(list(to_jsonl(book)), (), standalone.Signatures())
    (seq,) = {record.seq for record in table.book.chained() if record.entry.body == kept["entry"]}
    assert {f.seq for f in findings if f.name == "signature"} == {o[1] for o in others if o[0] == "signature"} == {seq}


def test_a_resumed_run_goes_on_with_the_same_terms_and_the_same_log(tmp_path: Path) -> None:
    table = Table(tmp_path)
    before = table.center.broadcast()
    state = {agent.name: json.loads(json.dumps(agent.state())) for agent in table.agents}
    table.center.release()
    center, _ = set_table(
        GAME, "2p-upbred", keys=table.ring, book=table.book, folder=tmp_path / "state", oracles=BLIND,
        rounds=3, beta="0.5", gamma=5.0, resume=True,
    )  # fmt: skip
    again = center.broadcast()
    assert again.signature == before.signature and again.log == before.log
    agents = agents_of(GAME, keys=table.ring, receipts=tmp_path / "state" / "receipts")
    for agent in agents:
        agent.restore(state[agent.name])
    assert play(center, agents).basis == "signed"
    assert verify(table.book, recompute=True).clean


@pytest.mark.parametrize(
    "kind", ["delivered", "s", "signature", "absent", "nonce", "terms", "accepted", "beside", "beside its yes"]
)
def test_the_ledger_shows_that_a_center_forged_what_was_said(tmp_path: Path, kind: str) -> None:
    """The center writes a ledger whose amounts follow from what it says was said: verify asks for the signatures."""
    table = Table(tmp_path, "accept", 0)
    play(table.center, table.agents)
    entries = [record.entry for record in table.book.entries()]
    with ledger.open(tmp_path / "forged.db") as book:
        for entry in entries:
            inputs = json.loads(json.dumps(entry.inputs))
            if kind == "accepted" and entry.kind == "terms":
                del inputs["accepted"]["agent-1"]
            if entry.kind == ("terms" if kind == "beside its yes" else "reports-train") and kind.startswith("beside"):
                said = inputs["accepted" if entry.kind == "terms" else "said"]["agent-1"]
                said["owes"] = 7  # the signature stays as it was, and does not cover it
            if kind == "terms" and entry.kind == "terms":
                inputs["terms"]["currency"] = "roubles"
            if entry.kind == "reports-train" and kind in ("delivered", "nonce", "signature"):
                said = inputs["said"]["agent-1"]
                changed = {"delivered": 1, "nonce": "0" * 32, "signature": base64.b64encode(bytes(64)).decode()}
                said[kind] = changed[kind]
            if entry.kind == "reports-train" and kind == "absent":
                del inputs["said"]["agent-1"]
                inputs["absent"] = ["agent-1"]
            if entry.kind == "commitment" and kind == "s":
                inputs["s"]["agent-1"] -= 1
            book.append(Entry(entry.run, entry.round, entry.kind, entry.rule, inputs, entry.postings, entry.claims))
        names = {finding.name for finding in verify(book, recompute=True).findings}
        others = {finding[0] for finding in standalone.check(list(to_jsonl(book)), (), standalone.Signatures())[0]}
    assert names & {"signature", "claims"} and others & {"signature", "claims"}


def test_cosignatures_are_kept_with_who_and_when(tmp_path: Path) -> None:
    table = Table(tmp_path)
    note = Note.parse(table.center.run.cosigned)
    times = {name: note.cosigned_at(key) for name, key in table.ring.public.items()}
    assert {name for name, time in times.items() if time is not None} == {"agent-1", "agent-2"}


def test_private_keys_are_nowhere_in_what_a_run_leaves_behind(tmp_path: Path) -> None:
    table = Table(tmp_path, "accept", 0)
    play(table.center, table.agents)
    secrets = [key._key.private_bytes_raw() for key in table.ring.private.values()]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            for secret in secrets:
                assert secret not in data and secret.hex().encode() not in data and base64.b64encode(secret) not in data


# An honest center is never accused


def test_an_agent_that_read_more_than_it_reported_follows_on(tmp_path: Path) -> None:
    """It answers late, is away in the next round, and is back in the one after it."""
    table = Table(tmp_path, rounds=8)
    for reads in (True, False, False, True):
        told = table.center.broadcast()
        table.center.submit(table.agents[1].respond(told))
        if reads:
            table.agents[0].respond(told)  # too late
        table.center.close()
    assert table.center.submit(table.agents[0].respond(table.center.broadcast()))
    assert not table.files("agent-1", "fork") and not table.files("agent-1", "unproven")


def test_other_runs_may_write_to_the_ledger_while_this_one_is_down(tmp_path: Path) -> None:
    table = Table(tmp_path)
    told = table.center.broadcast()
    for agent in table.agents:
        agent.respond(told)
    state = {agent.name: json.loads(json.dumps(agent.state())) for agent in table.agents}
    table.center.release()
    other, agents = set_table(GAME, "2p-upbred", keys=table.ring, book=table.book, run="other", rounds=2, beta="0.5")
    play(other, agents)
    center, _ = set_table(
        GAME, "2p-upbred", keys=table.ring, book=table.book, folder=tmp_path / "state", oracles=BLIND,
        rounds=3, beta="0.5", gamma=5.0, resume=True,
    )  # fmt: skip
    assert center.broadcast().signature == told.signature
    agents = agents_of(GAME, keys=table.ring)
    for agent in agents:
        agent.restore(state[agent.name])
    assert play(center, agents).basis == "signed" and verify(table.book, recompute=True).clean


def test_a_checkpoint_without_a_proof_is_refused_but_not_for_ever(tmp_path: Path) -> None:
    table = Table(tmp_path)
    answer(table.center, table.agents)
    table.center.close()
    told = table.center.broadcast()
    silent = table.again(dataclasses.replace(told, log={**told.log, "proofs": {}}))
    with pytest.raises(BroadcastRefused, match="no proof"):
        table.agents[0].respond(silent)
    assert table.files("agent-1", "unproven") and table.center.submit(table.agents[0].respond(told))


# And a hostile one gets nothing past them


def test_a_ledger_that_is_not_shown_any_more_is_noticed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.agents[0].respond(table.center.broadcast())
    with pytest.raises(BroadcastRefused, match="does not show the ledger any more"):
        table.agents[0].respond(table.again(dataclasses.replace(table.center.broadcast(), log=None)))


def test_a_price_that_was_not_agreed_is_not_played(tmp_path: Path) -> None:
    table = Table(tmp_path)
    told = table.center.broadcast()
    dear = {**told.settings, "payments": {"contribution": {**told.settings["payments"]["contribution"], "beta": "9"}}}
    with pytest.raises(BroadcastRefused, match="other settings than were agreed"):
        table.agents[0].respond(table.again(dataclasses.replace(told, settings=dear)))


def test_terms_unlike_the_sites_own_settings_are_not_signed(tmp_path: Path) -> None:
    table = Table(tmp_path, "accept", 0)
    told = table.center.broadcast()
    settings = {key: value for key, value in told.settings.items() if key != "terms"}
    notary = table.agents[0].notary
    notary.expected = {**settings, "rounds": 30}
    with pytest.raises(BroadcastRefused, match="have rounds = 3, the settings of agent 'agent-1' say 30"):
        table.agents[0].respond(told)
    notary.expected = settings
    assert table.agents[0].respond(told) is not None


def chosen(table: Table, book: Any, change: Any) -> None:
    """The center's ledger with other words of agent-1's in phase 1, and the commitments that follow from them."""
    s = table.center.run.s0["agent-1"]
    for record in table.book.entries():
        entry = record.entry
        inputs = json.loads(json.dumps(entry.inputs))
        if entry.kind == "reports-contribute":
            s = change(inputs)
        if entry.kind == "commitment":
            inputs["s"]["agent-1"] = s
        book.append(Entry(entry.run, entry.round, entry.kind, entry.rule, inputs, entry.postings, entry.claims))


@pytest.mark.parametrize("way", ["an earlier word", "no word"])
def test_a_center_cannot_choose_which_word_of_phase_1_counts(tmp_path: Path, way: str) -> None:
    table = Table(tmp_path, "contribute", 0, gamma=0.5)
    early = table.agents[0].respond(table.center.broadcast())
    answer(table.center, table.agents)
    claim = {**table.center.claimed(early), "seen": table.center._answers.shared["seen"]}
    play_until(table.center, table.agents, "train")

    def change(inputs: Any) -> int:
        if way == "no word":
            del inputs["said"]["agent-1"]
            return table.center.run.s0["agent-1"]
        kept = {key: claim[key] for key in ("s", "nonce", "seen")}
        inputs["said"]["agent-1"] = {**kept, "round": 0, "signature": early.signature}
        return claim["s"]

    with ledger.open(tmp_path / "forged.db") as book:
        chosen(table, book, change)
        findings = verify(book, recompute=True).findings
        alone = standalone.check(list(to_jsonl(book)))[0]
    assert any(f.name == "claims" and "agent-1" in f.message for f in findings)
    assert "claims" in {name for name, _, _ in alone}


def test_a_sampled_agent_cannot_be_passed_over(tmp_path: Path) -> None:
    table = Table(tmp_path, "accept", 0, random_data_value(3, 4), gamma=9.0, beta="7", sampled=2)
    play(table.center, table.agents)
    assert verify(table.book, recompute=True).clean
    with ledger.open(tmp_path / "forged.db") as book:
        for record in table.book.entries():
            entry, inputs = record.entry, json.loads(json.dumps(record.entry.inputs))
            if entry.kind == "reports-train":
                asked = list(inputs["said"])
                other = next(agent.name for agent in table.agents if agent.name not in asked)
                inputs["said"][other] = inputs["said"].pop(asked[0])
            book.append(Entry(entry.run, entry.round, entry.kind, entry.rule, inputs, entry.postings, entry.claims))
        found = verify(book, recompute=True).findings
    assert any("was asked and is not accounted for" in finding.message for finding in found)


@pytest.mark.parametrize("reveal", ["none", "another", "an earlier one", "of the next step"])
def test_an_agent_refuses_to_be_asked_by_a_link_that_was_not_anchored(tmp_path: Path, reveal: str) -> None:
    table = Table(tmp_path, "train", 2, random_data_value(3, 4), gamma=9.0, beta="7", sampled=2)
    center, links = table.center, table.center._links
    said = {"none": None, "another": "0" * 64, "an earlier one": links[1], "of the next step": links[3]}[reveal]
    agent = next(agent for agent in table.agents if agent.name in center.asked)
    told = table.again(dataclasses.replace(center.broadcast(), reveal=said))
    with pytest.raises(BroadcastRefused, match="does not follow from the one before"):
        agent.respond(told)
    assert agent.respond(center.broadcast()) is not None


def test_an_agent_that_was_not_drawn_does_not_answer(tmp_path: Path) -> None:
    table = Table(tmp_path, "train", 1, random_data_value(3, 4), gamma=9.0, beta="7", sampled=2)
    other = next(agent for agent in table.agents if agent.name not in table.center.asked)
    with pytest.raises(BroadcastRefused, match="who was not drawn"):
        other.respond(table.center.broadcast())


# Hostile agents


@pytest.mark.parametrize("nonce", ["\n", "\0", "\ud800", "\u202e", "0" * 3_000_000, "G" * 32, ""])
def test_a_nonce_that_no_ledger_holds_is_refused(tmp_path: Path, nonce: str) -> None:
    table = Table(tmp_path)
    report = table.agents[0].respond(table.center.broadcast())
    with pytest.raises(ReportRefused, match="nonce"):
        table.center.submit(dataclasses.replace(report, nonce=nonce))
    assert table.center.submit(report)


def test_what_a_round_does_not_ask_for_is_not_signed_into_it(tmp_path: Path) -> None:
    table = Table(tmp_path, "contribute", 0, gamma=0.5)
    told = table.center.broadcast()
    report = table.agents[0].respond(told)
    more = table.agents[0].notary.sign(dataclasses.replace(report, valuation=0.125), told)
    with pytest.raises(ReportRefused, match="signs a valuation in a contribute round"):
        table.center.submit(more)


@pytest.mark.parametrize("link", ["\x00", "ab" * 32])
def test_a_link_that_nobody_asked_for_is_refused(tmp_path: Path, link: str) -> None:
    """Signed or not, no ledger could hold the first one: the round could not be closed any more."""
    table = Table(tmp_path)
    told = table.center.broadcast()
    notary, report = table.agents[0].notary, table.agents[0].respond(told)
    notary._reveal = lambda _: link
    with pytest.raises(ReportRefused, match="'agent-1' shows a link of a hash chain"):
        table.center.submit(notary.sign(report, told))


def test_a_run_is_resumed_with_the_keys_it_began_with(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.center.release()
    place = {"book": table.book, "folder": tmp_path / "state", "oracles": BLIND}
    same = {"rounds": 3, "beta": "0.5", "gamma": 5.0, "resume": True}
    for keys in (ring_of(GAME.agents), None):
        with pytest.raises(RunError, match="resume it with the keys it began with"):
            set_table(GAME, "2p-upbred", keys=keys, **place, **same)
    set_table(GAME, "2p-upbred", keys=table.ring, **place, **same)
