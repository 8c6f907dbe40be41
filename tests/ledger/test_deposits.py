"""Deposits, forfeits, refunds, claw-backs, sampled tranches and lump sums: exact, balanced, and held to the terms."""

from __future__ import annotations

import dataclasses
import json
import random
import runpy
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from audited import balances, book_of, due, played, run_of, standing_in

from fedincentive import mechanisms, payments
from fedincentive.errors import PaymentError
from fedincentive.ledger import Entry, payout, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.statement import statement
from fedincentive.ledger.verify import verify
from fedincentive.payments import Event

__all__ = ["standing_in"]
pytestmark = pytest.mark.usefixtures("standing_in")
HERE = Path(__file__)
VECTORS = json.loads(HERE.with_name("audited_vectors.json").read_text())
S = {"a": 10_000_000, "b": 20_000_001, "c": 35_000_003, "d": 5_000_000}
DRAWN = [("a", "b", "c"), ("b", "c", "d"), ("a", "b", "d"), ("a", "c", "d")]
Fields = dict[str, Any]


def found(path: Path, entries: list[Entry], minor: int = 10**6) -> tuple[set[str], set[str]]:
    """What both verifiers find."""
    with book_of(path, entries, minor) as book:
        ours = {f"{finding.name}: {finding.message}" for finding in verify(book, recompute=True).findings}
        theirs = {f"{name}: {message}" for name, _, message in standalone.check(list(to_jsonl(book)))[0]}
    return ours, theirs


RUNS: dict[str, Fields] = {
    "nobody fails": {},
    "one fails": {"failed": {1: {"b": 0}}},
    "two fail together": {"failed": {2: {"b": 1, "c": 2}}},
    "one after the other": {"failed": {1: {"b": 1}, 4: {"c": 2}}},
    "an earlier step turns out bad too": {"failed": {2: {"b": 2}, 3: {"b": 1}}},
    "at the end": {"failed": {4: {"a": 3}}},
    "all fail": {"failed": {3: {"a": 0, "b": 1, "c": 2, "d": 3}}},
    "sampled": {"sampled": 3, "asked": lambda step: DRAWN[step]},
    "sampled, one fails": {"sampled": 3, "asked": lambda step: DRAWN[step], "failed": {2: {"b": 0}}},
    "sampled without audits": {"sampled": 3, "asked": lambda step: DRAWN[step], "auditors": None},
    "at once": {"sampled": 3, "asked": lambda step: DRAWN[step], "auditors": None, "settlement": "end"},
    "lump sums": {"lump_sums": {"a": "1", "b": "-1/3", "c": "-2/3"}, "failed": {1: {"b": 0}}},
    "steered": {"steering": "0.25", "openings": 0, "colluding": 3, "failed": {1: {"b": 0}}},
}


@pytest.mark.parametrize("name", RUNS)
def test_both_verifiers_derive_every_amount(tmp_path: Path, name: str) -> None:
    entries = played(S, **RUNS[name])
    assert found(tmp_path / "book.db", entries) == (set(), set())
    assert all(sum(entry.postings.values()) == 0 for entry in entries)
    assert balances(entries).get("escrow", 0) == 0
    for entry in entries:
        assert Entry.from_json(entry.to_json()) == entry


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_the_amounts_are_those_of_a_third_writing(tmp_path: Path, vector: Fields) -> None:
    given = {key: vector[key] for key in ("rounds", "sampled", "beta", "openings", "steering", "colluding", "minor")}
    given |= {key: float(vector[key]) for key in ("audit", "rechecks", "detection")}
    points = vector["delivered"]
    entries = played(
        vector["s_max"],
        lambda step, _: points[step],
        {int(at): failed for at, failed in vector["failed"].items()},
        lambda step: tuple(sorted(points[step])),
        **given,
    )
    money = [[entry.kind, dict(entry.postings)] for entry in entries if entry.postings]
    assert money == vector["entries"]
    assert found(tmp_path / "book.db", entries, vector["minor"]) == (set(), set())


def test_the_vectors_are_what_their_maker_makes() -> None:
    made = runpy.run_path(str(HERE.with_name("audited_vectors.py")))["vectors"]()
    assert json.loads(json.dumps(made)) == VECTORS


def test_a_full_run_pays_what_one_without_audits_pays() -> None:
    plain = balances(played(S, auditors=None))
    assert {a: money for a, money in balances(played(S)).items() if a != "escrow"} == plain
    assert plain == payments.contribution.amounts("0.5", S, rotation=3)


def test_what_was_agreed_is_deposited_whatever_would_be_asked_for_now() -> None:
    """A run whose terms are of an older release is resumed: its second looks at passes came on top of `audit`."""
    run, _ = run_of(S, rechecks=0.0)
    resumed = mechanisms.get(run.settings.mechanism, dataclasses.replace(run.settings, rechecks=0.1))
    (entry,) = due(run, resumed, Event("commit"))
    assert entry.inputs["deposits"] == payments.Deposit(Fraction(1, 2), 4, 0.5).deposits(S)


def test_who_fails_counts_nothing_from_that_step_on_and_loses_its_deposit() -> None:
    """By hand: b is charged like one that stayed away from step 1 on, and a, c, d share its deposit."""
    caught = balances(played(S, failed={2: {"b": 1}}))
    away = balances(played(S, lambda step, asked: {**S, "b": 0 if step > 0 else S["b"]}))
    deposit = payments.Deposit(Fraction(1, 2), 4, 0.5, rechecks=0.1).deposits(S)["b"]
    assert caught["b"] == away["b"] - deposit
    for other in "acd":
        assert abs(Fraction(caught[other] - away[other]) - Fraction(deposit, 3)) < 1


def test_rounding_stays_small_however_long_agents_are_sampled() -> None:
    """Nobody's sum is further than a few units from exact, and who was not asked is not in the entry."""
    rng, agents = random.Random(3), [f"a{k}" for k in range(7)]
    s_max = {agent: rng.randint(1, 10**7) for agent in agents}
    drawn = [tuple(sorted(rng.sample(agents, 3))) for _ in range(300)]
    entries = played(
        s_max, lambda step, asked: {a: rng.choice([0, s_max[a], rng.randint(0, s_max[a])]) for a in asked},
        asked=lambda step: drawn[step], sampled=3, rounds=300, auditors=None, minor=100, beta="0.07",
    )  # fmt: skip
    exact = dict.fromkeys(agents, Fraction(0))
    posted = dict.fromkeys(agents, 0)
    for entry in entries:
        if entry.kind != "tranche":
            continue
        points = entry.inputs["delivered"]
        assert set(entry.postings) == set(points) == set(drawn[entry.round])
        for agent in points:
            mean = Fraction(sum(points.values()) - points[agent], 2)
            exact[agent] += Fraction("0.07") * 100 / 300 * Fraction(7, 3) * (points[agent] - mean) / 10**6
            posted[agent] += entry.postings[agent]
        assert all(abs(posted[agent] - exact[agent]) < 3 for agent in agents)


# Forgeries: whoever changed an entry derived every amount again, so that only the terms and the audits tell


def fields_of(entries: list[Entry]) -> list[Fields]:
    names = [field.name for field in dataclasses.fields(Entry) if field.init]
    return [json.loads(json.dumps({name: _plain(getattr(entry, name)) for name in names})) for entry in entries]


def _plain(value: Any) -> Any:
    return {key: _plain(item) for key, item in value.items()} if hasattr(value, "items") else value


def forged(entries: list[Fields]) -> list[Entry]:
    memory: dict[str, Any] = {}
    made = []
    for fields in entries:
        fields["claims"] = tuple(fields["claims"])
        payment = payments.by_rule(fields["rule"])
        if payment is not None:
            try:
                known = json.loads(json.dumps(memory.get(payment.name, {})))
                outcomes = payment.replay({**fields, "postings": {}}, known, 10**6)
                fields["postings"] = next(outcome for outcome in outcomes if isinstance(outcome, dict))
                list(payment.replay(fields, memory.setdefault(payment.name, {}), 10**6))
            except (PaymentError, KeyError):
                pass  # it cannot be derived at all: the amounts stay
        made.append(Entry(**fields))
    return made


def one(entries: list[Fields], kind: str) -> Fields:
    return next(fields for fields in entries if fields["kind"].split("-")[0] == kind)


def drop(kind: str) -> Callable[[list[Fields]], None]:
    return lambda entries: entries.remove(one(entries, kind))


def change(kind: str, **inputs: Any) -> Callable[[list[Fields]], None]:
    def act(entries: list[Fields]) -> None:
        given = one(entries, kind)["inputs"]
        for name, value in inputs.items():
            given[name] = {**given[name], **value} if isinstance(value, dict) else value

    return act


def smaller_in_the_terms(entries: list[Fields]) -> None:
    """A friend's deposit, halved everywhere it stands."""
    one(entries, "terms")["inputs"]["terms"]["agents"]["a"]["deposit"] //= 2
    for kind in ("deposit", "refund"):
        one(entries, kind)["inputs"]["deposits"]["a"] //= 2


def forgiven(entries: list[Fields]) -> None:
    """b failed, and gets its deposit back."""
    entries.remove(one(entries, "forfeit"))
    one(entries, "refund")["inputs"]["deposits"]["b"] = one(entries, "deposit")["inputs"]["deposits"]["b"]


def framed(entries: list[Fields]) -> None:
    """c did not fail any audit."""
    forfeit = one(entries, "forfeit")["inputs"]
    forfeit["failed"]["c"] = forfeit["failed"]["b"]
    forfeit["deposits"]["c"] = one(entries, "deposit")["inputs"]["deposits"]["c"]
    del one(entries, "refund")["inputs"]["deposits"]["c"]


def without_audit(entries: list[Fields]) -> None:
    entries.remove(one(entries, "audit"))


def twice(kind: str) -> Callable[[list[Fields]], None]:
    def act(entries: list[Fields]) -> None:
        again = json.loads(json.dumps(one(entries, kind)))
        again["round"] = entries[-1]["round"] + (kind == "refund")
        entries.append(again)

    return act


def moved(kind: str, number: int) -> Callable[[list[Fields]], None]:
    def act(entries: list[Fields]) -> None:
        fields = one(entries, kind)
        entries.remove(fields)
        fields["round"] = number
        place = [k for k, other in enumerate(entries) if other["round"] <= number][-1] + 1
        entries.insert(place, fields)

    return act


def later_step(entries: list[Fields]) -> None:
    """Only the last step is taken back, though the one before it failed."""
    fields = one(entries, "clawback")
    fields["inputs"]["failed"]["b"] = 2
    fields["kind"] = "clawback-2"


FORGERIES: dict[str, Callable[[list[Fields]], None]] = {
    "no deposit": drop("deposit"),
    "a smaller deposit": change("deposit", deposits={"a": 5}),
    "a smaller deposit in the terms too": smaller_in_the_terms,
    "a deposit of another": change("deposit", deposits={"mallory": 5}),
    "deposits later": moved("deposit", 2),
    "deposits twice": twice("deposit"),
    "no forfeit": drop("forfeit"),
    "forgiven": forgiven,
    "framed": framed,
    "a forfeit without an audit": without_audit,
    "a forfeit of another step": change("forfeit", failed={"b": 0}),
    "a forfeit later": moved("forfeit", 3),
    "a forfeit twice": twice("forfeit"),
    "no claw-back": drop("clawback"),
    "a claw-back of less": later_step,
    "a claw-back of fewer points": change("clawback", taken={"b": 1}),
    "a claw-back with other scores": change("clawback", scores={"a": 0}),
    "a claw-back at another price": change("clawback", beta="7"),
    "a claw-back twice": twice("clawback"),
    "no refund of one": lambda entries: one(entries, "refund")["inputs"]["deposits"].pop("a"),
    "a refund before the end": moved("refund", 1),
    "a refund twice": twice("refund"),
    "points after the failure": change("tranche", delivered={"b": 1}),
    "a tranche without its step": lambda entries: one(entries, "tranche")["inputs"].pop("step"),
    "other scores": change("tranche", scores={"a": 1}),
    "fewer asked": change("tranche", asked=3),
    "another lump sum": change("lump", amounts={"a": "2", "b": "-4/3"}),
    "a lump sum of another": change("lump", amounts={"mallory": "0"}),
    "no lump sums in the terms": lambda entries: one(entries, "terms")["inputs"]["terms"]["payments"].pop("lump"),
    "lump sums twice": twice("lump"),
    "lump sums later": moved("lump", 2),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_was_not_agreed_or_not_audited_is_found(tmp_path: Path, name: str) -> None:
    sums = {"lump_sums": {"a": "1", "b": "-1/3", "c": "-2/3"}}
    entries = fields_of(played(S, failed={2: {"b": 1}}, **sums))
    FORGERIES[name](entries)
    ours, theirs = found(tmp_path / "forged.db", forged(entries))
    assert ours and theirs, (ours, theirs)


@pytest.mark.parametrize("kind", ["deposit", "lump"])
def test_what_is_due_at_the_beginning_cannot_be_left_out(tmp_path: Path, kind: str) -> None:
    entries = fields_of(played(S, lump_sums={"a": "1", "b": "-1"}))
    entries.remove(one(entries, kind))
    entries = [fields for fields in entries if fields["kind"] != "refund"]
    ours, theirs = found(tmp_path / "forged.db", forged(entries))
    assert {text.rstrip(".") for text in ours} == theirs == {f"terms: no {kind} came before it, which was agreed"}


def test_an_untouched_copy_is_clean(tmp_path: Path) -> None:
    entries = fields_of(played(S, failed={2: {"b": 1}}))
    assert found(tmp_path / "copy.db", forged(entries)) == (set(), set())


def test_statements_say_why(tmp_path: Path) -> None:
    entries = played(
        S, sampled=3, asked=lambda step: DRAWN[step], failed={2: {"b": 1}}, lump_sums={"a": "1", "b": "-1"}
    )
    with book_of(tmp_path / "book.db", entries) as book:
        because = {a: [line.because for line in statement(book, a).lines] for a in S}
    assert "not asked in this round" in because["d"]
    assert any("failed the audit of training round 1: 40.000002 points are taken back" in text for text in because["b"])
    assert any(text.startswith("its deposit of") and "is lost" in text for text in because["b"])
    assert any(text.startswith("its share of the deposits of b (training round 1)") for text in because["a"])
    assert "deposit given back" in because["c"] and "deposit given back" not in because["b"]
    assert "lump sum of 1, whatever is contributed" in because["a"]
    assert any(
        text.startswith("0.5 per point / 4 rounds x 4/3 x (delivered 10 - mean of the others asked")
        for text in because["a"]
    )


def test_old_ledgers_with_sampling_keep_their_rule(tmp_path: Path) -> None:
    """Terms that do not say how many were asked in the payment's own terms are of tranche/1, as they were written."""
    entries = fields_of(played(S, auditors=None))
    terms = entries[0]["inputs"]["terms"]
    terms["sampled"] = 3
    assert "sampled" not in terms["payments"]["contribution"]["terms"]
    assert found(tmp_path / "old.db", [Entry(**{**f, "claims": tuple(f["claims"])}) for f in entries]) == (set(), set())


def test_the_escrow_is_nobodys_to_be_paid_out(tmp_path: Path) -> None:
    entries = played(S)[:-1]  # before the refund
    with book_of(tmp_path / "book.db", entries) as book:
        due = payout.payout(book, "run", "run", "EUR")
        assert "escrow" in {line.account for line in due.lines}
        assert "escrow" not in {line.account for line in (*due.credits, *due.invoices)}
