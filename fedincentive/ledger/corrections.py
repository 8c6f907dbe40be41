"""Corrections: an entry is never changed; another one takes it back, or moves amounts that a person decided.

Version 1 has a reason. Version 2 also says who decided it and who approved that, two persons with keys of their own:

    {"corrects": SEQ, "hash": HASH, "reason": TEXT, "amounts": {...}, "author": VKEY, "approver": VKEY,
     "signatures": {"author": BASE64, "approver": BASE64}}

Both sign "fedincentive/correction/1\\n" and the canonical JSON of all but the signatures, with run, round and rule.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from .. import terms
from ..entry import CORRECTION, ESCROW, TREASURY, Entry, canonical
from ..errors import LedgerError, ProvenanceError
from ..payments.base import Body
from ..provenance.keys import PrivateKey, PublicKey, from_base64, words
from .store import REVERSAL, SIGNED_REVERSAL, Ledger, Record

TRANSFER, SIGNED_TRANSFER = "transfer/1", "transfer/2"
SIGNERS = ("author", "approver")
PROPOSAL = "fedincentive/correction/1"


def reversal(record: Record, round: int, reason: str) -> Entry:
    """A correction that takes a whole entry back."""
    inputs = {"corrects": record.seq, "hash": record.hash, "reason": _given(reason)}
    return Entry(record.entry.run, round, CORRECTION, REVERSAL, inputs, _opposite(record))


def transfer(record: Record, round: int, reason: str, amounts: Mapping[str, int]) -> Entry:
    """A correction by amounts that a person decided; the reason stands beside them for ever."""
    inputs = {"corrects": record.seq, "hash": record.hash, "reason": _given(reason), "amounts": amounts}
    return Entry(record.entry.run, round, CORRECTION, TRANSFER, inputs, amounts)


def correct(
    book: Ledger, seq: int, reason: str, amounts: Mapping[str, int] | None, author: PrivateKey, approver: PrivateKey
) -> Entry:
    """The correction of an entry where both keys are at hand: proposed and approved at once."""
    return approve(book, propose(book, seq, reason, amounts, author, approver.public), approver)


def propose(
    book: Ledger, seq: int, reason: str, amounts: Mapping[str, int] | None, author: PrivateKey, approver: PublicKey
) -> str:
    """The correction of entry `seq` by these amounts, or its reversal where there are none, signed by its author for
    one approver: a text that counts for nothing before that one approves it."""
    body = _unsigned(book, seq, reason, amounts, author.public, approver)
    signature = base64.b64encode(author.sign(_words(**body))).decode()
    return canonical({**body, "proposal": PROPOSAL, "signatures": {"author": signature}}) + "\n"


def approve(book: Ledger, proposal: str, approver: PrivateKey) -> Entry:
    """The correction that was proposed, signed by both. The ledger must still be as it was proposed for."""
    try:
        given = json.loads(proposal)
        inputs, signature = given["inputs"], given["signatures"]["author"]
        author = PublicKey.parse(inputs["author"])
        seq, reason, amounts = inputs["corrects"], inputs["reason"], inputs.get("amounts")
        if given["proposal"] != PROPOSAL or type(seq) is not int or type(reason) is not str:
            raise ValueError("it is not what `ledger correct --proposal` writes")
        if amounts is not None and not all(type(one) is int for one in amounts.values()):
            raise ValueError("its amounts are not whole minor units")
        signature = base64.b64encode(from_base64(signature)).decode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerError(f"This is not a proposed correction: {type(error).__name__} {error}.") from error
    if inputs.get("approver") != approver.public.vkey:
        raise LedgerError(
            f"The correction is proposed for the approval of {str(inputs.get('approver'))[:200]!r}, not of "
            f"{approver.public.vkey!r}: only that key can approve it."
        )
    body = _unsigned(book, seq, reason, amounts, author, approver.public)
    if body != {key: given.get(key) for key in body}:
        raise LedgerError(
            "The ledger is not the one this correction was proposed for, or has moved on since: let its author propose "
            "it again."
        )
    said = _words(**body)
    if not author.verify(from_base64(signature), said):
        raise LedgerError(f"The author {author.name!r} did not sign this correction: it was changed, or is another's.")
    signatures = {"author": signature, "approver": base64.b64encode(approver.sign(said)).decode()}
    postings = _opposite(_found(book, seq)[0]) if amounts is None else amounts
    return Entry(
        body["run"], body["round"], CORRECTION, body["rule"], {**body["inputs"], "signatures": signatures}, postings
    )


def _unsigned(
    book: Ledger,
    seq: int,
    reason: str,
    amounts: Mapping[str, int] | None,
    author: PublicKey,
    approver: PublicKey,
) -> dict[str, Any]:
    """What both sign. It belongs to the run's last round so far; the same correction again is the same entry."""
    if author.name == approver.name or author.raw == approver.raw:
        raise LedgerError(f"{author.name!r} cannot approve a correction of its own: another person's key is needed.")
    record, last, earlier = _found(book, seq)
    if not record.entry.postings:
        raise LedgerError(
            f"Entry {seq} is a memo ({record.entry.kind}) and moved no money: there is nothing to correct."
        )
    inputs: dict[str, Any] = {"corrects": seq, "hash": record.hash, "reason": _given(reason)}
    inputs |= {"author": author.vkey, "approver": approver.vkey}
    rule = SIGNED_REVERSAL
    if amounts is not None:
        _check_amounts(book, record.entry.run, amounts)
        inputs, rule = {**inputs, "amounts": dict(amounts)}, SIGNED_TRANSFER
    again = (
        e.round for e in earlier if e.rule == rule and {**e.inputs, "signatures": 0} == {**inputs, "signatures": 0}
    )
    return {
        "run": record.entry.run,
        "round": next(again, last + len(earlier)),
        "rule": rule,
        "inputs": inputs,
    }


def wrong_signatures(body: Body) -> Iterator[str]:
    """What is wrong with the two signatures of a correction of version 2."""
    given = body["inputs"]
    try:
        keys = [PublicKey.parse(given[who]) for who in SIGNERS]
        said = _words(body["run"], body["round"], body["rule"], given)
        if keys[0].name == keys[1].name or keys[0].raw == keys[1].raw:
            yield f"{keys[0].name!r} approved a correction of its own."
        for who, key in zip(SIGNERS, keys, strict=True):
            if not key.verify(from_base64(given["signatures"][who]), said):
                yield f"the {who} {key.name!r} did not sign this correction."
    except (ProvenanceError, ValueError, KeyError, TypeError) as error:
        yield f"the correction is not signed by an author and an approver: {type(error).__name__} {error}."


def accounts(book: Ledger, run: str) -> set[str]:
    """Who may have postings in a run: the agents in its terms, the treasury, and the escrow where there are deposits;
    without terms, whoever had some."""
    names: set[str] = set()
    for record in book.chained(run):
        if record.entry.kind == terms.KIND:
            agreed = record.entry.inputs["terms"]
            return {*agreed["agents"], TREASURY, *([ESCROW] if "deposit" in agreed["payments"] else [])}
        names.update(record.entry.postings)
    return names | {TREASURY}


def _found(book: Ledger, seq: int) -> tuple[Record, int, list[Entry]]:
    """The entry, the last round of its run, and its corrections so far."""
    records = list(book.chained())
    record = next((record for record in records if record.seq == seq), None)
    if record is None:
        raise LedgerError(f"There is no entry {seq} in {book.address}, which has {len(records)}; see `ledger show`.")
    own = [one.entry for one in records if one.entry.run == record.entry.run]
    earlier = [entry for entry in own if entry.corrects == seq]
    return record, max(entry.round for entry in own if entry.kind != CORRECTION), earlier


def _check_amounts(book: Ledger, run: str, amounts: Mapping[str, int]) -> None:
    known = accounts(book, run)
    for account in sorted(set(amounts) - known):
        raise LedgerError(f"{account!r} is not in the terms of run {run!r}, which has {', '.join(sorted(known))}.")
    if not any(amounts.values()):
        raise LedgerError("A correction by amounts needs at least two that are not 0: say who gets what from whom.")
    if total := sum(amounts.values()):
        raise LedgerError(f"The amounts sum to {total} minor units, not 0: what one gets another pays.")


def _opposite(record: Record) -> dict[str, int]:
    return {account: -amount for account, amount in record.entry.postings.items()}


def _words(run: str, round: int, rule: str, inputs: Mapping[str, Any]) -> bytes:
    told = {key: value for key, value in inputs.items() if key != "signatures"}
    return words("correction", {**json.loads(json.dumps(told)), "run": run, "round": round, "rule": rule})


def _given(reason: str) -> str:
    if not reason.strip():
        raise LedgerError("A correction needs a reason: it stands beside the amounts for ever.")
    return reason
