"""What a ledger, and the manifest beside it, say about a run. Money is whole minor units throughout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any

from .. import payments
from ..contribution import memo
from ..entry import COMMITMENT, CORRECTION, RESERVED
from ..errors import LedgerError
from ..ledger import Entry, Ledger
from ..manifest import Points, SavedRun
from ..provenance.audits import RULE as AUDIT


@dataclass
class Round:
    """All that a round posted; `total` is what its postings sum to."""

    kinds: list[str] = field(default_factory=list)
    postings: int = 0
    moved: int = 0
    total: int = 0


@dataclass
class RunTotals:
    """One run, added up entry by entry."""

    run: str
    minor: int
    manifest: SavedRun
    received: dict[str, int] = field(default_factory=dict)
    paid: dict[str, int] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    committed: Points = field(default_factory=dict)
    committed_at: int = 0
    limits: Points = field(default_factory=dict)
    deliveries: list[tuple[int, Points]] = field(default_factory=list)
    values: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    worth: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # of each agent's updates, by round
    beta: str = ""
    audited: int = 0  # agents' training rounds that auditors made again
    auditors: set[str] = field(default_factory=set)
    failed: dict[str, int] = field(default_factory=dict)  # agent -> the training round in which it failed
    deposits: dict[str, int] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)  # the kinds of entries that moved money, without their numbers
    absent: tuple[str, ...] = ()  # in the last round of reports
    entries: tuple[int, int] = (0, 0)  # the numbers of its first and its last entry

    def add(self, entry: Entry) -> None:
        given, at = entry.inputs, self.rounds.setdefault(entry.round, Round())
        for account, amount in entry.postings.items():
            side, size = (self.received, amount) if amount > 0 else (self.paid, -amount)
            side[account] = side.get(account, 0) + size
        at.kinds.append(entry.kind)
        if any(entry.postings.values()):
            self.moving.add(entry.kind.split("-")[0])
        at.postings += len(entry.postings)
        at.moved += sum(amount for amount in entry.postings.values() if amount > 0)
        at.total += sum(entry.postings.values())
        if entry.kind == COMMITMENT:
            self.committed, self.committed_at = _points(given, "s"), entry.round
            self.limits, self.beta = _points(given, "s_max"), str(given.get("beta", self.beta))
        if entry.kind == "terms":
            self.terms = given["terms"]
        if entry.kind.startswith("reports-"):
            self.absent = tuple(given["absent"])
        if entry.rule == AUDIT:
            self._audit(given)
        if entry.kind == "deposit":
            self.deposits = dict(given["deposits"])
        if entry.rule == memo.RULE:
            for agent, found in memo.read(given).items():
                self.worth.setdefault(agent, []).append(found)
        if entry.kind in (COMMITMENT, CORRECTION, memo.KIND):
            return
        payment = payments.by_rule(entry.rule)
        told = {} if payment is None else payment.told(entry)
        if "delivered" in told:
            last = self.deliveries[-1][1] if self.deliveries else self.committed  # of those who were not asked
            self.deliveries.append((entry.round, {**last, **_points({**given, **told}, "delivered")}))
        if "valuations" in told:
            self.values.append((entry.round, dict(told["valuations"])))

    def _audit(self, given: Mapping[str, Any]) -> None:
        heard = [(item["auditor"], one["agent"]) for item in given["heard"] for one in item.get("verdicts", ())]
        self.audited += len({agent for _, agent in heard})
        self.auditors |= {auditor for auditor, _ in heard}
        self.failed |= dict.fromkeys([*given["failed"], *given["withheld"]], given["step"])

    @cached_property
    def agents(self) -> tuple[str, ...]:
        known = {*self.committed, *self.received, *self.paid, *self.manifest.first}
        return tuple(sorted(known - {*RESERVED}))

    @property
    def currency(self) -> str:
        """What money is counted in; a run that names no currency counts in units."""
        return str(self.terms.get("currency") or "units")

    def balance(self, account: str) -> int:
        return self.received.get(account, 0) - self.paid.get(account, 0)

    @property
    def first(self) -> Points:
        """What each agent contributed when it enrolled, or else what it committed."""
        return self.manifest.first or self.committed

    @property
    def last(self) -> Points:
        """What each agent contributes at the end, or else what it delivered last; empty where neither is known."""
        return self.manifest.last or (self.deliveries[-1][1] if self.deliveries else {})

    @cached_property
    def valuations(self) -> Mapping[str, int]:
        """What the model is worth to each agent at the end; empty unless every agent has said so."""
        found = self.values[-1][1] if self.values else self.manifest.valuations
        return found if self.agents and set(found) >= set(self.agents) else {}

    @cached_property
    def costs(self) -> dict[str, int]:
        """What the contributed points cost each agent, by the run's game or settings; empty where they name no cost."""
        if self.manifest.costs:
            return dict(self.manifest.costs)
        cost = self.manifest.cost
        return {agent: round(cost[agent] * self.last[agent] * self.minor) for agent in cost}

    @cached_property
    def gains(self) -> dict[str, int]:
        """What the model is worth to each agent, less what its data cost it, plus its balance; empty where unknown."""
        if not self.valuations or not self.costs:
            return {}
        return {a: self.valuations[a] - self.costs.get(a, 0) + self.balance(a) for a in self.agents}

    @property
    def unpaid(self) -> bool:
        """Whether no agent paid or received anything."""
        return not any(self.paid.get(a) or self.received.get(a) for a in self.agents)

    @property
    def welfare(self) -> int | None:
        return sum(self.valuations[agent] for agent in self.agents) if self.valuations else None

    @property
    def net(self) -> int | None:
        """Welfare less what the data cost."""
        return None if self.welfare is None or not self.costs else self.welfare - sum(self.costs.values())


def read(book: Ledger, entries: int, manifests: Mapping[str, SavedRun]) -> list[RunTotals]:
    """The figures of every run in the ledger's first `entries`, in the order the runs began."""
    found: dict[str, RunTotals] = {}
    for record in islice(book.entries(), entries):  # a run may be writing more: they are not verified
        run = record.entry.run
        if run not in found:
            found[run] = RunTotals(run, book.minor, manifests.get(run, SavedRun()))
        found[run].entries = (found[run].entries[0] or record.seq, record.seq)
        try:
            found[run].add(record.entry)
        except (TypeError, AttributeError, ValueError, KeyError, ZeroDivisionError) as error:
            raise LedgerError(f"entry {record.seq}: its inputs do not fit a {record.entry.kind}: {error}.") from error
    return list(found.values())


def _points(given: Mapping[str, Any], name: str) -> Points:
    scale = given.get("scale", 1)
    return {agent: Fraction(points, scale) for agent, points in given.get(name, {}).items()}
