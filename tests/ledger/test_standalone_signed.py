"""The stand-alone verifier on signed runs: the same verdicts as the package on what was signed, paid and shown."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from keyring import folder_of, ring_of
from table import BLIND, play, set_table

from fedincentive import ledger
from fedincentive.agent.strategies import Away
from fedincentive.errors import ProvenanceError
from fedincentive.game import random_data_value, repaired_example
from fedincentive.identity import CENTER
from fedincentive.ledger import Entry, standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.provenance import receipts, rfc8032
from fedincentive.provenance.keys import KeyRing, PrivateKey, PublicKey

Fields = dict[str, Any]
Names = set[str]
PHASED = {"mechanism": "2p-upbred", "rounds": 3, "beta": "0.5", "gamma": 5.0}
TRUTHFUL = {"mechanism": "t-upbred", "rounds": 3}
AWAY = Away(phases=("train", "value"))
FOUR = {**PHASED, "agents": 4, "beta": "7", "gamma": 9.0, "quorum": 0.5}
HONEST: dict[str, Fields] = {
    "tranches": PHASED,
    "at the end": {**PHASED, "settlement": "end"},
    "on commitments": {**PHASED, "settlement": "commitment"},
    "truthful": TRUTHFUL,
    "truthful, all known": {**TRUTHFUL, "oracles": None},
    "truthful, clarke": {**TRUTHFUL, "h": "clarke", "oracles": None},
    "truthful, h zero": {**TRUTHFUL, "h": "zero"},
    "upbred": {"mechanism": "upbred", "rounds": 3, "beta": "0.5"},
    "fedavg": {"mechanism": "fedavg", "rounds": 2},
    "fedavg-strategic": {"mechanism": "fedavg-strategic", "rounds": 2},
    "trimmed": {**FOUR, "mechanism": "trim-2p-upbred"},
    "sampled": {**FOUR, "sampled": 2},
    "absent in some rounds": {**FOUR, "strategies": {"agent-1": Away(steps=(0, 2))}},
    "absent where it is valued": {**TRUTHFUL, "agents": 4, "quorum": 0.5, "strategies": {"agent-2": AWAY}},
    "sampled and absent": {**FOUR, "sampled": 3, "quorum": 0.3, "strategies": {"agent-2": AWAY}},
}


def names(book: ledger.Ledger) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """What both find, by name and entry."""
    ours = [(finding.name, finding.seq or 0) for finding in verify(book, recompute=True).findings]
    theirs = [(name, seq) for name, seq, _ in standalone.check(list(to_jsonl(book)))[0]]
    return ours, theirs


def signed_run(folder: Path, mechanism: str, agents: int = 2, keys: KeyRing | None = None, **values: Any) -> KeyRing:
    """An honest run in folder/l.db with its receipts in folder/state; everybody's keys."""
    game = repaired_example() if agents == 2 else random_data_value(3, agents)
    ring = keys or ring_of(game.agents)
    with ledger.open(folder / "l.db") as book:
        values = {"oracles": BLIND, **values}
        play(*set_table(game, mechanism, keys=ring, book=book, folder=folder / "state", **values))
    return ring


@pytest.mark.parametrize("name", HONEST)
def test_both_find_nothing_in_an_honest_signed_run(tmp_path: Path, name: str) -> None:
    signed_run(tmp_path, **HONEST[name])
    signatures = standalone.Signatures()
    with ledger.read(tmp_path / "l.db") as book:
        assert verify(book, recompute=True).clean
        assert standalone.check(list(to_jsonl(book)), (), signatures)[0] == []
    assert signatures.count > 4 and signatures.signed == ["test"]
