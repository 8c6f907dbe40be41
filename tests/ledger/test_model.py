"""A ledger behaves like a dictionary of entries that only grows, whatever is done to it in whatever order."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from entries import settlement, tranche
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedincentive import ledger
from fedincentive.errors import LedgerConflict, LedgerError
from fedincentive.ledger import Entry, Record, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # thousands of commits: the disk is not what is tested here
AGENTS = ("ann", "bob", "\u00e9va")
points = st.fixed_dictionaries({agent: st.integers(0, 9) for agent in AGENTS})


class LedgerModel(RuleBasedStateMachine):
    """The model: keys to bodies, and the list of bodies in order."""

    @initialize()
    def start(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY))
        self.path = self.directory / "ledger.db"
        self.book = ledger.open(self.path, minor=10)
        self.model: dict[tuple, str] = {}
        self.order: list[Entry] = []
        self.hashes: list[str] = []
        self.checkpoints = [self.book.head()]

    def teardown(self) -> None:
        if hasattr(self, "book"):
            self.book.close()
            shutil.rmtree(self.directory)

    def append(self, entry: Entry) -> None:
        key = (entry.run, entry.round, entry.kind, entry.corrects)
        if self.model.setdefault(key, entry.body) != entry.body:
            try:
                self.book.append(entry)
            except LedgerConflict as error:
                old, new = json.loads(self.model[key]), json.loads(entry.body)
                for name in error.field.split("."):
                    old, new = old.get(name), new.get(name)
                assert old != new
                return
            raise AssertionError("a conflict was accepted")
        receipt = self.book.append(entry)
        assert receipt.created == (entry not in self.order)
        if receipt.created:
            self.order.append(entry)
            self.hashes.append(receipt.hash)
        assert self.order[receipt.seq - 1] == entry
        assert self.hashes[receipt.seq - 1] == receipt.hash

    @rule(run=st.sampled_from(["one", "two"]), round=st.integers(0, 4), s=points)
    def settle(self, run: str, round: int, s: dict[str, int]) -> None:
        self.append(settlement(run, round, beta="1/3", s=s, scale=1, minor=10))

    @rule(run=st.sampled_from(["one", "two"]), delivered=points)
    def pay_tranche(self, run: str, delivered: dict[str, int]) -> None:
        mine = [entry for entry in self.order if entry.kind == "tranche" and entry.run == run]
        total = {a: delivered[a] + (mine[-1].inputs["total"][a] if mine else 0) for a in AGENTS}
        posted = {a: sum(entry.postings[a] for entry in mine) for a in AGENTS}
        self.append(
            tranche(
                run, len(mine), beta="2", rounds=7, delivered=delivered, total=total, posted=posted, scale=1, minor=10
            )
        )

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        self.append(data.draw(st.sampled_from(self.order)))

    @precondition(lambda self: self.order)
    @rule(data=st.data(), round=st.integers(0, 2), amount=st.integers(-5, 5))
    def correct(self, data: st.DataObject, round: int, amount: int) -> None:
        seq = data.draw(st.integers(1, len(self.order)))
        record = Record(seq, self.hashes[seq - 1], self.order[seq - 1])
        self.append(ledger.transfer(record, round, "agreed", {"ann": amount, "treasury": -amount}))

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def reverse(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(1, len(self.order)))
        record = Record(seq, self.hashes[seq - 1], self.order[seq - 1])
        entry = ledger.reversal(record, 100 + len(self.order), "wrong")
        if any(e.rule == "reversal/1" and e.corrects == seq for e in self.order):
            try:
                self.book.append(entry)
            except LedgerError as error:
                assert "reversed already" in str(error)
                return
            raise AssertionError("an entry was reversed twice")
        self.append(entry)

    @rule()
    def reopen(self) -> None:
        self.checkpoints.append(self.book.head())
        self.book.close()
        self.book = ledger.open(self.path, minor=10)

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "book"):
            return
        assert [record.entry for record in self.book.entries()] == self.order
        assert [record.hash for record in self.book.entries()] == self.hashes
        balances: dict[str, int] = {}
        for entry in self.order:
            assert sum(entry.postings.values()) == 0
            for account, amount in entry.postings.items():
                balances[account] = balances.get(account, 0) + amount
        assert self.book.balances() == balances
        result = verify(self.book, recompute=True, checkpoints=self.checkpoints)
        assert result.clean, result.findings
        findings, end = standalone.check(list(to_jsonl(self.book)), [str(c) for c in self.checkpoints])
        assert findings == []
        assert end == str(self.book.head())


LedgerModel.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
TestLedgerModel = LedgerModel.TestCase
