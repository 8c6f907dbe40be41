"""What an agent says it delivered, as a run's ledger has it: for a person who audits when and whom they like."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from .. import terms
from ..entry import COMMITMENT, Entry
from ..errors import ProvenanceError
from ..identity import CENTER, digest, is_signed
from ..messages import Update
from ..provenance import beacon
from ..provenance.keys import PublicKey, words
from .examination import Delivery

SAID = ("s", "delivered", "update", "valuation", "nonce", "reveal")


def delivery(entries: Iterable[Entry], number: int, agent: str) -> tuple[Delivery, str]:
    """The delivery of an agent in a round, without its model, and the digest of that; its signature is checked.

    Which records are opened is drawn anew.
    """
    agreed: dict[str, Any] = {}
    s: dict[str, int] = {}
    trained: list[Entry] = []
    accepted: dict[str, Any] = {}
    reported: list[int] = []
    for entry in entries:
        if entry.kind == "reports-train":
            reported.append(entry.round)
        if entry.kind == terms.KIND:
            agreed, accepted = entry.inputs["terms"], entry.inputs["accepted"]
        elif entry.kind == COMMITMENT:
            s = dict(entry.inputs["s"])
        elif entry.kind == "reports-train" and entry.round <= number:
            for before in trained[-1:]:
                s.update({name: said["s"] for name, said in before.inputs["said"].items() if "s" in said})
            trained.append(entry)
    if not agreed or "center" not in agreed:
        raise ProvenanceError("Nobody signed anything in this run: there is nothing that an agent could be held to.")
    if not trained or trained[-1].round != number:
        rounds = f"they are {reported[0]} to {reported[-1]}" if reported else "there is none"
        raise ProvenanceError(f"Round {number} is no training round that was reported; {rounds}.")
    if agent not in trained[-1].inputs["said"]:
        who = ", ".join(trained[-1].inputs["said"])
        raise ProvenanceError(f"Agent {agent!r} reported nothing in round {number}; {who} did.")
    given, said = trained[-1].inputs, trained[-1].inputs["said"][agent]
    mine, scale = agreed["agents"][agent], agreed["scale"]
    claim = {key: said[key] for key in SAID if key in said} | {
        key: given[key] for key in ("model", "seen") if key in given
    }
    claim |= {"run": trained[-1].run, "terms": terms.digest(agreed), "round": number, "phase": "train", "agent": agent}
    if not is_signed(PublicKey.parse(mine["key"]), words("report", claim), said["signature"]):
        raise ProvenanceError(f"Agent {agent!r} did not sign what the ledger says of it in round {number}.")
    order = ""
    if "auditors" in agreed:
        links = {name: accepted[name]["reveal"] for name in agreed["agents"]}
        order = beacon.mixed(terms.digest(agreed), 0, {**links, CENTER: trained[0].inputs["reveal"]})
    points = {name: fixed / scale for name, fixed in s.items()}
    openings = agreed["settings"].get("openings", 0)
    return Delivery(
        agent, len(trained) - 1, {}, points, said["delivered"], said["update"], mine["s_max"], scale,
        mine.get("data"), order, secrets.token_hex(32), openings, mine.get("tags"),
    ), given["model"]  # fmt: skip


def is_model(w: Update, expected: str) -> bool:
    return digest(w) == expected
