"""One set of closed-form games for all hosts: each must end with the ledger that the core alone writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from table import BLIND, play, set_table

import fedincentive
from fedincentive import game, ledger

RUN = "run"
ROUNDS = 4
MECHANISMS = ("upbred", "t-upbred", "2p-upbred", "trim-2p-upbred", "fedavg-strategic")
INCENTIVE = {"beta": "0.5", "alpha": 0.3, "round_limit": 60, "when_short": "train", "unchecked": True}
GAME: dict[str, Any] = {
    "kind": "data-value",
    "each": {"cost": 0.01, "b": 20.0},
    "w0": [0.25, -1.0],
    "agents": [
        {"name": "hospital", "s_max": 400, "s0": 100, "ideal": [1.0, 2.0]},
        {"name": "clinic", "s_max": 250.5, "s0": 50.125, "ideal": [0.5, 1.5]},
        {"name": "practice", "s_max": 700, "s0": 333, "ideal": [1 / 3, 0.1]},
    ],
}


SHARES = {"options": {"share": {"budget": "6"}}}
PEERS: dict[str, dict[str, Any]] = {  # other papers' mechanisms; the first word is the mechanism
    "fedbr": {},
    "fedbr-bg": {},
    "accuracy-shaping": {},
    "realfm": {},
    "fact": {},
    "one-for-one": {"need": 300, "spillover": 0.5},
    "pay-what-you-contribute": {"need": 300, "spillover": 0.5},
    "gradient-relative": {},
    "cgsv": {"options": {"download": {"altruism": "3"}}},
    "shares": SHARES,
    "shares by exact": {**SHARES, "contribution": "exact"},
    "shares by agreement": {**SHARES, "contribution": "agreement"},
    "t-upbred by groves-d": {"payment": "groves-d"},
}


def peer(name: str) -> dict[str, Any]:
    """The settings of one of them, in the engine and in every host."""
    return {"mechanism": name.split(" ")[0], "rounds": ROUNDS, "run": RUN, "unchecked": True, **PEERS[name]}


def peer_in_engine(name: str, folder: Path) -> str:
    """The ledger's head after the game under another paper's mechanism, in the core alone."""
    path = folder / "peer.sqlite"
    fedincentive.play({"game": GAME}, ledger=path, **peer(name))
    return head_of(path)


def in_engine(mechanism: str, folder: Path, of: dict[str, Any] = GAME, **changes: Any) -> str:
    """The ledger's head after the same game in the core alone, where no host stands between center and agents."""
    path = folder / f"{mechanism}.sqlite"
    terms = {**INCENTIVE, "rounds": ROUNDS, "run": RUN, **changes}
    with ledger.open(path) as book:
        play(*set_table(game.read({"game": of}), mechanism, book=book, oracles=BLIND, **terms))
    return head_of(path)


def ledger_of(folder: Path, run: str = RUN) -> Path:
    """Where a host that works in this folder keeps the ledger of a run."""
    return folder / "fedincentive-runs" / run / "ledger.sqlite"


def head_of(path: Path) -> str:
    with ledger.read(path) as book:
        return str(book.head())
