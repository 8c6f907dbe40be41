"""Disputes: an agent that is said to have been absent, to have said other words, or to have withheld its last link,
shows the report it signed. A memo keeps it; no money moves.

    {"agent": NAME, "disputes": SEQ, "claim": {...}, "signature": BASE64}

`claim` and `signature` are the report as the agent signed it. They prove that the agent answered this broadcast at some
time, not that the answer arrived, or in time: who is right cannot be decided from a ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from ..entry import Entry, canonical
from ..errors import LedgerError
from ..provenance import statements
from ..provenance.keys import from_base64, words
from ..provenance.statements import KeysInForce
from ..terms import KIND as TERMS
from ..terms import Terms
from .store import Ledger

KIND, RULE = "dispute", "dispute/1"
PLACE = ("run", "round", "phase", "agent")  # of a claim, which its entry says by where it stands
SHARED = ("terms", "model", "seen")  # of a claim, which its entry says once of all


def dispute(book: Ledger, kept: str, agent: str) -> Entry:
    """The memo for what an agent kept (dispute-ROUND.json), if the ledger lacks it and the agent did sign it."""
    try:
        held = json.loads(kept)
        claim, signature, entry = held["claim"], held["signature"], held["entry"]
        run, named = claim["run"], claim["agent"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(
            f"This is not what an agent keeps for a dispute ({error}): give its dispute-ROUND.json."
        ) from error
    if named != agent:
        raise LedgerError(f"The report in this file is by {named!r}, not by {agent!r}.")
    agreed, seq, absence = None, 0, {}
    keys = KeysInForce({})
    for record in book.chained(run):
        if record.entry.kind == TERMS:
            agreed = Terms.read(record.entry.inputs["terms"])
            keys = KeysInForce(agreed.keys or {}, agreed.recovery)
        elif record.entry.rule == statements.RULE:
            keys.follow([canonical(record.entry.inputs["statement"]) + "\n"], record.entry.round)
        if record.entry.body == entry:
            seq, absence = record.seq, json.loads(record.entry.body)
    if agreed is None or not agreed.keys:
        raise LedgerError(f"Run {run!r} has no terms with keys in this ledger: a signature in it proves nothing.")
    if not seq:
        raise LedgerError(
            "The entry that the file disputes is not in this ledger: it is another one, or was rewritten."
        )
    inputs = {"agent": agent, "disputes": seq, "claim": claim, "signature": signature}
    for wrong in wrong_dispute(inputs, agreed, run, absence, keys):
        raise LedgerError(f"The dispute is not recorded: {wrong}.")
    name = sha256(str(signature).encode()).hexdigest()[:16]
    return Entry(run, claim["round"], f"{KIND}-{name}", RULE, inputs, {})


def has_words(inputs: Mapping[str, Any], claim: Mapping[str, Any], signature: str) -> bool:
    """Whether an entry of reports has an agent's words as it signed them, all of them and no others."""
    told = {key: inputs[key] for key in SHARED if key in inputs} | inputs.get("said", {}).get(claim["agent"], {})
    signed = {key: value for key, value in claim.items() if key not in PLACE}
    return {key: value for key, value in told.items() if key != "round"} == {**signed, "signature": signature}


def wrong_dispute(
    given: Mapping[str, Any], agreed: Terms, run: str, disputed: Mapping[str, Any] | None, keys: KeysInForce
) -> Iterator[str]:
    """What is wrong with a dispute: the entry must lack what the agent signed for that very round."""
    claim, agent = given["claim"], given["agent"]
    place = {"run": run, "agent": agent, "terms": agreed.digest}
    if (
        disputed is None
        or disputed["run"] != run
        or has_words(disputed["inputs"], {**claim, "agent": agent}, given["signature"])
    ):
        yield f"entry {given['disputes']} has what {agent!r} signed, or is not of this run"
        return
    first = claim.get("phase") == "contribute"  # the last word of phase 1 stands in the entry that follows it
    number = disputed["round"] - 1 if first else disputed["round"]
    withheld = claim.get("phase") == "confirm" and agent in disputed["inputs"].get("withheld", ())  # its last link
    if not (withheld or disputed["kind"] == f"reports-{claim.get('phase')}") or number != claim.get("round"):
        yield f"the report is not of the round and phase of entry {given['disputes']}"
    if {key: claim.get(key) for key in place} != place:
        yield "the report is for another run, other terms or by another agent"
    try:
        key = keys.at(agent, claim["round"])
        signed = key is not None and key.verify(from_base64(given["signature"]), words("report", claim))
    except (ValueError, TypeError, KeyError):
        signed = False
    if not signed:
        yield f"{agent!r} did not sign the report"
