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
from ..entry import CORRECTION, ESCROW, TREASURY, Entry
from ..errors import LedgerError, ProvenanceError
from ..payments.base import Body
from ..provenance.keys import PrivateKey, PublicKey, from_base64, words
from .store import REVERSAL, SIGNED_REVERSAL, Ledger, Record

TRANSFER, SIGNED_TRANSFER = "transfer/1", "transfer/2"
SIGNERS = ("author", "approver")


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
    """The signed correction of entry `seq` by these amounts, or its reversal where there are none.

    It belongs to the run's last round so far. The same correction again is the same entry.
    """
    if author.name == approver.name or author.public.raw == approver.public.raw:
        raise LedgerError(f"{author.name!r} cannot approve a correction of its own: another person's key is needed.")
    record, last, earlier = _found(book, seq)
    if not record.entry.postings:
        raise LedgerError(
            f"Entry {seq} is a memo ({record.entry.kind}) and moved no money: there is nothing to correct."
        )
    inputs: dict[str, Any] = {"corrects": seq, "hash": record.hash, "reason": _given(reason)}
    inputs |= {"author": author.public.vkey, "approver": approver.public.vkey}
    rule, postings = SIGNED_REVERSAL, _opposite(record)
    if amounts is not None:
        _check_amounts(book, record.entry.run, amounts)
        inputs, rule, postings = {**inputs, "amounts": dict(amounts)}, SIGNED_TRANSFER, dict(amounts)

    def made(round: int) -> Entry:
        said = _words(record.entry.run, round, rule, inputs)
        signatures = {
            who: base64.b64encode(key.sign(said)).decode() for who, key in zip(SIGNERS, (author, approver), strict=True)
        }
        return Entry(record.entry.run, round, CORRECTION, rule, {**inputs, "signatures": signatures}, postings)

    again = (entry for entry in earlier if made(entry.round) == entry)
    return next(again, None) or made(last + len(earlier))


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
