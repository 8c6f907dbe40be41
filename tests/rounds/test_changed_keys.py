"""Keys that change within a run: by their owner, who signs with both, or by the recovery key; by nobody else."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from keyring import folder_of, ring_of
from table import BLIND, play, play_until, set_table

from fedincentive import engine, ledger
from fedincentive.center.rounds import keys_in_force
from fedincentive.cli import main
from fedincentive.entry import Entry, canonical
from fedincentive.errors import BroadcastRefused, ProvenanceError, ReportRefused, RunError
from fedincentive.game import random_data_value
from fedincentive.identity import CENTER
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.notes import find
from fedincentive.ledger.verify import verify
from fedincentive.messages import Report, RoundResult
from fedincentive.provenance import receipts, statements
from fedincentive.provenance.keys import KeyRing, PrivateKey, make, words
from fedincentive.settings import Settings

GAME = random_data_value(3, 3)
RUN = {"rounds": 4, "beta": "7", "gamma": 9.0, "quorum": 0.5}
WHO = "agent-1"


class Federation:
    """A signed run of three agents with all keys in one folder, which can be stopped and resumed."""

    def __init__(self, folder: Path, recovery: bool = True, phase: str = "train", **values: Any) -> None:
        self.folder, self.keys = folder, folder_of(folder / "keys", GAME.agents)
        if recovery:
            make("recovery", self.keys)
        self.book = ledger.open(folder / "l.db")
        self.values = {**RUN, **values}
        self.sit()
        play_until(self.center, self.agents, phase, 1 if phase == "train" else 0)

    def sit(self, keys: KeyRing | None = None, **values: Any) -> None:
        place = {"book": self.book, "folder": self.folder / "state", "oracles": BLIND}
        self.center, self.agents = set_table(
            GAME, "2p-upbred", keys=keys or KeyRing.read(self.keys), **place, **{**self.values, **values}
        )

    def resume(self, keys: KeyRing | None = None) -> None:
        self.center.release()
        self.sit(keys, resume=True)

    def revoke(self) -> None:
        recovery = PrivateKey.read("recovery", self.keys / "recovery.key")
        statements.revoke(WHO, self.keys, recovery, "stolen")

    def entries(self) -> list[Entry]:
        return [record.entry for record in self.book.entries()]

    def found(self) -> tuple[list[str], list[str]]:
        """What both verifiers find, with the keys in the folder."""
        ours = verify(self.book, recompute=True, keys=statements.known_keys(self.keys)).findings
        known = standalone.Signatures(0, standalone.read_keys(str(self.keys)))
        theirs = standalone.check(list(to_jsonl(self.book)), (), known)[0]
        return [str(one) for one in ours], [f"{name}: entry {seq}: {message}" for name, seq, message in theirs]


def test_a_rotated_key_counts_from_its_entry_on(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    old = KeyRing.read(run.keys).private[WHO]
    early = [agent.respond(run.center.broadcast()) for agent in run.agents][0]
    stopped = len(run.entries())
    new, _ = statements.rotate(WHO, run.keys)
    run.resume()
    entry = run.entries()[-1]
    assert (entry.kind, entry.rule) == ("key-1", "key/1")
    assert entry.inputs["statement"]["said"]["new"] == new.public.vkey
    assert run.center.submit(run.agents[0].respond(run.center.broadcast()))
    run.resume()  # nothing is changed twice
    assert [one.kind for one in run.entries()].count("key-1") == 1
    with pytest.raises(ReportRefused):
        run.center.submit(early)
    play(run.center, run.agents)
    assert run.found() == ([], [])
    notes = find((tmp_path / "state" / "notes.jsonl").read_text())
    seen = verify(run.book, recompute=True, notes=notes)
    assert seen.clean and all(WHO in dated.times for dated in seen.notes)  # by the old key, then by the new one
    assert any(note.cosigned_at(old.public) for note in notes) and any(note.cosigned_at(new.public) for note in notes)
    known = [key for keys in statements.known_keys(run.keys).values() for key in keys]
    for agent in GAME.agents:
        files = sorted((tmp_path / "state" / "receipts" / agent).glob("receipt-*.json"))
        found = [receipts.verify(file.read_text(), KeyRing.read(run.keys).public[CENTER], known) for file in files]
        assert all(set(times) == set(GAME.agents) for _, times in found)
        # What was cosigned when the center stopped got lost: those receipts are under the next checkpoint.
        assert stopped in {proven.seq for proven, _ in found}
        assert stopped not in {proven.head.size for proven, _ in found}


def test_a_report_by_the_old_key_is_refused_by_name(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    old = KeyRing.read(run.keys).private[WHO]
    statements.rotate(WHO, run.keys)
    run.resume()
    report = run.agents[0].respond(run.center.broadcast())
    notary = run.agents[0].notary
    notary.key = old
    with pytest.raises(ReportRefused, match=f"Agent '{WHO}' signs with its old key .* replaced by"):
        run.center.submit(notary.sign(report, run.center.broadcast()))
    assert run.center.submit(report)


def test_keys_may_change_twice_and_in_every_phase(tmp_path: Path) -> None:
    run = Federation(tmp_path, phase="contribute", gamma=0.5)
    statements.rotate(WHO, run.keys)
    run.resume()
    play_until(run.center, run.agents, "train", 1)
    statements.rotate(WHO, run.keys)
    statements.rotate(WHO, run.keys)
    statements.rotate("agent-2", run.keys)
    run.resume()
    play_until(run.center, run.agents, "confirm")
    statements.rotate(WHO, run.keys)
    run.resume()
    play(run.center, run.agents)
    changes = [(e.kind, e.inputs["statement"]["said"]["agent"]) for e in run.entries() if e.rule == "key/1"]
    assert changes == [("key-1", WHO), ("key-2", WHO), ("key-3", WHO), ("key-4", "agent-2"), ("key-5", WHO)]
    assert run.found() == ([], [])


def test_a_word_of_phase_1_stays_signed_by_the_key_of_its_round(tmp_path: Path) -> None:
    """An agent that is away after its key changed stands with what it said before."""
    run = Federation(tmp_path, phase="contribute", gamma=0.5)
    for report in [agent.respond(run.center.broadcast()) for agent in run.agents]:
        run.center.submit(report)
    run.center.close()
    statements.rotate(WHO, run.keys)
    run.resume()
    while run.center.run.phase == "contribute":
        for agent in run.agents[1:]:
            run.center.submit(agent.respond(run.center.broadcast()))
        run.center.close()
    said = next(entry for entry in run.entries() if entry.kind == "reports-contribute").inputs["said"]
    assert said[WHO]["round"] < next(entry for entry in run.entries() if entry.kind == "key-1").round
    assert run.found() == ([], [])


def test_a_revoked_key_counts_no_more(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    before = run.agents[0]
    run.revoke()
    keys = KeyRing.read(run.keys)
    keys.private[WHO] = PrivateKey(WHO)  # the site still tries
    run.resume(keys)
    told = run.center.broadcast()
    assert run.center.revoked == (WHO,)
    with pytest.raises(BroadcastRefused, match="was revoked in the ledger"):
        before.respond(told)
    with pytest.raises(ReportRefused, match=f"Agent '{WHO}' reports, but its key was revoked"):
        run.center.submit(Report(told.run, told.round, told.phase, WHO, signature="A" * 88))
    while not run.center.done:
        for agent in run.agents:
            if agent.name != WHO and agent.name in run.center.missing:
                run.center.submit(agent.respond(run.center.broadcast()))
        run.center.close()
    absent = [entry.inputs["absent"] for entry in run.entries() if entry.kind == "reports-train"]
    assert absent == [[], *[[WHO]] * 3]
    assert run.found() == ([], [])


def test_the_engine_plays_on_with_changed_keys(tmp_path: Path) -> None:
    """As `fedincentive keys` leaves them in the folder: one agent has a new key, another has none any more."""
    keys, state = folder_of(tmp_path / "keys", GAME.agents), tmp_path / "state"
    make("recovery", keys)
    values = {"mechanism": "2p-upbred", "keys": str(keys), **RUN}
    with ledger.open(tmp_path / "l.db") as book:
        center, agents = engine.table(GAME, Settings.read(values), ledger=book, state=state)

        def stop(result: RoundResult) -> None:
            if result.phase == "train":
                raise KeyboardInterrupt

        with center, pytest.raises(KeyboardInterrupt):
            engine.run(center, agents, progress=stop)
        tool = CliRunner()
        assert tool.invoke(main, ["keys", "rotate", "agent-2", "--dir", str(keys)]).exit_code == 0
        assert tool.invoke(main, ["keys", "revoke", WHO, "--by", "recovery", "--dir", str(keys)]).exit_code == 0
        engine.run(*engine.table(GAME, Settings.read({**values, "resume": True}), ledger=book, state=state))
        kinds = [record.entry.kind for record in book.entries()]
        assert kinds.count("key-1") == kinds.count("key-2") == 1 and kinds.count("reports-train") == 4
        assert verify(book, recompute=True, keys=statements.known_keys(keys)).clean
        known = standalone.Signatures(0, standalone.read_keys(str(keys)))
        assert standalone.check(list(to_jsonl(book)), (), known)[0] == []


@pytest.mark.parametrize(
    ("given", "match"),
    [({"phase": "accept"}, "terms are not agreed yet"), ({"recovery": False, "phase": "train"}, "began with the key")],
)
def test_what_cannot_change_is_refused_by_name(tmp_path: Path, given: dict[str, Any], match: str) -> None:
    run = Federation(tmp_path, **given)
    if "recovery" in given:  # nobody may revoke a key of this run
        make("recovery", run.keys)
        run.revoke()
        make(WHO, run.keys)
    else:
        statements.rotate(WHO, run.keys)
    with pytest.raises(RunError, match=match):
        run.resume()


def test_an_agent_that_still_has_its_old_key_is_told_so(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    before = run.agents[0]
    statements.rotate(WHO, run.keys)
    run.resume()
    with pytest.raises(BroadcastRefused, match="start it with its new key"):
        before.respond(run.center.broadcast())


def test_terms_with_a_recovery_key_that_a_site_does_not_know_are_not_signed(tmp_path: Path) -> None:
    run = Federation(tmp_path, phase="accept")
    run.agents[0].notary.recovery = None
    with pytest.raises(BroadcastRefused, match="may revoke keys.*no recovery.pub"):
        run.agents[0].respond(run.center.broadcast())


def signed_by(said: dict[str, str], **signers: PrivateKey) -> dict[str, Any]:
    return dict(json.loads(statements.make_statement(said, **signers)))


def forged(ring: KeyRing, way: str) -> dict[str, Any]:
    """A change of agent-1's key that a hostile center can make: it has its own keys and may make others."""
    mine, thief, known = ring.private[CENTER], PrivateKey(WHO), ring.public[WHO]
    rotation = {"agent": WHO, "change": "rotate", "new": thief.public.vkey, "old": known.vkey}
    revocation = {"agent": WHO, "by": mine.public.vkey, "change": "revoke", "key": known.vkey}
    if way == "without the old key":
        return signed_by(rotation, old=thief, new=thief)
    if way == "from a key of its own":
        other = PrivateKey(WHO)
        return signed_by({**rotation, "old": other.public.vkey}, old=other, new=thief)
    if way == "only the new key signs":
        held = signed_by(rotation, old=thief, new=thief)
        return {**held, "signatures": {"new": held["signatures"]["new"]}}
    if way == "of another agent's statement":
        friend = ring.private["agent-2"]
        new = PrivateKey("agent-2")
        held = signed_by(
            {"agent": "agent-2", "change": "rotate", "new": new.public.vkey, "old": friend.public.vkey},
            old=friend, new=new,
        )  # fmt: skip
        return {**held, "said": {**held["said"], "agent": WHO}}
    if way == "revoked by the center":
        return signed_by(revocation, by=mine)
    if way == "revoked in another's name":
        return signed_by({**revocation, "by": ring.public["recovery"].vkey}, by=mine)
    if way == "of another key":
        recovery = ring.private["recovery"]
        said = {**revocation, "by": recovery.public.vkey, "key": thief.public.vkey}
        return signed_by(said, by=recovery)
    key = ring.private[WHO]  # back to a key that it had
    return signed_by({**rotation, "new": key.public.vkey, "old": known.vkey}, old=key, new=key)


WAYS = ["without the old key", "from a key of its own", "only the new key signs", "of another agent's statement",
        "revoked by the center", "revoked in another's name", "of another key", "one key twice"]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_the_center_changes_is_found_by_both(tmp_path: Path, way: str) -> None:
    run = Federation(tmp_path)
    statement = forged(KeyRing.read(run.keys), way)
    with pytest.raises(ProvenanceError):
        keys_in_force(run.center.run).change(statement, run.center.run.round)
    inputs = {"terms": standalone.digest("terms", canonical(run.center.run.terms))}
    run.book.append(Entry("test", run.center.run.round, "key-1", "key/1", {**inputs, "statement": statement}, {}))
    for found in run.found():
        assert any(line.startswith("signature: entry") for line in found), (way, found)


def test_what_a_stolen_old_key_signs_later_is_found(tmp_path: Path) -> None:
    """The center and the thief of a replaced key write the thief's words into the ledger."""
    run = Federation(tmp_path)
    old = KeyRing.read(run.keys).private[WHO]
    statements.rotate(WHO, run.keys)
    run.resume()
    play(run.center, run.agents)

    def stolen(inputs: dict[str, Any], number: int, phase: str) -> None:
        said = {key: value for key, value in inputs["said"][WHO].items() if key != "signature"}
        place = {"run": "test", "round": number, "phase": phase, "agent": WHO}
        shared = {key: inputs[key] for key in ("terms", "model", "seen") if key in inputs}
        words_said = words("report", {**shared, **place, **said})
        inputs["said"][WHO]["signature"] = base64.b64encode(old.sign(words_said)).decode()

    changed = next(entry.round for entry in run.entries() if entry.kind == "key-1")
    found = rewritten(run, tmp_path / "forged.db", lambda e: e.kind == "reports-train" and e.round > changed, stolen)
    assert found[0] == found[1] == ["signature"] * len(found[0]) and found[0]


def rewritten(
    run: Federation, path: Path, which: Callable[[Entry], bool], change: Callable[..., None]
) -> tuple[list[str], list[str]]:
    """The names of what both find in a copy of the ledger in which some entries were changed."""
    with ledger.open(path) as book:
        for entry in run.entries():
            inputs = json.loads(canonical(entry.inputs))
            if which(entry):
                change(inputs, entry.round, entry.kind.removeprefix("reports-"))
            book.append(Entry(entry.run, entry.round, entry.kind, entry.rule, inputs, entry.postings, entry.claims))
        ours = [found.name for found in verify(book, recompute=True).findings]
        return ours, [name for name, _, _ in standalone.check(list(to_jsonl(book)))[0]]


def test_a_statement_that_is_none_is_named_and_not_believed(tmp_path: Path) -> None:
    run = Federation(tmp_path)
    (run.keys / f"{WHO}.rotated-00000000.json").write_text("[]")
    run.resume()  # it changes nothing
    assert all(entry.rule != "key/1" for entry in run.entries())
    with pytest.raises(ProvenanceError, match=f"{WHO}.rotated-00000000.json"):
        statements.known_keys(run.keys)
    with pytest.raises(ValueError, match=f"{WHO}.rotated-00000000.json"):
        standalone.read_keys(str(run.keys))


def test_a_run_without_keys_has_no_key_entries(tmp_path: Path) -> None:
    with ledger.open(tmp_path / "l.db") as book:
        play(*set_table(GAME, "2p-upbred", book=book, **RUN))
        ring = ring_of([WHO])
        new = PrivateKey(WHO)
        said = {"agent": WHO, "change": "rotate", "new": new.public.vkey, "old": ring.public[WHO].vkey}
        inputs = {"terms": "ab" * 32, "statement": signed_by(said, old=ring.private[WHO], new=new)}
        book.append(Entry("test", 99, "key-1", "key/1", inputs, {}))
        assert [found.name for found in verify(book, recompute=True).findings] == ["signature"]
        assert [name for name, _, _ in standalone.check(list(to_jsonl(book)))[0]] == ["signature"]
