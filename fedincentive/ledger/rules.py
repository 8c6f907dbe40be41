"""The entries the Center writes, and the way back: each rule's amounts derived again from its inputs.

An entry's ties rotate by its own round, so nobody can choose whom the odd unit goes to.

| rule | inputs | postings |
|---|---|---|
| commitment/1 | beta, s, s_max, scale, data | none: a memo of what the agents committed |
| contribution/1 | beta, s, scale | beta (n s_i - S)/(n - 1) |
| tranche/1 | beta, rounds, delivered, total, scale | cumulative payment on `total`, less the run's earlier tranches |
| truthful/1 | valuations, previous, h, pivots, phi, fine, references, tolerance, failed | p*_i, treasury |
| reversal/1 | corrects, hash, reason | the corrected entry's, with the other sign |
| transfer/1 | corrects, hash, reason, amounts | amounts, as a person decided |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from .. import payments
from ..entry import BALANCED, Entry
from ..errors import FedIncentiveError
from ..payments import MINOR, SCALE
from .store import REVERSAL, Record, difference

Amounts = dict[str, int]
Problem = tuple[str, str]  # the finding's name and message


def settlement(
    run: str,
    round: int,
    *,
    beta: Fraction | int | str,
    s: Mapping[str, int],
    scale: int = SCALE,
    minor: int = MINOR,
) -> Entry:
    """The contribution payment in one sum.

    >>> settlement("demo", 0, beta="0.5", s={"a": 1, "b": 3}, scale=1).postings
    {'a': -1000000, 'b': 1000000}
    """
    amounts = payments.contribution(beta, s, scale=scale, minor=minor, rotation=round)
    inputs = {"beta": str(payments.rate("beta", beta)), "s": s, "scale": scale}
    return Entry(run, round, "settlement", "contribution/1", inputs, amounts, (BALANCED,))


def tranche(
    run: str,
    round: int,
    *,
    beta: Fraction | int | str,
    rounds: int,
    delivered: Mapping[str, int],
    total: Mapping[str, int],
    posted: Mapping[str, int],
    scale: int = SCALE,
    minor: int = MINOR,
    kind: str = "tranche",
) -> Entry:
    """One training round's payment on the points delivered in it.

    `total` is all delivered so far including this round, `posted` what the run's earlier tranches paid.
    A settlement at the end is one tranche with `delivered` equal to `total` and kind "settlement".
    """
    amounts = payments.tranche(beta, rounds, total, posted, scale=scale, minor=minor, rotation=round)
    inputs = {
        "beta": str(payments.rate("beta", beta)),
        "rounds": rounds,
        "scale": scale,
        "delivered": delivered,
        "total": total,
    }
    return Entry(run, round, kind, "tranche/1", inputs, amounts, (BALANCED,))


def truthful(
    run: str,
    round: int,
    *,
    valuations: Mapping[str, int],
    previous: Mapping[str, int] | None = None,
    h: str = "previous",
    pivots: Mapping[str, int] | None = None,
    phi: str = "none",
    fine: int = 0,
    references: Mapping[str, int] | None = None,
    tolerance: int = 0,
    failed: Mapping[str, str] | None = None,
    minor: int = MINOR,
) -> Entry:
    """The truthful payment with the treasury on the other side; all amounts in minor units.

    `fine` is Gamma, `references` the oracle's values, `failed` names the audits an agent did not pass.
    """
    inputs: dict[str, Any] = {"valuations": valuations, "h": h, "phi": phi, "fine": fine, "tolerance": tolerance}
    optional = {"previous": previous, "pivots": pivots, "references": references, "failed": failed}
    inputs.update({name: value for name, value in optional.items() if value is not None})
    return Entry(run, round, "truthful", "truthful/1", inputs, _truthful(inputs, minor))


def reversal(record: Record, round: int, reason: str) -> Entry:
    """A correction that takes a whole entry back."""
    inputs = {"corrects": record.seq, "hash": record.hash, "reason": reason}
    postings = {account: -amount for account, amount in record.entry.postings.items()}
    return Entry(record.entry.run, round, "correction", REVERSAL, inputs, postings)


def transfer(record: Record, round: int, reason: str, amounts: Mapping[str, int]) -> Entry:
    """A correction by amounts that a person decided; the reason stands beside them for ever."""
    inputs = {"corrects": record.seq, "hash": record.hash, "reason": reason, "amounts": amounts}
    return Entry(record.entry.run, round, "correction", "transfer/1", inputs, amounts)


class Replay:
    """Derives the amounts of a ledger again, entry by entry in chain order.

    `lookup(seq)` gives the body of an earlier entry, for the corrections that point at one.
    """

    def __init__(self, minor: int, lookup: Callable[[int], Mapping[str, Any] | None]) -> None:
        self.minor = minor
        self._lookup = lookup
        self._terms: dict[str, tuple[str, int, int]] = {}
        self._totals: dict[str, Amounts] = {}
        self._posted: dict[str, Amounts] = {}
        self._valued: dict[str, Amounts] = {}
        self._reversed: set[int] = set()
        self._rules: dict[str, Callable[[Mapping[str, Any]], Iterator[Problem | Amounts]]] = {
            "commitment/1": self._commitment,
            "contribution/1": self._contribution,
            "tranche/1": self._tranche,
            "truthful/1": self._truthful,
            REVERSAL: self._reversal,
            "transfer/1": self._transfer,
        }

    def problems(self, body: Mapping[str, Any]) -> Iterator[Problem]:
        """Everything in which the entry differs from what its rule makes of its inputs and the run so far."""
        rule = self._rules.get(body["rule"])
        if rule is None:
            yield "rule", f"the rule {body['rule']!r} is unknown here, so its amounts cannot be derived."
            return
        try:
            for outcome in rule(body):
                if isinstance(outcome, dict):
                    yield from _compare(outcome, body["postings"])
                else:
                    yield outcome
        except (FedIncentiveError, KeyError, TypeError, AttributeError, ValueError) as error:
            yield "recompute", f"the inputs do not fit the rule {body['rule']}: {type(error).__name__} {error}"

    def _commitment(self, body: Mapping[str, Any]) -> Iterator[Problem | Amounts]:
        yield {}

    def _contribution(self, body: Mapping[str, Any]) -> Iterator[Problem | Amounts]:
        given = body["inputs"]
        yield payments.contribution(
            given["beta"], given["s"], scale=given["scale"], minor=self.minor, rotation=body["round"]
        )

    def _tranche(self, body: Mapping[str, Any]) -> Iterator[Problem | Amounts]:
        run, given = body["run"], body["inputs"]
        terms = (given["beta"], given["rounds"], given["scale"])
        if self._terms.setdefault(run, terms) != terms:
            yield "terms", f"(beta, rounds, scale) are {terms}, but the run's first tranche had {self._terms[run]}."
        totals, posted = self._totals.setdefault(run, {}), self._posted.setdefault(run, {})
        for agent, points in given["delivered"].items():
            totals[agent] = totals.get(agent, 0) + points
        if totals != given["total"]:
            agent, told, were = difference("", given["total"], totals)
            yield "total", f"the total of {agent!r} is given as {told}, but {were} were delivered so far."
        try:
            yield payments.tranche(
                given["beta"], given["rounds"], totals, posted, scale=given["scale"], minor=self.minor,
                rotation=body["round"],
            )  # fmt: skip
        finally:
            for agent, amount in body["postings"].items():
                posted[agent] = posted.get(agent, 0) + amount

    def _truthful(self, body: Mapping[str, Any]) -> Iterator[Problem | Amounts]:
        given, last = body["inputs"], self._valued.get(body["run"])
        before = given.get("previous", {})
        if given["h"] == "previous" and last is not None and before != last:
            agent, told, was = difference("", before, last)
            yield "previous", f"the last valuation of {agent!r} is given as {told}, it was {was}."
        self._valued[body["run"]] = given["valuations"]
        yield _truthful(given, self.minor)

    def _reversal(self, body: Mapping[str, Any]) -> Iterator[Problem | Amounts]:
        target = self._target(body)
        if body["inputs"]["corrects"] in self._reversed:
            yield "recompute", f"entry {body['inputs']['corrects']} was reversed before."
        self._reversed.add(body["inputs"]["corrects"])
        yield {account: -amount for account, amount in target["postings"].items()}

    def _transfer(self, body: Mapping[str, Any]) -> Iterator[Problem | Amounts]:
        self._target(body)
        yield body["inputs"]["amounts"]

    def _target(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        target = self._lookup(body["inputs"]["corrects"])
        if target is None or target["run"] != body["run"]:
            raise ValueError(f"entry {body['inputs']['corrects']}, which it corrects, is not an entry of its run")
        return target


def _truthful(given: Mapping[str, Any], minor: int) -> Amounts:
    fined = payments.fines(
        given["phi"], given["fine"], given["valuations"], given.get("references", {}),
        tolerance=given["tolerance"], failed=given.get("failed"), minor=minor,
    )  # fmt: skip
    return payments.truthful(given["valuations"], given.get("previous"), fined, given["h"], pivots=given.get("pivots"))


def _compare(derived: Mapping[str, int], posted: Mapping[str, int]) -> Iterator[Problem]:
    if derived == posted:
        return
    for account in sorted({*derived, *posted}):
        if derived.get(account) != posted.get(account):
            yield (
                "recompute",
                f"{account!r} has {posted.get(account, 'no posting')}, its inputs give {derived.get(account, 'none')}.",
            )
