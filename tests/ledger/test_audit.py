"""The auditor's kit on real signed runs: keys and checkpoints, corrections, disputes, statements, periods and payouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import command
from keyring import folder_of
from table import BLIND, play, set_table

from fedincentive import ledger
from fedincentive.game import random_data_value
from fedincentive.ledger import Entry
from fedincentive.provenance.keys import KeyRing, make
from fedincentive.provenance.statements import rotate

GAME = random_data_value(3, 4)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run of four agents with its ledger, its state and everybody's keys."""
    folder = tmp_path_factory.mktemp("signed")
    keys = folder_of(folder / "keys", [*GAME.agents, "auditor", "treasurer"])
    with ledger.open(folder / "l.db") as book:
        center, agents = set_table(
            GAME, "2p-upbred", keys=KeyRing.read(keys), book=book, folder=folder / "state", oracles=BLIND,
            run="trial", rounds=3, beta="7", gamma=9.0, currency="EUR",
        )  # fmt: skip
        play(center, agents)
        center.release()
    return folder


@pytest.fixture
def kit(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A copy of it to work in; `call` types a command there."""
    folder = tmp_path / "work"
    shutil.copytree(template, folder)
    monkeypatch.chdir(folder)

    def call(*arguments: object, code: int = 0) -> str:
        done = command("ledger", *arguments)
        assert done.exit_code == code, done.output
        return done.output

    return SimpleNamespace(folder=folder, call=call, db=folder / "l.db", agents=GAME.agents)


def rewritten(path: Path, change) -> None:
    """The center's own ledger made anew: every hash fits."""
    with ledger.read(path) as old:
        entries = [record.entry for record in old.entries()]
    for part in ("", "-wal", "-shm"):
        Path(f"{path}{part}").unlink(missing_ok=True)
    with ledger.open(path) as book:
        for e in entries:
            inputs = json.loads(json.dumps(e.inputs))
            change(e, inputs)
            book.append(Entry(e.run, e.round, e.kind, e.rule, inputs, e.postings, e.claims))


# Keys and notes


def test_a_signed_run_is_held_to_its_keys_and_its_cosigned_checkpoints(kit):
    said = kit.call("verify", "l.db", "--recompute", "--note", "state/notes.jsonl", "--keys", "keys")
    with ledger.read("l.db") as book:
        count = book.head().count
    assert f"note: {count} entries, signed by the center, cosigned by agent-1, agent-2, agent-3, agent-4; 20" in said
    assert "clean: " in said
    for file in ("state/manifest.json", next((kit.folder / "state/receipts/agent-1").glob("receipt-*.json"))):
        assert "cosigned by agent-1" in kit.call("verify", "l.db", "--note", file)
    noted = json.loads(kit.call("verify", "l.db", "--note", "state/notes.jsonl", "--json"))["notes"]
    assert set(noted[-1]["cosigned"]) == set(kit.agents) and noted[-1]["size"] == count


def test_other_keys_than_those_exchanged_are_findings(kit):
    make("agent-1", "others")
    for name in ("agent-2", "agent-3", "agent-4", "center"):
        shutil.copy(f"keys/{name}.pub", "others")
    said = kit.call("verify", "l.db", "--keys", "others", code=1)
    assert said.startswith("keys: entry 1: the key of 'agent-1' is agent-1+") and "exchanged was agent-1+" in said
    Path("others/center.pub").unlink()
    assert "the key of 'center' is" in kit.call("verify", "l.db", "--keys", "others", code=1)
    assert "cannot be read" in kit.call("verify", "l.db", "--keys", "nowhere", code=2)


def test_a_rotated_key_still_stands_for_what_it_signed(kit):
    rotate("agent-1", "keys")
    rotate("agent-1", "keys")
    assert "clean" in kit.call("verify", "l.db", "--keys", "keys")
    statement = sorted(Path("keys").glob("agent-1.rotated-*.json"))[0]
    statement.write_text(statement.read_text().replace('"old":"agent-1', '"old":"agent-2'))
    assert "does not prove that a key was rotated" in kit.call("verify", "l.db", "--keys", "keys", code=2)
    statement.unlink()
    assert "the key of 'agent-1'" in kit.call("verify", "l.db", "--keys", "keys", code=1)


def test_an_unsigned_run_is_said_to_be_one(kit):
    with ledger.open("u.db") as book:
        play(*set_table(GAME, "2p-upbred", book=book, run="plain", rounds=2, beta="7", gamma=9.0))
    assert "clean" in kit.call("verify", "u.db")
    said = kit.call("verify", "u.db", "--keys", "keys", code=1)
    assert said.startswith("keys: run 'plain' has no keys in its terms")


def test_a_rewritten_ledger_is_not_the_one_that_was_cosigned(kit):
    def change(entry, inputs):
        if entry.kind == "reports-train" and entry.round == 2:
            inputs["note"] = "changed"

    before = (kit.folder / "state/notes.jsonl").read_text()
    rewritten(kit.db, change)
    said = kit.call("verify", "l.db", "--note", "state/notes.jsonl", code=1)
    assert "its root is not that of these entries: the chain was made anew" in said
    Path("cut").write_text(before[: len(before) - 40])  # a line that a crash cut is passed over
    assert "made anew" in kit.call("verify", "l.db", "--note", "cut", code=1)


def test_a_cut_ledger_and_forged_notes_are_found(kit):
    with ledger.read("l.db") as book, ledger.open("short.db") as short:
        for record in list(book.entries())[:-1]:
            short.append(record.entry)
    assert "the tail was cut" in kit.call("verify", "short.db", "--note", "state/manifest.json", code=1)
    note = json.loads(Path("state/manifest.json").read_text())["cosigned"]
    text, lines = note.split("\n\n")
    first, *others = lines.splitlines()
    Path("unsigned").write_text("\n".join([text, "", *others, ""]))
    assert "no center of this ledger's runs signed it" in kit.call("verify", "l.db", "--note", "unsigned", code=1)
    dash, name, blob = others[0].split(" ")
    Path("forged").write_text("\n".join([text, "", first, f"{dash} {name} {blob[:20]}{'AAAA'}{blob[24:]}", ""]))
    assert f"the cosignature of '{name}' is forged" in kit.call("verify", "l.db", "--note", "forged", code=1)
    Path("nothing").write_text("nothing here")
    assert "There is no signed checkpoint in nothing" in kit.call("verify", "l.db", "--note", "nothing", code=2)
    with ledger.open("u.db") as book:
        play(*set_table(GAME, "2p-upbred", book=book, run="plain", rounds=2, beta="7", gamma=9.0))
    assert "this ledger is" in kit.call("verify", "u.db", "--note", "state/manifest.json", code=1)
