"""The auditor's kit on real signed runs: keys and checkpoints, corrections, disputes, statements, periods and payouts."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import command
from keyring import folder_of
from table import BLIND, play, play_until, set_table

from fedincentive import ledger
from fedincentive.entry import canonical
from fedincentive.game import random_data_value
from fedincentive.ledger import Entry
from fedincentive.provenance import receipts
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


# Corrections


def tranche(path: Path) -> tuple[int, dict[str, int]]:
    """The last entry that moved money."""
    with ledger.read(path) as book:
        record = [record for record in book.entries() if record.entry.postings][-1]
    return record.seq, dict(record.entry.postings)


SIGNED = ("--author", "treasurer", "--approver", "auditor", "--keys", "keys")


def test_a_correction_is_signed_by_two_and_changes_nothing_before_it(kit):
    seq, _ = tranche(kit.db)
    with ledger.read("l.db") as book:
        before, head = book.balances(), book.head()
    amounts = ("--amount", "agent-1=1.5", "--amount", "agent-2=-1.500000")
    said = kit.call("correct", "l.db", seq, "--reason", "agreed on the phone", *amounts, *SIGNED)
    assert f"added as entry {head.count + 1}" in said
    again = kit.call("correct", "l.db", seq, "--reason", "agreed on the phone", *amounts, *SIGNED)
    assert f"there already as entry {head.count + 1}" in again
    with ledger.read("l.db") as book:
        after = book.balances()
    assert after["agent-1"] - before["agent-1"] == 1_500_000 == before["agent-2"] - after["agent-2"]
    kit.call("correct", "l.db", seq, "--reason", "more", *amounts, *SIGNED)
    kit.call("correct", "l.db", seq, "--reason", "all wrong", "--reverse", *SIGNED)
    said = kit.call("verify", "l.db", "--recompute", "--keys", "keys", "--checkpoint", head, "--note", "state/manifest.json")
    assert "clean: " in said
    told = kit.call("statement", "l.db", "agent-1")
    assert "corrects entry" in told and "agreed on the phone, author treasurer, approver auditor" in told
    assert "was reversed already" in kit.call("correct", "l.db", seq, "--reason", "x", "--reverse", *SIGNED, code=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("--reason", " ", "--reverse"), "needs a reason"),
        (("--reason", "x", "--amount", "agent-9=1", "--amount", "agent-1=-1"), "'agent-9' is not in the terms of run"),
        (("--reason", "x", "--amount", "agent-1=1"), "sum to 1000000 minor units, not 0"),
        (("--reason", "x", "--amount", "agent-1=0"), "at least two that are not 0"),
        (("--reason", "x", "--reverse", "--approver", "treasurer"), "cannot approve a correction of its own"),
        (("--reason", "x", "--reverse", "--approver", "nobody"), "private key of 'nobody' is not in keys"),
    ],
)
def test_what_is_not_a_correction_is_refused_in_words(kit, changes, words):
    seq, _ = tranche(kit.db)
    assert words in kit.call("correct", "l.db", seq, *SIGNED, *changes, code=1)
    assert "clean: 10 entries" in kit.call("verify", "l.db")


@pytest.mark.parametrize("amount", ["agent-1", "agent-1=", "=1", "agent-1=1e9", "agent-1=0.0000001", "agent-1=\u0661", "agent-1=1/2"])
def test_an_amount_is_exact_or_refused(kit, amount):
    said = kit.call("correct", "l.db", 10, "--reason", "x", "--amount", amount, *SIGNED, code=2)
    assert "is not ACCOUNT=AMOUNT" in said


def test_calls_that_say_too_little_or_too_much(kit):
    seq, _ = tranche(kit.db)
    assert "either --reverse" in kit.call("correct", "l.db", seq, "--reason", "x", *SIGNED, code=2)
    twice = ("--amount", "agent-1=1", "--amount", "agent-1=-1")
    assert "twice" in kit.call("correct", "l.db", seq, "--reason", "x", *twice, *SIGNED, code=2)
    assert "There is no entry 99" in kit.call("correct", "l.db", 99, "--reason", "x", "--reverse", *SIGNED, code=1)
    assert "is a memo (terms)" in kit.call("correct", "l.db", 1, "--reason", "x", "--reverse", *SIGNED, code=1)
    assert "There is no ledger at" in kit.call("correct", "no.db", 1, "--reason", "x", "--reverse", *SIGNED, code=1)
    assert not Path("no.db").exists()


@pytest.mark.parametrize("what", ["reason", "amounts", "author", "approver", "signatures", "unsigned", "own"])
def test_verify_finds_a_correction_that_two_did_not_sign(kit, what):
    seq, _ = tranche(kit.db)
    kit.call("correct", "l.db", seq, "--reason", "ok", "--amount", "agent-1=1", "--amount", "agent-2=-1", *SIGNED)
    with ledger.read("l.db") as book:
        entries = [record.entry for record in book.entries()]
    last = entries[-1]
    inputs, postings, rule = json.loads(json.dumps(last.inputs)), dict(last.postings), last.rule
    if what == "reason":
        inputs["reason"] = "another"
    elif what == "amounts":
        inputs["amounts"] = postings = {"agent-1": 2_000_000, "agent-2": -2_000_000}
    elif what in ("author", "approver"):
        inputs[what] = KeyRing.read("keys").public["agent-3"].vkey
    elif what == "signatures":
        inputs["signatures"]["approver"] = inputs["signatures"]["author"]
    elif what == "own":
        inputs["approver"], inputs["signatures"]["approver"] = inputs["author"], inputs["signatures"]["author"]
    else:
        rule = "transfer/1"
    with ledger.open("forged.db") as book:
        for e in [*entries[:-1], Entry(last.run, last.round, last.kind, rule, inputs, postings)]:
            book.append(e)
    assert "signature: entry 11: " in kit.call("verify", "forged.db", "--recompute", code=1)


def test_the_keys_of_a_correction_are_held_to_those_exchanged(kit):
    seq, _ = tranche(kit.db)
    for name in ("mallory", "mallet"):
        make(name, "made-up")
    kit.call("correct", "l.db", seq, "--reason", "x", "--reverse", "--author", "mallory", "--approver", "mallet", "--keys", "made-up")
    assert "clean" in kit.call("verify", "l.db", "--recompute")
    said = kit.call("verify", "l.db", "--recompute", "--keys", "keys", code=1)
    assert "the key of 'mallory' is mallory+" in said and "none was exchanged" in said


# Disputes


@pytest.fixture
def disputed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A run whose center calls agent-1 absent although it answered."""
    monkeypatch.chdir(tmp_path)
    ring = KeyRing.read(folder_of(tmp_path / "keys", GAME.agents))
    with ledger.open("l.db") as book:
        center, agents = set_table(
            GAME, "2p-upbred", keys=ring, book=book, folder=tmp_path / "state", oracles=BLIND, run="trial", rounds=3,
            beta="7", gamma=9.0,
        )  # fmt: skip
        play_until(center, agents, "train", 1)
        told = center.broadcast()
        for agent in agents[1:]:
            center.submit(agent.respond(told))
        agents[0].respond(told)
        center.close()
        agents[0].respond(center.broadcast())
        center.release()
    return SimpleNamespace(file=next(tmp_path.glob("state/receipts/agent-1/dispute-*.json")))


def test_a_dispute_is_recorded_and_not_decided(disputed):
    done = command("ledger", "dispute", "l.db", disputed.file, "--agent", "agent-1", "--keys", "keys")
    assert done.exit_code == 0 and "nobody can decide" in done.output
    again = command("ledger", "dispute", "l.db", disputed.file, "--agent", "agent-1")
    assert "there already" in again.output
    assert "clean" in command("ledger", "verify", "l.db", "--recompute", "--keys", "keys").output
    assert "who is right cannot be decided" in command("ledger", "statement", "l.db", "agent-1").output


def test_what_is_no_dispute_is_refused(disputed):
    def said(*arguments: object) -> str:
        done = command("ledger", "dispute", "l.db", *arguments)
        assert done.exit_code == 1, done.output
        return done.output

    held = json.loads(disputed.file.read_text())
    assert "is by 'agent-1', not by 'agent-2'" in said(disputed.file, "--agent", "agent-2")
    for change, words in [
        ({"claim": {**held["claim"], "delivered": 1}}, "did not sign the report"),
        ({"claim": {**held["claim"], "round": 0}}, "not of the round"),
        ({"entry": held["entry"].replace("agent-2", "agent-9")}, "is not in this ledger"),
        ({"claim": {**held["claim"], "run": "other"}}, "Run 'other' has no terms"),
        ({"signature": 7}, "did not sign the report"),
        ({"claim": 7}, "not what an agent keeps"),
    ]:
        Path("changed").write_text(json.dumps({**held, **change}))
        assert words in said("changed", "--agent", "agent-1")
    Path("changed").write_text("nothing")
    assert "not what an agent keeps" in said("changed", "--agent", "agent-1")
    folder_of(Path("others"), GAME.agents)
    assert "was not exchanged" in said(disputed.file, "--agent", "agent-1", "--keys", "others")


@pytest.mark.parametrize("change", [{"agent": "agent-2"}, {"disputes": 1}, {"signature": "AAAA"}])
def test_verify_finds_a_forged_dispute(disputed, change):
    command("ledger", "dispute", "l.db", disputed.file, "--agent", "agent-1")
    with ledger.read("l.db") as book:
        entries = [record.entry for record in book.entries()]
    last = entries[-1]
    with ledger.open("forged.db") as book:
        for e in [*entries[:-1], Entry(last.run, last.round, last.kind, last.rule, {**last.inputs, **change}, {})]:
            book.append(e)
    done = command("ledger", "verify", "forged.db", "--recompute")
    assert done.exit_code == 1 and "signature: " in done.output


# Statements

PROVEN = ("--note", "state/notes.jsonl", "--keys", "keys")


def receipts_in(page: str) -> dict[str, str]:
    found = re.findall(r'download="(receipt-\d+\.json)" href="data:application/json;base64,([^"]+)"', page)
    return {name: base64.b64decode(data).decode() for name, data in found}


def test_a_statement_in_every_format_says_the_same(kit):
    text = kit.call("statement", "l.db", "agent-1", *PROVEN)
    data = json.loads(kit.call("statement", "l.db", "agent-1", *PROVEN, "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(kit.call("statement", "l.db", "agent-1", *PROVEN, "--format", "csv"))))
    page = kit.call("statement", "l.db", "agent-1", *PROVEN, "--format", "html")
    with ledger.read("l.db") as book:
        balance = book.balances()["agent-1"]
    assert data["balance"] == balance == sum(int(row["minor_units"]) for row in rows) and data["currency"] == "EUR"
    assert f"balance {balance / 10**6:.6f} EUR" in text and f"balance {balance / 10**6:.6f} EUR" in page
    assert len(data["lines"]) == len(rows) == len(receipts_in(page)) and all(row["not_after"] for row in rows)
    assert f"{len(rows)} of {len(rows)} lines are proven by receipts under the checkpoint of 10 entries" in text
    kit.call("statement", "l.db", "agent-1", *PROVEN, "--format", "html", "-o", "page.html")
    assert Path("page.html").read_text() == page and "<script" not in page
    plain = kit.call("statement", "l.db", "agent-1", "--format", "html")
    assert "No checkpoint was given" in plain and not receipts_in(plain)
    assert "is the ledger l.db itself" in kit.call("statement", "l.db", "agent-1", "-o", "l.db", code=1)


def test_the_receipts_in_a_statement_prove_its_lines(kit):
    page = kit.call("statement", "l.db", "agent-2", *PROVEN, "--format", "html")
    for name, receipt in receipts_in(page).items():
        Path(name).write_text(receipt)
        done = command("receipt", "verify", name, "--key", "keys/center.pub", "--witness", "keys", "--need", 4)
        assert done.exit_code == 0, done.output
    data = json.loads(kit.call("statement", "l.db", "agent-2", *PROVEN, "--json"))
    log_key = KeyRing.read("keys").public["center"]
    for line in data["lines"]:
        proven, _ = receipts.verify(canonical(line["receipt"]) + "\n", log_key)
        assert (proven.seq, proven.hash) == (line["seq"], line["hash"])
        assert proven.entry.postings.get("agent-2", 0) == line["amount"]
        assert line["before"] is not None and (line["after"] is None or line["after"] <= line["before"])


def test_a_statement_is_not_proven_by_another_ledgers_checkpoint_or_by_unknown_keys(kit):
    folder_of(Path("others"), GAME.agents)
    notes = ("--note", "state/notes.jsonl")
    assert "no center of this ledger" in kit.call("statement", "l.db", "agent-1", *notes, "--keys", "others", code=1)
    rewritten(kit.db, lambda entry, inputs: inputs.update(x=1) if entry.kind == "reports-train" else None)
    assert "the chain was made anew" in kit.call("statement", "l.db", "agent-1", *notes, code=1)


def test_lines_after_the_newest_checkpoint_say_so(kit):
    seq, _ = tranche(kit.db)
    kit.call("correct", "l.db", seq, "--reason", "<b>late</b>", "--reverse", *SIGNED)
    page = kit.call("statement", "l.db", "agent-1", *PROVEN, "--format", "html")
    assert "after it" in page and "<b>late" not in page
    last = json.loads(kit.call("statement", "l.db", "agent-1", *PROVEN, "--json"))["lines"][-1]
    assert "receipt" not in last and last["before"] is None and last["after"] is not None


def test_a_page_that_prints(kit, needs):
    kit.call("statement", "l.db", "agent-1", *PROVEN, "--format", "html", "-o", "page.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={kit.folder}/profile", "--print-to-pdf=page.pdf"]
    subprocess.run([needs("chromium"), *flags, (kit.folder / "page.html").as_uri()], check=True, capture_output=True, timeout=120)
    assert Path("page.pdf").read_bytes().startswith(b"%PDF")


# Names


def test_names_can_be_erased_and_the_ledger_still_verifies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = command("names", "new", "St. Mary's", "Clinic, South").output.split()
    assert command("names", "new", "St. Mary's").output.split() == made[:1] and made[0] != made[1]
    assert Path("names.csv").stat().st_mode & 0o777 == 0o600
    with ledger.open("l.db") as book:
        book.append(Entry("demo", 0, "refund", "transfer/9", {}, {made[0]: 5, made[1]: -5}))
    assert "Clinic" not in kit_text("l.db")
    said = command("ledger", "statement", "l.db", "St. Mary's", "--names", "names.csv").output
    assert said.startswith(f"Statement of St. Mary's ({made[0]})")
    assert f"{made[1]}  Clinic, South" in command("names", "show").output
    assert "any more" in command("names", "erase", "St. Mary's").output
    assert "Mary" not in Path("names.csv").read_text() and "Clinic, South" in Path("names.csv").read_text()
    assert "clean" in command("ledger", "verify", "l.db").output
    assert command("ledger", "statement", "l.db", made[0], "--names", "names.csv").output.startswith(f"Statement of {made[0]}\n")
    assert "is not in names.csv" in command("names", "erase", "St. Mary's").output
    Path("names.csv").chmod(0o644)
    assert "may be read by others" in command("names", "show").output
    Path("names.csv").chmod(0o600)
    Path("names.csv").write_text("pseudonym,name,salt\np-0,x,00\n")
    assert "is not a map of names" in command("names", "show").output


def kit_text(path: str) -> str:
    return "".join(Path(f"{path}{part}").read_bytes().decode("latin-1") for part in ("", "-wal") if Path(f"{path}{part}").exists())
