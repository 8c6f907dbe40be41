"""The auditor's kit on real signed runs: keys, checkpoints, corrections, disputes, statements, periods and payouts."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import sepaxml
import xmlschema
from commands import command
from keyring import folder_of
from table import BLIND, play, play_until, set_table

from fedincentive import ledger
from fedincentive.center.log import Log
from fedincentive.entry import canonical
from fedincentive.game import random_data_value
from fedincentive.ledger import Entry, standalone
from fedincentive.ledger.corrections import propose
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.payout import payout
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
        if arguments[0] == "verify" and "--recompute" in arguments and "--note" not in arguments:
            alone(str(arguments[1]), "keys" if "--keys" in arguments else None, clean=code == 0)
        return done.output

    return SimpleNamespace(folder=folder, call=call, db=folder / "l.db", agents=GAME.agents)


def alone(path: str, keys: str | None, *, clean: bool) -> None:
    """The stand-alone verifier says the same of the ledger."""
    with ledger.read(path) as book:
        lines = list(to_jsonl(book))
    signatures = standalone.Signatures(known=None if keys is None else standalone.read_keys(keys))
    findings, _ = standalone.check(lines, (), signatures)
    assert (not findings) == clean, findings


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


def test_a_statement_says_in_which_runs_nobody_signed(kit):
    with ledger.open("l.db") as book:
        play(*set_table(GAME, "2p-upbred", book=book, run="plain", rounds=2, beta="7", gamma=9.0))
    told = "Nobody signed what agents said in run"

    def said(form: str, *run: str) -> str:
        return kit.call("statement", "l.db", "agent-1", "--format", form, *run)

    assert f"{told} 'plain'." in said("text") and told not in said("text", "--run", "trial")
    assert told in said("html") and told not in said("html", "--run", "trial")
    assert (
        json.loads(said("json"))["unsigned"] == ["plain"] and not json.loads(said("json", "--run", "trial"))["unsigned"]
    )
    rows = csv.DictReader(io.StringIO(said("csv")))
    assert {(row["run"], row["agents_signed"]) for row in rows} == {("trial", "yes"), ("plain", "no")}


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
    said = kit.call(
        "verify", "l.db", "--recompute", "--keys", "keys", "--checkpoint", head, "--note", "state/manifest.json"
    )
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


@pytest.mark.parametrize(
    "amount", ["agent-1", "agent-1=", "=1", "agent-1=1e9", "agent-1=0.0000001", "agent-1=\u0661", "agent-1=1/2"]
)
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
    kit.call(
        "correct",
        "l.db",
        seq,
        "--reason",
        "x",
        "--reverse",
        "--author",
        "mallory",
        "--approver",
        "mallet",
        "--keys",
        "made-up",
    )
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
    assert done.exit_code == 0 and "so no money moves" in done.output
    again = command("ledger", "dispute", "l.db", disputed.file, "--agent", "agent-1")
    assert "there already" in again.output
    assert "clean" in command("ledger", "verify", "l.db", "--recompute", "--keys", "keys").output
    alone("l.db", "keys", clean=True)
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
    alone("forged.db", None, clean=False)


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
    assert "made after the checkpoint" in page and "<b>late" not in page
    last = json.loads(kit.call("statement", "l.db", "agent-1", *PROVEN, "--json"))["lines"][-1]
    assert "receipt" not in last and last["before"] is None and last["after"] is not None


def test_what_matters_of_a_statement_comes_first(kit):
    page = kit.call("statement", "l.db", "agent-1", *PROVEN, "--format", "html")
    with ledger.read("l.db") as book:
        balance = book.balances()["agent-1"]
    said = f"received {balance / 1e6:.2f} EUR and was" if balance > 0 else f"was charged {-balance / 1e6:.2f} EUR and"
    assert f'<p class="lead">agent-1 {said}' in page
    money, memos = page.split('<div class="memos">')
    assert "tranche" in money and "what it reported, signed" not in money and "what it reported, signed" in memos


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
    assert "no longer says who" in command("names", "erase", "St. Mary's").output
    assert "Mary" not in Path("names.csv").read_text() and "Clinic, South" in Path("names.csv").read_text()
    assert "clean" in command("ledger", "verify", "l.db").output
    assert command("ledger", "statement", "l.db", made[0], "--names", "names.csv").output.startswith(
        f"Statement of {made[0]}\n"
    )
    assert "is not in names.csv" in command("names", "erase", "St. Mary's").output
    Path("names.csv").chmod(0o644)
    assert "may be read by others" in command("names", "show").output
    Path("names.csv").chmod(0o600)
    Path("names.csv").write_text("pseudonym,name,salt\np-0,x,00\n")
    assert "is not a map of names" in command("names", "show").output


def kit_text(path: str) -> str:
    return "".join(
        Path(f"{path}{part}").read_bytes().decode("latin-1") for part in ("", "-wal") if Path(f"{path}{part}").exists()
    )


# Periods


def test_a_period_ends_at_a_cosigned_checkpoint_and_corrections_fall_into_the_next(kit):
    said = kit.call("close-period", "l.db", "--name", "2026-Q4", *PROVEN, "--need", 4)
    assert "has the entries 1 to 10: 10 entries, signed by the center, cosigned by agent-1" in said
    assert "there already as entry 11" in kit.call("close-period", "l.db", "--name", "2026-Q4", *PROVEN)
    assert "nothing is new" in kit.call("close-period", "l.db", "--name", "2027-Q1", *PROVEN, code=1)
    seq, _ = tranche(kit.db)
    kit.call("correct", "l.db", seq, "--reason", "found in January", "--reverse", *SIGNED)
    with ledger.open("l.db") as book:
        key = KeyRing.read("keys").private["center"]
        note = Log(book, "trial", key).note
        for name in kit.agents:
            note = note.cosigned(KeyRing.read("keys").private[name], 1_800_000_000)
    Path("next").write_text(str(note))
    assert "5 must" in kit.call("close-period", "l.db", "--name", "2027-Q1", "--note", "next", "--need", 5, code=1)
    said = kit.call("close-period", "l.db", "--name", "2027-Q1", "--note", "next", "--keys", "keys")
    assert "has the entries 11 to 12" in said and "2027-01-15 08:00:00 UTC" in said
    kit.call("verify", "l.db", "--recompute", "--keys", "keys")
    first = kit.call("statement", "l.db", "agent-1", "--period", "2026-Q4")
    second = kit.call("statement", "l.db", "agent-1", "--period", "2027-Q1")
    assert "found in January" not in first and "found in January" in second and "brought forward" in second
    with ledger.read("l.db") as book:
        assert f"balance {book.balances()['agent-1'] / 10**6:.6f} EUR" in second
    assert "closed are: 2026-Q4, 2027-Q1" in kit.call("statement", "l.db", "agent-1", "--period", "Q9", code=1)
    assert "closed at 10 entries already" in kit.call(
        "close-period", "l.db", "--name", "2026-Q4", "--note", "next", code=1
    )
    assert "give it with --note" in kit.call("close-period", "l.db", "--name", "x", code=2)


def test_verify_finds_a_period_that_ends_at_a_forged_checkpoint(kit):
    kit.call("close-period", "l.db", "--name", "2026-Q4", *PROVEN)

    def change(entry, inputs):
        if entry.kind == "close":
            inputs["note"][3:] = [line for line in inputs["note"][3:] if "center" not in line]

    rewritten(kit.db, change)
    assert "no center of this ledger's runs signed it" in kit.call("verify", "l.db", code=1)
    rewritten(kit.db, lambda entry, inputs: inputs.update(size=3) if entry.kind == "close" else None)
    assert "closed at 3 entries" in kit.call("verify", "l.db", "--recompute", code=1)


# Two persons, two commands


def proposed(kit, *what: str, code: int = 0) -> str:
    """A correction that the treasurer proposes, who has no private key but its own."""
    shutil.copytree("keys", "mine", dirs_exist_ok=True)
    for key in Path("mine").glob("*.key"):
        if key.stem != "treasurer":
            key.unlink()
    who = ("--author", "treasurer", "--approver", "auditor", "--keys", "mine", "--proposal", "p.json")
    return kit.call("correct", "l.db", tranche(kit.db)[0], "--reason", "Counted twice", *what, *who, code=code)


def approved(kit, who: str = "auditor", code: int = 0) -> str:
    return kit.call("approve", "l.db", "p.json", "--approver", who, "--keys", "keys", code=code)


MOVED = ("--amount", "agent-1=2", "--amount", "agent-2=-2")


@pytest.mark.parametrize("what", [MOVED, ("--reverse",)])
def test_a_correction_is_proposed_by_one_and_approved_by_another(kit, what):
    before, seq = kit.db.read_bytes(), tranche(kit.db)[0]
    assert "'treasurer' proposes it in p.json" in proposed(kit, *what)
    assert kit.db.read_bytes() == before
    said = approved(kit)
    assert "added as entry 11" in said and "'auditor' approves what 'treasurer' decided" in said
    assert "there already as entry 11" in approved(kit)
    with ledger.read("l.db") as book:
        entry = list(book.entries())[-1].entry
        assert standalone.check(list(to_jsonl(book)))[0] == []
    assert "clean" in kit.call("verify", "l.db", "--recompute", "--keys", "keys")
    again = kit.call("correct", "l.db", seq, "--reason", "Counted twice", *what, *SIGNED)
    assert "there already as entry 11" in again and entry.inputs["signatures"].keys() == {"author", "approver"}


def test_only_the_named_approver_approves_and_only_what_was_proposed(kit):
    seq = tranche(kit.db)[0]
    proposed(kit, *MOVED)
    assert "only that key can approve it" in approved(kit, "agent-1", code=1)
    assert "only that key can approve it" in approved(kit, "treasurer", code=1)
    text = Path("p.json").read_text()
    said = json.loads(text)
    changed = [text.replace('"agent-1":2000000', '"agent-1":3000000').replace("-2000000", "-3000000")]
    changed += [text.replace("Counted twice", "For my friends")]
    changed += [canonical({**said, "signatures": {"author": base64.b64encode(bytes(64)).decode()}})]
    for other in changed:
        Path("p.json").write_text(other)
        assert "did not sign this correction" in approved(kit, code=1)
    for key, value in (("round", said["round"] + 1), ("rule", "reversal/2"), ("run", "other")):
        Path("p.json").write_text(canonical({**said, key: value}))
        assert "let its author propose it again" in approved(kit, code=1)
    for junk in ("", "[]", "{}", "[" * 10_000, canonical({**said, "signatures": {"author": 3}}),
                 canonical({**said, "inputs": {**said["inputs"], "amounts": [1]}}),
                 canonical({**said, "inputs": {**said["inputs"], "amounts": {"agent-1": True}}}),
                 canonical({**said, "inputs": {**said["inputs"], "corrects": "5"}})):  # fmt: skip
        Path("p.json").write_text(junk)
        assert "not a proposed correction" in approved(kit, code=1)
    Path("p.json").write_text(text)
    kit.call("correct", "l.db", seq, "--reason", "first", *MOVED, *SIGNED)
    assert "has moved on since" in approved(kit, code=1)
    assert "cannot approve a correction of its own" in kit.call(
        "correct", "l.db", tranche(kit.db)[0], "--reason", "x", "--reverse", "--author", "treasurer", "--approver",
        "treasurer", "--keys", "keys", "--proposal", "q.json", code=1,
    )  # fmt: skip


# Payouts

IBANS = ["DE89370400440532013000", "DE02120300000000202051", "DE02500105170137075030", "DE02100500000054540402"]
GIFT = {"agent-1": 5 * 10**6, "agent-2": -5 * 10**6}
PAIN = "{urn:iso:std:iso:20022:tech:xsd:pain.001.001.09}"


@pytest.fixture
def paying(kit):
    """The kit with a payee map, and what each account's balance is."""
    rows = ["account,name,iban,bic", f"treasury,Network & Söhne,{'GB82 WEST 1234 5698 7654 32'},DEUTDEFF"]
    rows += [
        f"{agent},Hospital {agent},{iban},{bic}"
        for agent, iban, bic in zip(kit.agents, IBANS, ["COBADEFFXXX", "", "", ""], strict=True)
    ]
    Path("payees.csv").write_text("\n".join(rows) + "\n")
    with ledger.read("l.db") as book:
        kit.balances = book.balances()
    kit.pay = lambda *more, code=0: kit.call("payout", "l.db", "--currency", "EUR", *more, code=code)
    kit.file = ("--payees", "payees.csv", "--date", "2026-12-01", *PROVEN, "--out")
    return kit


def test_a_payout_keeps_the_sum_and_is_valid_by_the_banks_schema(paying):
    seq, _ = tranche(paying.db)
    third = ("--amount", "agent-1=0.003333", "--amount", "agent-2=0.003333", "--amount", "agent-3=-0.006666")
    paying.call("correct", "l.db", seq, "--reason", "thirds", *third, *SIGNED)
    said = paying.pay("--run", "trial", *paying.file, "pay.xml")
    schema = xmlschema.XMLSchema(Path(sepaxml.__file__).parent / "schemas" / "pain.001.001.09.xsd")
    schema.validate("pay.xml")
    root = ElementTree.parse("pay.xml").getroot()

    def texts(path: str) -> list[str]:
        return [found.text for found in root.findall(".//" + "/".join(PAIN + part for part in path.split("/")))]

    with ledger.read("l.db") as book:
        exact = {account: Fraction(amount, 10**4) for account, amount in book.balances().items()}
    made = due(paying.db)
    assert sum(line.open for line in made.lines) == 0
    for line in made.lines:
        assert abs(line.open - exact[line.account]) < 1 and line.carried == exact[line.account] - line.open
    paid = [line for line in made.lines if line.open > 0]
    assert texts("GrpHdr/MsgId") == texts("PmtInf/PmtInfId") == [made.message] and made.message in said
    assert texts("GrpHdr/NbOfTxs") == [str(len(paid))] == texts("PmtInf/NbOfTxs")
    assert texts("GrpHdr/CtrlSum") == [f"{sum(line.open for line in paid) / 100:.2f}"] == texts("PmtInf/CtrlSum")
    assert texts("Amt/InstdAmt") == [f"{line.open / 100:.2f}" for line in paid]
    assert {found.get("Ccy") for found in root.iter(PAIN + "InstdAmt")} == {"EUR"}
    assert texts("PmtId/EndToEndId") == [line.reference for line in paid]
    assert all(re.fullmatch("FI[0-9a-f]{32}", one) for one in texts("PmtId/EndToEndId"))
    assert texts("ReqdExctnDt/Dt") == ["2026-12-01"] and texts("Dbtr/Nm") == ["Network & Söhne"]
    assert texts("DbtrAcct/Id/IBAN") == ["GB82WEST12345698765432"] and texts("DbtrAgt/FinInstnId/BICFI") == ["DEUTDEFF"]
    assert texts("Cdtr/Nm") == [f"Hospital {line.account}" for line in paid]
    assert texts("CdtrAcct/Id/IBAN") == [IBANS[paying.agents.index(line.account)] for line in paid]
    assert set(texts("RmtInf/Ustrd")) == {"fedincentive run trial"}
    datetime.fromisoformat(texts("GrpHdr/CreDtTm")[0])
    assert not any(iban.encode() in paying.db.read_bytes() for iban in IBANS)
    assert Path("pay.xml").stat().st_mode & 0o077 == 0


def signers():
    """Who signs a correction, and the public key of who approves it."""
    ring = KeyRing.read("keys")
    return ring.private["auditor"], ring.public["treasurer"]


def due(path: Path, currency: str = "EUR"):
    with ledger.read(path) as book:
        return payout(book, "run", "trial", currency)


def test_only_what_is_open_is_paid_and_settling_twice_is_once(paying):
    first = due(paying.db)
    payee = next(line.account for line in first.lines if line.open > 0)
    said = paying.pay("--run", "trial", "--settled", first.message, "--unpaid", payee)
    assert "added as entry 11" in said
    assert "there already" in paying.pay("--run", "trial", "--settled", first.message, "--unpaid", payee)
    assert "with another" in paying.pay("--run", "trial", "--settled", first.message, code=1)
    second = due(paying.db)
    assert {line.account: line.open for line in second.lines if line.open} == {
        payee: next(line.open for line in first.lines if line.account == payee)
    }
    paying.pay("--run", "trial", "--settled", second.message)
    assert "0 to pay, 0.00; 0 to invoice" in paying.pay("--run", "trial")
    last = due(paying.db)
    assert "nothing to settle" in paying.pay("--run", "trial", "--settled", last.message, code=1)
    assert "Nobody is to be paid" in paying.pay("--run", "trial", *paying.file, "empty.xml", code=1)
    seq, _ = tranche(paying.db)
    paying.call("correct", "l.db", seq, "--reason", "late", "--amount", "agent-1=2", "--amount", "agent-2=-2", *SIGNED)
    assert {line.account: line.open for line in due(paying.db).lines if line.open} == {"agent-1": 200, "agent-2": -200}
    assert "clean" in paying.call("verify", "l.db", "--recompute", "--keys", "keys")


def test_a_bank_is_told_to_pay_only_what_more_than_half_of_the_agents_cosigned(paying):
    file = [one for one in paying.file if one not in PROVEN]
    said = paying.pay("--run", "trial", *file, "pay.xml", code=1)
    assert "0 of the 4 agents of run 'trial' cosigned" in said and "--unwitnessed" in said
    assert not Path("pay.xml").exists()
    assert "NOT WITNESSED: 0 of the 4 agents" in paying.pay("--run", "trial")
    notes = [json.loads(line)["note"] for line in Path("state/notes.jsonl").read_text().splitlines()]
    last = next(note for note in reversed(notes) if note.count("\n— ") == 5)

    def cosigned_by(count: int, note: str = last, code: int = 0) -> str:
        lines = note.splitlines(keepends=True)
        Path("some.note").write_text("".join(lines[: len(lines) - 4 + count]))
        return paying.pay("--run", "trial", *file, "pay.xml", "--note", "some.note", code=code)

    assert "2 of the 4 agents" in cosigned_by(2, code=1)
    assert "3 of the 4 agents" in cosigned_by(3)
    Path("pay.xml").unlink()
    forged = last.replace("— agent-1 ", "— agent-1 ", 1).splitlines(keepends=True)
    forged[-1] = forged[-1].replace("agent-4", "agent-3")
    assert "2 of the 4" in cosigned_by(3, "".join([*forged[:-2], forged[-1], forged[-2]]), code=1)
    early = next(note for note in notes if note.count("\n— ") == 5 and int(note.split("\n")[1]) < 5)
    assert "0 of the 4 agents" in cosigned_by(4, early, code=1)
    shutil.copytree("keys", "few")
    for agent in paying.agents[:2]:
        (Path("few") / f"{agent}.pub").unlink(), (Path("few") / f"{agent}.key").unlink()
    few = ("--note", "state/notes.jsonl", "--keys", "few")
    assert "2 of the 4 agents" in paying.pay("--run", "trial", *file, "pay.xml", *few, code=1)
    assert not Path("pay.xml").exists()
    for form, name in (("pain.001", "pay.xml"), ("csv", "pay.csv")):
        said = paying.pay("--run", "trial", *file, name, "--format", form, "--unwitnessed")
        assert "NOT WITNESSED" in said and "fedincentive unwitnessed run trial" in Path(name).read_text()


def test_nothing_is_paid_from_a_ledger_with_findings(paying):
    with ledger.open("l.db") as book:
        body = json.loads(propose(book, 5, "for a friend", GIFT, *signers()))
        forged = {"author": "A" * 86 + "==", "approver": "A" * 86 + "=="}  # nobody signed: the center wrote it
        inputs = {**body["inputs"], "signatures": forged}
        book.append(Entry("trial", body["round"], "correction", body["rule"], inputs, GIFT))
    said = paying.pay("--run", "trial", *paying.file, "pay.xml", code=1)
    assert "NOT SOUND" in said and "'auditor' did not sign this correction" in said and not Path("pay.xml").exists()
    assert "NOT SOUND" in paying.pay("--run", "trial", "--unwitnessed", *paying.file, "pay.xml", code=1)
    assert "NOT SOUND" in paying.pay("--run", "trial")


def test_a_payout_says_that_its_run_is_unfinished_and_none_is_made_where_the_tail_was_cut(paying):
    with ledger.read("l.db") as book:
        entries = [record.entry for record in book.entries()]
    last = max(k for k, entry in enumerate(entries) if entry.kind == "tranche")
    Path("l.db").unlink()
    with ledger.open("l.db") as short:
        for entry in entries[: last - 1]:
            short.append(entry)
    lines = Path("state/notes.jsonl").read_text().splitlines(keepends=True)
    sizes = [int(json.loads(line)["note"].split("\n")[1]) for line in lines]
    Path("early.jsonl").write_text("".join(line for line, size in zip(lines, sizes, strict=True) if size < last))
    file = ("--run", "trial", *(one for one in paying.file if one not in PROVEN))
    said = paying.pay(*file, "pay.xml", "--note", "early.jsonl")
    assert "Run 'trial' is unfinished: it has 2 of 3 reports-train entries, 2 of 3 tranche entries." in said
    Path("pay.xml").unlink()
    assert "the tail was cut" in paying.pay(*file, "pay.xml", "--note", "state/notes.jsonl", code=1)
    assert not Path("pay.xml").exists()


def test_the_treasury_is_neither_paid_nor_invoiced(paying):
    lent = ("--amount", "agent-1=3", "--amount", "treasury=-3")
    paying.call("correct", "l.db", tranche(paying.db)[0], "--reason", "a grant", *lent, *SIGNED)
    row = next(line for line in paying.pay("--run", "trial").splitlines() if line.startswith("treasury"))
    assert row.split()[1:4] == ["-3.00", "0.00", "-3.00"] and row.endswith("the payer's own")


def test_both_verifiers_count_the_same_signatures(paying):
    paying.call("correct", "l.db", tranche(paying.db)[0], "--reason", "late", "--reverse", *SIGNED)
    said = json.loads(paying.call("verify", "l.db", "--recompute", "--json"))
    with ledger.read("l.db") as book:
        counted = standalone.Signatures()
        assert standalone.check(list(to_jsonl(book)), (), counted)[0] == []
    assert counted.count == said["signatures"] == 2 + 4 * 6  # the terms, phase 1, three rounds and the last values


def test_a_period_is_witnessed_by_the_checkpoint_that_closed_it(paying):
    paying.call("close-period", "l.db", "--name", "Q4", *PROVEN)
    file = [one for one in paying.file if one not in PROVEN]
    assert "4 of the 4 agents of run 'trial' cosigned" in paying.pay("--period", "Q4", *file, "pay.xml")


def test_a_bank_csv_has_payments_and_invoices(paying):
    paying.pay("--run", "trial", *paying.file, "pay.csv", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(Path("pay.csv").read_text())))
    signed = {row["account"]: Fraction(row["amount"]) * (1 if row["direction"] == "pay" else -1) for row in rows}
    assert sum(signed.values()) == 0 and {row["direction"] for row in rows} == {"pay", "invoice"}
    assert {row["iban"] for row in rows} <= set(IBANS) and {row["currency"] for row in rows} == {"EUR"}


def test_a_period_is_paid_out_up_to_its_end_and_not_by_run_as_well(paying):
    paying.call("close-period", "l.db", "--name", "Q4", *PROVEN)
    seq, _ = tranche(paying.db)
    paying.call("correct", "l.db", seq, "--reason", "late", "--amount", "agent-1=2", "--amount", "agent-2=-2", *SIGNED)
    said = paying.pay("--period", "Q4", *paying.file, "pay.xml")
    told = {row.split()[0]: Fraction(row.split()[1]) for row in said.splitlines() if row.startswith("agent-")}
    assert sum(told.values()) == 0
    for account, amount in paying.balances.items():
        assert abs(told[account] - Fraction(amount, 10**6)) < Fraction(1, 100)
    message = re.search(r"FI-\d+-[0-9a-f]{16}", said)[0]
    assert "added as entry 13" in paying.pay("--period", "Q4", "--settled", message)
    assert "is paid out by period (entry 13), not by run" in paying.pay("--run", "trial", code=1)
    assert "clean" in paying.call("verify", "l.db", "--recompute", "--keys", "keys")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("agent-1,H,DE88370400440532013000,", "check digits of the IBAN"),
        ("agent-1,H,,", "check digits of the IBAN"),
        ("agent-1,,DE89370400440532013000,", "the name must be"),
        (f"agent-1,{'x' * 71},DE89370400440532013000,", "the name must be"),
        ("agent-1,H,DE89370400440532013000,DEUT", "is not a BIC"),
        (",H,DE89370400440532013000,", "names no account"),
        ("treasury,H,DE89370400440532013000,", "is there twice"),
    ],
)
def test_a_payee_map_with_a_bad_line_is_refused(paying, line, words):
    Path("payees.csv").write_text(f"account,name,iban,bic\ntreasury,N,DE89370400440532013000,\n{line}\n")
    said = paying.pay("--run", "trial", *paying.file, "pay.xml", code=1)
    assert "Line 3 of the payee map" in said and words in said and not Path("pay.xml").exists()


def test_payouts_that_cannot_be_are_refused(paying):
    assert "either --run or --period" in paying.pay(code=2)
    assert "needs --payees and --date" in paying.pay("--run", "trial", "--out", "pay.xml", code=2)
    assert "no entry of run 'other' moved money" in paying.pay("--run", "other", code=1)
    assert "No period 'Q9' is closed" in paying.pay("--period", "Q9", code=1)
    assert "not an ISO 4217 code" in paying.call("payout", "l.db", "--currency", "euro", "--run", "trial", code=1)
    assert "are in 'EUR', not in USD" in paying.call("payout", "l.db", "--currency", "USD", "--run", "trial", code=1)
    assert "is no payout of run" in paying.pay("--run", "trial", "--settled", "FI-9-0123456789abcdef", code=1)
    assert "is no payout of run" in paying.pay("--run", "trial", "--settled", "x", code=1)
    assert "No payout of run 'trial' was made at entry 1." in paying.pay(
        "--run", "trial", "--settled", "FI-1-" + "0" * 16, code=1
    )
    assert "no open line of 'eve'" in paying.pay(
        "--run", "trial", "--settled", due(paying.db).message, "--unpaid", "eve", code=1
    )
    Path("payees.csv").write_text("account,name,iban\n")
    assert "no line of the account" in paying.pay("--run", "trial", *paying.file, "pay.xml", code=1)
    Path("payees.csv").write_text("name\n")
    assert "needs a first line" in paying.pay("--run", "trial", *paying.file, "pay.xml", code=1)


@pytest.mark.parametrize(("currency", "digits"), [("EUR", 2), ("JPY", 0), ("KWD", 3), ("CLF", 4)])
def test_a_currency_has_its_own_decimals(tmp_path, currency, digits):
    for minor in (1, 10**6):
        with ledger.open(tmp_path / f"{minor}.db", minor=minor) as book:
            book.append(Entry("trial", 0, "refund", "other/1", {}, {"a": 5_555_555, "b": 5_555_555, "c": -11_111_110}))
        made = due(tmp_path / f"{minor}.db", currency)
        assert made.digits == digits and sum(line.open for line in made.lines) == 0
        assert all(abs(line.carried) < 1 and (minor > 1 or line.carried == 0) for line in made.lines)


def test_the_kit_works_in_every_store(paying, target):
    paying.call("export", "l.db", "-o", "l.jsonl")
    paying.call("import", "l.jsonl", target)
    seq, _ = tranche(paying.db)
    assert "added as entry 11" in paying.call("correct", target, seq, "--reason", "x", "--reverse", *SIGNED)
    assert "added as entry 12" in paying.call("close-period", target, "--name", "Q4", *PROVEN)
    said = paying.call("payout", target, "--period", "Q4", "--currency", "EUR", *paying.file, "pay.xml")
    message = re.search(r"FI-\d+-[0-9a-f]{16}", said)[0]
    paying.call("payout", target, "--period", "Q4", "--currency", "EUR", "--settled", message)
    assert "clean: 13 entries" in paying.call("verify", target, "--recompute", "--keys", "keys")
