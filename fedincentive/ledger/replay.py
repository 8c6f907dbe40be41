"""The way back: each entry's amounts derived again, by the payment whose rule it names, and held to the run's terms.

Beside the payments' own rules there are memos, which post nothing: terms, a commitment, signed reports, a dispute, the
end of a period, a payout that was settled, the audits of a step, what updates were worth, a changed key (terms/1,
commitment/1, reports/1, dispute/1, close/1, payout/1, audit/3, worth/1, key/1). A reversal posts the corrected entry
with the other sign (reversal/1, with signatures reversal/2), a transfer what a person decided (transfer/1, transfer/2).
The terms are a run's first entry. They fix who is paid, by which rules, at which price and how often; a run of an older
release has none, and is held to its commitment as far as that goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from .. import payments, terms
from ..contribution import memo
from ..entry import COMMITMENT, CORRECTION, ESCROW
from ..errors import FedIncentiveError
from ..payments import TREASURY, Amounts, Payment
from ..payments.base import Body, Problem, points_within
from ..provenance import audits, statements
from ..provenance.statements import KeysInForce
from ..terms import Terms
from . import claims, disputes, payout, periods
from .claims import Claims
from .corrections import SIGNED_TRANSFER, TRANSFER, wrong_signatures
from .store import REVERSAL, SIGNED_REVERSAL

COMMITTED = "commitment/1"
TRAINED = f"{claims.PREFIX}train"
FOLLOWING = ("clawback/1", "forfeit/1")  # their kinds end with the first step that failed
REVERSALS, TRANSFERS = (REVERSAL, SIGNED_REVERSAL), (TRANSFER, SIGNED_TRANSFER)
KIND_OF = {
    terms.RULE: terms.KIND,
    COMMITTED: COMMITMENT,
    memo.RULE: memo.KIND,
    disputes.RULE: disputes.KIND,
    periods.RULE: periods.KIND,
    payout.RULE: payout.KIND,
    **dict.fromkeys((*REVERSALS, *TRANSFERS), CORRECTION),
}
LATER = {
    disputes.KIND,
    periods.KIND,
    payout.KIND,
}  # memos that may come after later rounds; their kinds end with a digest of what they are about


@dataclass
class RunSoFar:
    """What is known of a run when its next entry is read."""

    terms: Terms | None = None
    first: int | None = None  # the round in which training began
    last: int = 0  # the round of its last entry
    entries: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # entries of each kind
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each payment
    agreed: dict[str, Payment] = field(default_factory=dict)
    claims: Claims | None = None  # of a signed run
    failed: dict[str, int] = field(default_factory=dict)  # the first step whose audit an agent did not pass
    followed: dict[str, dict[str, int]] = field(default_factory=dict)  # by kind of entry: the failures it followed from
    failed_in: int = 0  # the round of the last audit that failed
    left_out: set[str] = field(default_factory=set)  # kinds of entries that were found to be missing
    valued: int | None = None  # the step whose updates were valued last

    @property
    def held(self) -> dict[str, int]:
        """The deposits in the escrow."""
        return self.memory.get("deposit", {}).get("held", {})

    @property
    def settled(self) -> bool:
        """Whether an audited run has ended all its audits."""
        return self.claims is not None and self.claims.audits is not None and self.claims.audits.settled

    def every_step(self) -> list[str]:
        """The kinds of entries that each training round brings."""
        assert self.terms is not None
        return [kind for payment in self.agreed.values() for kind in payment.every_step(self.terms)]


class Replay:
    """Derives the amounts of a ledger again, entry by entry in chain order.

    `lookup(seq)` gives the body of an earlier entry, for the corrections that point at one.
    """

    def __init__(self, minor: int, lookup: Callable[[int], Mapping[str, Any] | None]) -> None:
        self.minor = minor
        self._lookup = lookup
        self._runs: dict[str, RunSoFar] = {}
        self._payments: dict[str, type[Payment] | None] = {}  # by rule; asking for an unknown one takes long
        self._reversed: set[int] = set()
        self._closed = 0  # entries in closed periods
        self._countersigned = 0  # signatures under corrections and disputes
        self._others: dict[str, Callable[[Body], Iterator[Problem | Amounts]]] = {
            terms.RULE: self._terms,
            COMMITTED: self._commitment,
            claims.RULE: self._reports,
            **dict.fromkeys(audits.RULES, self._audit),
            memo.RULE: self._worth,
            disputes.RULE: self._dispute,
            periods.RULE: self._period,
            payout.RULE: self._payout,
            statements.RULE: self._key_change,
            **dict.fromkeys(REVERSALS, self._reversal),
            **dict.fromkeys(TRANSFERS, self._transfer),
        }

    def problems(self, body: Body) -> Iterator[Problem]:
        """Everything in which the entry differs from what its rule makes of its inputs and the run so far."""
        derive = self._others.get(body["rule"]) or self._payment(body)
        if derive is None:
            yield "rule", f"the rule {body['rule']!r} is unknown here, so its amounts cannot be derived."
            return
        run = self._runs.setdefault(body["run"], RunSoFar())
        try:
            for outcome in derive(body):
                if isinstance(outcome, dict):
                    yield from _compare(outcome, body["postings"])
                else:
                    yield outcome
            yield from ((name, message.rstrip(".") + ".") for name, message in self._held(run, body))
        except (FedIncentiveError, KeyError, TypeError, AttributeError, ValueError) as error:
            yield "recompute", f"the inputs do not fit the rule {body['rule']}: {type(error).__name__} {error}"

    def _payment(self, body: Body) -> Callable[[Body], Iterator[Problem | Amounts]] | None:
        rule = body["rule"]
        if rule not in self._payments:
            self._payments[rule] = payments.by_rule(rule)
        payment = self._payments[rule]
        if payment is None:
            return None
        memory = self._runs.setdefault(body["run"], RunSoFar()).memory.setdefault(payment.name, {})
        return lambda entry: payment.replay(entry, memory, self.minor)

    # What the run's terms allow

    @property
    def unbound(self) -> tuple[str, ...]:
        """The runs without terms: their amounts follow from their inputs, but nobody knows what was agreed."""
        return tuple(name for name, run in self._played() if run.terms is None or not run.terms.bound)

    @property
    def unsigned(self) -> tuple[str, ...]:
        """The runs in which nobody signed what is said in its name."""
        return tuple(name for name, run in self._played() if run.claims is None)

    @property
    def said(self) -> tuple[str, ...]:
        """The unsigned runs that ask a sample: nothing in the ledger shows that it was drawn."""
        sampled = ((n, run.terms) for n, run in self._played() if run.claims is None and run.terms is not None)
        return tuple(name for name, agreed in sampled if (agreed.sampled or len(agreed.s_max)) < len(agreed.s_max))

    @property
    def unfinished(self) -> dict[str, str]:
        """The runs whose last entries are not there, and what they lack: they go on, stopped, or were cut."""
        found = {}
        for name, run in self._played():
            try:
                found[name] = _unfinished(run)
            except (TypeError, ValueError, KeyError, AttributeError):
                found[name] = "terms that cannot be read"  # which was found
        return {name: what for name, what in found.items() if what}

    def ended(self) -> Iterator[Problem]:
        """What is wrong with a run as a whole, when all entries were read."""
        for name, run in self._runs.items():
            if run.settled and (held := sum(run.held.values())):
                yield "terms", f"run {name!r} has settled all its audits, and its escrow still holds {held}: no refund."

    def _played(self) -> Iterator[tuple[str, RunSoFar]]:
        """The runs that were played; the ledger's owner writes memos under names of its own."""
        return ((n, run) for n, run in self._runs.items() if set(run.counts) - {periods.KIND, payout.KIND})

    @property
    def signatures(self) -> int:
        """How many signatures were checked."""
        agents = sum(run.claims.signatures for run in self._runs.values() if run.claims is not None)
        return agents + self._countersigned

    def _held(self, run: RunSoFar, body: Body) -> Iterator[Problem]:
        """In what an entry differs from the terms: its place, kind, rule, accounts, and the payment's own terms."""
        kind, rule, number = body["kind"], body["rule"], body["round"]
        if (memo := kind.partition("-")[0]) in LATER:
            kind = memo
        prefixes = {
            claims.PREFIX: (claims.RULE,),
            audits.PREFIX: audits.RULES,
            statements.PREFIX: (statements.RULE,),
        }
        if (rule in KIND_OF and kind != KIND_OF[rule]) or any(
            (rule in rules) != kind.startswith(prefix) for prefix, rules in prefixes.items()
        ):
            yield "kind", f"a {kind} cannot have the rule {rule}"
        payment = self._payments.get(rule)
        if rule in FOLLOWING and payment is not None and (plain := kind.partition("-")[0]) in payment.kinds:
            kind = plain  # what follows from audits ends with the first step that failed
        before = run.counts.get(kind, 0)
        run.counts[kind], run.entries = before + 1, run.entries + 1
        if payment is not None and kind not in payment.kinds:
            yield "kind", f"a {kind} cannot have the rule {rule}"
        agreed = run.terms
        if agreed is None or rule == terms.RULE:
            return
        if agreed.bound and kind == CORRECTION and not str(body["inputs"].get("reason", "")).strip():
            yield "terms", "a correction needs a reason"
        if agreed.bound and kind != CORRECTION and kind not in LATER:
            if number < run.last:
                yield "order", f"it is of round {number}, an entry of round {run.last} came before it"
            run.last = max(run.last, number)
            yield from (("terms", wrong) for wrong in _left_out(run, kind, number))
        if agreed.bound and run.failed:
            yield from (("terms", wrong) for wrong in _unfollowed(run, body))
        names = set(agreed.s_max) | {TREASURY, *([ESCROW] if agreed.deposits else [])}
        if agreed.s_max and (strangers := sorted(set(body["postings"]) - names)):
            yield "terms", f"{strangers[0]!r} has a posting but is not in the run's terms"
        if payment is None or kind not in payment.kinds:
            return
        if not agreed.bound:
            yield from (("terms", wrong) for wrong in payment.as_committed(body, agreed))
        elif payment.name not in run.agreed:
            yield "terms", f"the payment {payment.name!r} was not agreed"
        else:
            own = run.agreed[payment.name]
            yield from (("terms", wrong) for wrong in self._in_time(run, own, kind, body, before))
            yield from (("terms", wrong) for wrong in own.against(body, agreed))
            if own.schedule().get(kind) not in ("commit", None):
                yield from (("terms", wrong) for wrong in _unpaid(run))
            told = payment.told(SimpleNamespace(**body))  # type: ignore[arg-type]
            if run.claims is not None and (told or own.schedule().get(kind) not in ("commit", "audit", "over")):
                yield from run.claims.against(body, told)

    def _fail(self, run: RunSoFar, failed: Mapping[str, int], number: int) -> None:
        """An entry of this round says that these agents failed the audits of these steps."""
        for agent, step in failed.items():
            run.failed[agent] = min(step, run.failed.get(agent, step))
        run.failed_in = number if failed else run.failed_in
        if run.claims is not None:
            run.claims.failed = run.failed

    def _in_time(self, run: RunSoFar, payment: Payment, kind: str, body: Body, before: int) -> Iterator[str]:
        """Whether an entry comes when it is due: once in each training round, or once at the beginning or the end."""
        schedule = payment.schedule()
        when, rounds = schedule.get(kind), run.terms.rounds if run.terms else None
        if not schedule or rounds is None:
            return
        if when is None:
            yield f"a {kind} was not agreed"
            return
        if run.first is None:
            yield "it comes before the commitments"
            return
        if when == "audit":
            yield from _follows(run, kind, body)
            return
        trail = run.claims.audits if run.claims is not None else None
        if when == "over" and trail is not None and not before:
            if not trail.settled:
                yield "it comes before all audits are settled"
            return
        if when == "over" and not before and body["round"] >= run.first + rounds - 1:
            return
        due = run.first + {"step": before, "end": rounds - 1, "commit": 0, "over": rounds}[when]
        if before >= (rounds if when == "step" else 1):
            yield f"{before} entries of this kind came before it, agreed are {rounds if when == 'step' else 1}"
        elif body["round"] != due:
            yield f"it is of round {body['round']}, due was round {due}"

    # The rules that are no payment's

    def _terms(self, body: Body) -> Iterator[Problem | Amounts]:
        run, given = self._runs.setdefault(body["run"], RunSoFar()), body["inputs"]["terms"]
        if run.entries:
            yield "terms", "terms come once, before all other entries of a run."
        if given["minor"] != self.minor:
            yield "terms", f"they count {given['minor']} minor units per unit, this ledger {self.minor}."
        run.terms = Terms.read(given)
        if run.terms.center is not None:
            run.claims = Claims(body["run"], run.terms)
            yield from run.claims.accepted(body)
        for name, agreed in given["payments"].items():
            found = next(filter(None, map(payments.by_rule, agreed["rules"])), None)
            if found is not None:
                run.agreed[name] = found.agreed(agreed["terms"])
        yield {}

    def _commitment(self, body: Body) -> Iterator[Problem | Amounts]:
        run, given = self._runs.setdefault(body["run"], RunSoFar()), body["inputs"]
        if run.first is not None:
            yield "terms", "the commitments come once."
        run.first = body["round"]
        if run.terms is None:
            run.terms = Terms.of_commitment(given)
        elif run.terms.bound:
            if given["s_max"] != run.terms.s_max or given["scale"] != run.terms.scale:
                yield "terms", "its s_max or scale are not those of the run's terms."
            price = sum((payment.price for payment in run.agreed.values()), start=Fraction(0))
            if len(run.agreed) == len(run.terms.payments) and given["beta"] != str(price):
                yield "terms", f"its beta is {given['beta']!r}, agreed is '{price}'."
            yield from (("terms", f"{wrong}.") for wrong in points_within(given["s"], run.terms.s_max, "points"))
        if run.claims is not None:
            yield from run.claims.committed(body)
        yield {}

    def _reports(self, body: Body) -> Iterator[Problem | Amounts]:
        run = self._runs.setdefault(body["run"], RunSoFar())
        if run.claims is None:
            yield "signature", "there are signed reports, but the run's terms name no keys."
        else:
            yield from run.claims.take(body)
        yield {}

    def _key_change(self, body: Body) -> Iterator[Problem | Amounts]:
        run = self._runs.setdefault(body["run"], RunSoFar())
        if run.claims is None:
            yield "signature", "a key changes, but the run's terms name no keys."
        else:
            yield from run.claims.changed(body)
        yield {}

    def _audit(self, body: Body) -> Iterator[Problem | Amounts]:
        run = self._runs.setdefault(body["run"], RunSoFar())
        if run.claims is None:
            yield "audit", "there are audits, but the run's terms name no keys."
        else:
            failed = yield from run.claims.audited(body)
            self._fail(run, failed, body["round"])
        yield {}

    def _worth(self, body: Body) -> Iterator[Problem | Amounts]:
        """What the center measured is its word; whom it is about and when is not."""
        run, given = self._runs.setdefault(body["run"], RunSoFar()), body["inputs"]
        agents = run.terms.s_max if run.terms is not None and run.terms.bound else None
        yield from (("terms", f"{wrong}.") for wrong in memo.wrong(given, agents, run.valued))
        run.valued = given["step"]
        yield {}

    def _dispute(self, body: Body) -> Iterator[Problem | Amounts]:
        run, given = self._runs.setdefault(body["run"], RunSoFar()), body["inputs"]
        if run.terms is None:
            yield "signature", "there is a dispute, but the run has no terms."
        else:
            disputed = self._lookup(given["disputes"])
            keys = run.claims.keys if run.claims is not None else KeysInForce({})
            found = disputes.wrong_dispute(given, run.terms, body["run"], disputed, keys)
            self._countersigned += 1
            yield from (("signature", f"{wrong}.") for wrong in found)
        yield {}

    def _period(self, body: Body) -> Iterator[Problem | Amounts]:
        given = body["inputs"]
        if (
            given["after"] != self._closed
            or given["size"] <= self._closed
            or body["run"] != f"{periods.RUN}{given['period']}"
        ):
            yield "terms", f"a period begins after entry {self._closed}, where the one before it ended."
        periods.note_of(given)  # `verify` holds it to the entries
        self._closed = given["size"]
        yield {}

    def _payout(self, body: Body) -> Iterator[Problem | Amounts]:
        """That it was settled is the payer's word."""
        given = body["inputs"]
        if body["run"] != (f"{periods.RUN}{given['of']}" if given["by"] == "period" else given["of"]):
            yield "terms", f"it is of {given['by']} {given['of']!r} but stands in run {body['run']!r}."
        if any(type(units) is not int for units in given["paid"].values()) or set(given["paid"]) & set(given["open"]):
            yield "recompute", "what was paid and what is open cannot be told apart."
        yield {}

    def _signed(self, body: Body) -> Iterator[Problem]:
        """A correction has two signatures, in runs with keys always."""
        run = self._runs.setdefault(body["run"], RunSoFar())
        if body["rule"] in (SIGNED_REVERSAL, SIGNED_TRANSFER):
            self._countersigned += 2
            yield from (("signature", wrong) for wrong in wrong_signatures(body))
        elif run.claims is not None:
            yield "signature", "a correction in a signed run needs the signatures of an author and an approver."

    def _reversal(self, body: Body) -> Iterator[Problem | Amounts]:
        yield from self._signed(body)
        target = self._target(body)
        if body["inputs"]["corrects"] in self._reversed:
            yield "recompute", f"entry {body['inputs']['corrects']} was reversed before."
        self._reversed.add(body["inputs"]["corrects"])
        yield {account: -amount for account, amount in target["postings"].items()}

    def _transfer(self, body: Body) -> Iterator[Problem | Amounts]:
        yield from self._signed(body)
        self._target(body)
        yield body["inputs"]["amounts"]

    def _target(self, body: Body) -> Mapping[str, Any]:
        target = self._lookup(body["inputs"]["corrects"])
        if target is None or target["run"] != body["run"]:
            raise ValueError(f"entry {body['inputs']['corrects']}, which it corrects, is not an entry of its run")
        return target


def _follows(run: RunSoFar, kind: str, body: Body) -> Iterator[str]:
    """Whether an entry takes up the audits that failed since the last one of its kind, all of them and no others."""
    before, given = run.followed.setdefault(kind, {}), body["inputs"]["failed"]
    once = kind == "forfeit"
    new = {a: step for a, step in run.failed.items() if a not in before or (not once and step < before[a])}
    if given and body["kind"] != f"{kind}-{min(given.values())}":
        yield f"its kind is {body['kind']}, it follows from step {min(given.values())}"
    for agent in sorted({*given, *new}):
        if given.get(agent) != new.get(agent):
            yield f"{agent!r} failed {_step(given.get(agent))} by it, its audits say {_step(new.get(agent))}"
    if body["round"] != run.failed_in:
        yield f"it is of round {body['round']}, the audit failed in round {run.failed_in}"
    before.update(given)


def _unpaid(run: RunSoFar) -> Iterator[str]:
    """Deposits and lump sums that were agreed must be there when training begins."""
    for kind in (k for p in run.agreed.values() if p.fixed for k, when in p.schedule().items() if when == "commit"):
        if kind not in run.counts:
            run.counts[kind] = 0  # said once
            yield f"no {kind} came before it, which was agreed"


def _left_out(run: RunSoFar, kind: str, number: int) -> Iterator[str]:
    """Whether each training round before this entry brought what is paid or reported in every one."""
    if run.terms is None or run.terms.rounds is None or run.first is None:
        return
    steps, counts = min(number - run.first, run.terms.rounds), dict(run.counts)
    owed = dict.fromkeys(run.every_step(), steps)
    if kind == TRAINED:
        counts[TRAINED] -= 1  # those before it
        owed[TRAINED] = steps
    elif run.claims is not None:  # audits may leave too few agents to train on
        owed = dict.fromkeys(owed, min(steps, counts.get(TRAINED, 0)))
    for one, least in owed.items():
        if counts.get(one, 0) < least and one not in run.left_out:
            run.left_out.add(one)
            yield f"{least} training rounds came before it, but {counts.get(one, 0)} entries of kind {one}"


def _unfinished(run: RunSoFar) -> str:
    """What the entries of a run lack at its end; nothing where all is there, or where nobody can know."""
    if run.terms is None or run.terms.rounds is None:
        return ""
    trail = run.claims.audits if run.claims is not None else None
    steps = run.terms.rounds if trail is None or not trail.settled else trail.trained
    kinds = [*([TRAINED] if run.claims is not None else []), *run.every_step()]
    lacks = [f"{run.counts.get(k, 0)} of {steps} {k} entries" for k in kinds if run.counts.get(k, 0) < steps]
    if steps and len(lacks) == len(kinds) > 0 and not any(run.counts.get(k) for k in kinds):
        lacks[-1] += " (it stopped before it trained, or they were left out)"
    once = [k for p in run.agreed.values() for k, when in p.schedule().items() if when in ("commit", "end")]
    lacks += [f"no {kind}" for kind in once if not run.counts.get(kind)]
    lacks += ["audits that are not settled"] if trail is not None and not trail.settled else []
    return ", ".join([*lacks, f"{sum(run.held.values())} in escrow"] if any(run.held.values()) else lacks)


def _unfollowed(run: RunSoFar, body: Body) -> Iterator[str]:
    """Whether an audit that failed in an earlier round, or before the refund, was left without what is due on it."""
    if body["round"] == run.failed_in and body["kind"] != "refund":
        return
    for payment in run.agreed.values():
        for kind in (kind for kind, when in payment.schedule().items() if when == "audit"):
            before = run.followed.setdefault(kind, {})
            for agent in sorted(set(run.failed) - set(before)):
                yield f"{agent!r} failed an audit in round {run.failed_in}, and no {kind} followed"
                before[agent] = run.failed[agent]


def _step(step: int | None) -> str:
    return "no audit" if step is None else f"that of step {step}"


def _compare(derived: Mapping[str, int], posted: Mapping[str, int]) -> Iterator[Problem]:
    if derived == posted:
        return
    for account in sorted({*derived, *posted}):
        if derived.get(account) != posted.get(account):
            yield (
                "recompute",
                f"{account!r} has {posted.get(account, 'no posting')}, its inputs give {derived.get(account, 'none')}.",
            )
