"""A run's entries are held to its terms: what only agrees with itself is found, here and by the other verifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedincentive import ledger, payments, play
from fedincentive.ledger import Entry, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify

MINOR = 10**6
Fields = dict[str, Any]
Change = Callable[[list[Fields]], None]


def run_of(folder: Path, **incentive: Any) -> list[Fields]:
    """An honest run's entries, as fields that can be changed."""
    settings = {"mechanism": "2p-upbred", "beta": "0.5", "rounds": 8, **incentive}
    play({"game": {"kind": "repaired"}}, ledger=folder / "honest.db", **settings)
    names = [field.name for field in dataclasses.fields(Entry) if field.init]
    with ledger.read(folder / "honest.db") as book:
        return [{name: plain(getattr(record.entry, name)) for name in names} for record in book.entries()]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def forged(entries: list[Fields]) -> Iterator[Entry]:
    """Entries whose amounts follow from their inputs: whoever changed them derived every amount again."""
    memory: dict[str, Any] = {}
    for fields in entries:
        payment = payments.by_rule(fields["rule"])
        if payment is not None:
            outcomes = payment.replay({**fields, "postings": {}}, plain(memory.get(payment.name, {})), MINOR)
            fields["postings"] = next(outcome for outcome in outcomes if isinstance(outcome, dict))
            list(payment.replay(fields, memory.setdefault(payment.name, {}), MINOR))
        yield Entry(**fields)


def found(folder: Path, entries: list[Fields]) -> tuple[set[str], set[str]]:
    """The names of what both verifiers find in a ledger with these entries."""
    with ledger.open(folder / "forged.db") as book:
        for entry in forged(entries):
            book.append(entry)
        ours = {finding.name for finding in verify(book, recompute=True).findings}
        theirs = {name for name, _, _ in standalone.check(list(to_jsonl(book)))[0]}
    return ours, theirs


def tranche(entries: list[Fields], number: int = 2) -> Fields:
    return [fields for fields in entries if fields["kind"] == "tranche"][number]


def deliver(entries: list[Fields], agent: str, points: int) -> None:
    """Another number of points in the last tranche, and the total that follows."""
    given = tranche(entries, -1)["inputs"]
    given["total"][agent] += points - given["delivered"].get(agent, 0)
    given["delivered"][agent] = points


def one_more(entries: list[Fields]) -> None:
    """A ninth tranche of eight."""
    last = plain(tranche(entries, -1))
    last["round"] += 1
    last["inputs"]["total"] = {a: n + last["inputs"]["delivered"][a] for a, n in last["inputs"]["total"].items()}
    entries.append(last)


def beside(entries: list[Fields]) -> None:
    """A settlement on the same points, beside the tranches."""
    inputs = {"beta": "1/2", "s": {"agent-1": 5_000_000, "agent-2": 0}, "scale": 10**6}
    entries.append({**tranche(entries, -1), "kind": "settlement", "rule": "contribution/1", "inputs": inputs})


def stranger(entries: list[Fields]) -> None:
    given = tranche(entries, -1)["inputs"]
    given["delivered"]["mallory"] = given["total"]["mallory"] = 5_000_000


def price(entries: list[Fields]) -> None:
    for fields in entries:
        if fields["kind"] == "tranche":
            fields["inputs"]["beta"] = "7"


def rounds(entries: list[Fields]) -> None:
    for fields in entries:
        if fields["kind"] == "tranche":
            fields["inputs"]["rounds"] = 2


def labelled(entries: list[Fields]) -> None:
    """A transfer that a person decided, under the name of a tranche."""
    inputs = {"corrects": 3, "hash": "", "reason": "x", "amounts": {"agent-1": 9, "agent-2": -9}}
    entries[-1] = {**entries[-1], "rule": "transfer/1", "inputs": inputs, "postings": {"agent-1": 9, "agent-2": -9}}


def skipped(entries: list[Fields]) -> None:
    del entries[entries.index(tranche(entries, 3))]


def swapped(entries: list[Fields]) -> None:
    one, two = tranche(entries, 3), tranche(entries, 4)
    one["round"], two["round"] = two["round"], one["round"]


def early(entries: list[Fields]) -> None:
    """The first tranche before the commitments."""
    entries[1], entries[2] = entries[2], entries[1]


def no_agreement(entries: list[Fields]) -> None:
    entries[0]["inputs"]["terms"]["payments"] = {}


def twice(entries: list[Fields]) -> None:
    entries.insert(3, {**plain(entries[0]), "round": 1})


def richer(entries: list[Fields]) -> None:
    """Commitments of more than there is."""
    entries[1]["inputs"]["s"]["agent-1"] = 6_000_000


def larger(entries: list[Fields]) -> None:
    entries[1]["inputs"]["s_max"]["agent-1"] = 6_000_000


def committed_price(entries: list[Fields]) -> None:
    entries[1]["inputs"]["beta"] = "3"


def units(entries: list[Fields]) -> None:
    entries[0]["inputs"]["terms"]["minor"] = 100


FORGERIES: dict[str, Change] = {
    "a ninth tranche of eight": one_more,
    "a settlement beside tranches": beside,
    "more delivered than there is": lambda entries: deliver(entries, "agent-1", 5_000_001),
    "negative deliveries": lambda entries: deliver(entries, "agent-1", -1),
    "a stranger": stranger,
    "another beta": price,
    "another number of rounds": rounds,
    "a transfer labelled tranche": labelled,
    "a tranche left out": skipped,
    "tranches out of order": swapped,
    "a tranche before the commitments": early,
    "a payment that was not agreed": no_agreement,
    "terms twice": twice,
    "commitments beyond s_max": richer,
    "another s_max": larger,
    "another beta in the commitments": committed_price,
    "other minor units": units,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_was_not_agreed_is_found(tmp_path: Path, name: str) -> None:
    entries = run_of(tmp_path)
    FORGERIES[name](entries)
    ours, theirs = found(tmp_path, entries)
    wanted = {"terms", "kind", "order"}
    assert ours & wanted, ours
    assert theirs & wanted, theirs


def test_an_untouched_copy_is_clean(tmp_path: Path) -> None:
    assert found(tmp_path, run_of(tmp_path)) == (set(), set())


@pytest.mark.parametrize("settlement", ["end", "commitment"])
def test_a_settlement_comes_once_and_when_it_was_agreed(tmp_path: Path, settlement: str) -> None:
    entries = run_of(tmp_path, settlement=settlement)
    again = plain(entries[-1])
    again["round"] += 1
    if settlement == "end":
        again["inputs"]["delivered"] = dict.fromkeys(again["inputs"]["delivered"], 0)
    ours, theirs = found(tmp_path, [*entries, again])
    assert "terms" in ours and "terms" in theirs


TRUTHFUL: dict[str, Change] = {
    "another h": lambda entries: entries[-1]["inputs"].update(h="zero"),
    "a weaker fine rule": lambda entries: entries[-1]["inputs"].update(phi="none", failed={}),
    "a smaller fine": lambda entries: entries[-1]["inputs"].update(fine=1),
    "a larger tolerance": lambda entries: entries[-1]["inputs"].update(tolerance=10**9),
    "a valuation beyond the cap": lambda entries: entries[-1]["inputs"]["valuations"].update({"agent-1": 10**9}),
    "a stranger": lambda entries: entries[-1]["inputs"]["valuations"].update(mallory=5),
    "a baseline beyond the cap": lambda entries: entries[2]["inputs"]["baseline"].update({"agent-1": 10**9}),
    "a stranger's baseline": lambda entries: entries[2]["inputs"]["baseline"].update(mallory=5),
    "the older rule": lambda entries: entries[-1].update(rule="truthful/1"),
    "words that nothing checks": lambda entries: entries[0]["inputs"]["terms"].update(oracles=["valuation"]),
}


@pytest.mark.parametrize("name", TRUTHFUL)
def test_truthful_payments_are_held_to_their_terms(tmp_path: Path, name: str) -> None:
    entries = run_of(tmp_path, mechanism="t-upbred", rounds=3)
    TRUTHFUL[name](entries)
    ours, theirs = found(tmp_path, entries)
    assert "terms" in ours and "terms" in theirs


@pytest.mark.parametrize("number", [2, 3])
def test_only_the_first_truthful_payment_is_measured_from_a_baseline(tmp_path: Path, number: int) -> None:
    entries = run_of(tmp_path, mechanism="t-upbred", rounds=3)
    given = entries[number]["inputs"]
    given["previous" if number == 2 else "baseline"] = given.pop("baseline" if number == 2 else "previous")
    ours, theirs = found(tmp_path, entries)
    assert "previous" in ours and "previous" in theirs


def test_a_run_that_agreed_to_pay_on_words_may(tmp_path: Path) -> None:
    agreed = run_of(tmp_path, mechanism="t-upbred", rounds=3, unchecked=True)
    assert found(tmp_path, agreed) == (set(), set())


def test_a_run_without_terms_is_held_to_its_commitment_and_said_to_be_unbound(tmp_path: Path) -> None:
    """As releases before the terms wrote them: clean for ever, and only as certain as it was."""
    entries = run_of(tmp_path)[1:]
    assert found(tmp_path, entries) == (set(), set())
    with ledger.read(tmp_path / "forged.db") as book:
        assert verify(book, recompute=True).unbound == ("run",)
    (tmp_path / "forged.db").unlink()
    price(entries)
    ours, theirs = found(tmp_path, entries)
    assert "terms" in ours and "terms" in theirs
