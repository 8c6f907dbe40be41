"""The way back: each entry's amounts derived again, by the payment whose rule it names.

Beside the payments' own rules there are three: a commitment is a memo and posts nothing (commitment/1), a reversal
posts the corrected entry with the other sign (reversal/1), a transfer what a person decided (transfer/1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import payments
from ..errors import FedIncentiveError
from ..payments import Amounts, Payment
from ..payments.base import Body, Problem
from .corrections import TRANSFER
from .store import REVERSAL

COMMITMENT = "commitment/1"


class Replay:
    """Derives the amounts of a ledger again, entry by entry in chain order.

    `lookup(seq)` gives the body of an earlier entry, for the corrections that point at one.
    """

    def __init__(self, minor: int, lookup: Callable[[int], Mapping[str, Any] | None]) -> None:
        self.minor = minor
        self._lookup = lookup
        self._memory: dict[tuple[str, str], dict[str, Any]] = {}  # of each run and payment
        self._payments: dict[str, type[Payment] | None] = {}  # by rule; asking for an unknown one takes long
        self._reversed: set[int] = set()
        self._others: dict[str, Callable[[Body], Iterator[Problem | Amounts]]] = {
            COMMITMENT: self._commitment,
            REVERSAL: self._reversal,
            TRANSFER: self._transfer,
        }

    def problems(self, body: Body) -> Iterator[Problem]:
        """Everything in which the entry differs from what its rule makes of its inputs and the run so far."""
        derive = self._others.get(body["rule"]) or self._payment(body)
        if derive is None:
            yield "rule", f"the rule {body['rule']!r} is unknown here, so its amounts cannot be derived."
            return
        try:
            for outcome in derive(body):
                if isinstance(outcome, dict):
                    yield from _compare(outcome, body["postings"])
                else:
                    yield outcome
        except (FedIncentiveError, KeyError, TypeError, AttributeError, ValueError) as error:
            yield "recompute", f"the inputs do not fit the rule {body['rule']}: {type(error).__name__} {error}"

    def _payment(self, body: Body) -> Callable[[Body], Iterator[Problem | Amounts]] | None:
        rule = body["rule"]
        if rule not in self._payments:
            self._payments[rule] = payments.by_rule(rule)
        payment = self._payments[rule]
        if payment is None:
            return None
        memory = self._memory.setdefault((body["run"], payment.name), {})
        return lambda entry: payment.replay(entry, memory, self.minor)

    def _commitment(self, body: Body) -> Iterator[Problem | Amounts]:
        yield {}

    def _reversal(self, body: Body) -> Iterator[Problem | Amounts]:
        target = self._target(body)
        if body["inputs"]["corrects"] in self._reversed:
            yield "recompute", f"entry {body['inputs']['corrects']} was reversed before."
        self._reversed.add(body["inputs"]["corrects"])
        yield {account: -amount for account, amount in target["postings"].items()}

    def _transfer(self, body: Body) -> Iterator[Problem | Amounts]:
        self._target(body)
        yield body["inputs"]["amounts"]

    def _target(self, body: Body) -> Mapping[str, Any]:
        target = self._lookup(body["inputs"]["corrects"])
        if target is None or target["run"] != body["run"]:
            raise ValueError(f"entry {body['inputs']['corrects']}, which it corrects, is not an entry of its run")
        return target


def _compare(derived: Mapping[str, int], posted: Mapping[str, int]) -> Iterator[Problem]:
    if derived == posted:
        return
    for account in sorted({*derived, *posted}):
        if derived.get(account) != posted.get(account):
            yield (
                "recompute",
                f"{account!r} has {posted.get(account, 'no posting')}, its inputs give {derived.get(account, 'none')}.",
            )
