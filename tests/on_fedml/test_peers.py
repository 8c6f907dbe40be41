"""Other papers' mechanisms in FedML: the engine's ledger in closed-form games, and postings that verify in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fedml_runs import write_config
from parity import GAME, PEERS, ROUNDS, SHARES, head_of, ledger_of, peer_in_engine

from fedincentive import ledger
from fedincentive.contribution import memo
from fedincentive.ledger.verify import verify

SEVERAL = Path(__file__).parent / "several.py"
TERMS: dict[str, Any] = {"unchecked": True}
NUMBERS = {"gamma": 200.0, "cost": 0.001, "start": 0.4}
TRAINED: dict[str, dict[str, Any]] = {
    "fedbr-bg": NUMBERS,
    "pay-what-you-contribute": {"need": 60, "spillover": 0.5, "cost": 0.001},
    "gradient-relative": NUMBERS,
    "shares by loo": {**NUMBERS, **SHARES, "contribution": "loo"},
    "shares by agreement": {**NUMBERS, **SHARES, "contribution": "agreement"},
    "t-upbred by groves-d": {**NUMBERS, "payment": "groves-d"},
}


@pytest.fixture(scope="module")
def runs(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every game and training in one program, in root/kind/name."""
    root = tmp_path_factory.mktemp("peers")
    files = []
    for kind, plays, more in (("game", PEERS, {"game": "game.yaml"}), ("training", TRAINED, {})):
        for name, incentive in plays.items():
            folder = root / kind / name.replace(" ", "-")
            folder.mkdir(parents=True)
            (folder / "game.yaml").write_text(yaml.safe_dump({"game": GAME}))
            given = {**TERMS, **incentive, **more}
            files.append(write_config(folder, "sp", name.split(" ")[0], rounds=ROUNDS, incentive=given))
    start(root, SEVERAL, *files, log="peers").ends_well()
    return root


@pytest.mark.parametrize("name", PEERS)
def test_a_game_gives_the_engines_ledger(runs: Path, name: str, tmp_path: Path) -> None:
    assert head_of(ledger_of(runs / "game" / name.replace(" ", "-"))) == peer_in_engine(name, tmp_path)


@pytest.mark.parametrize("name", TRAINED)
def test_training_is_paid_by_the_rule_and_verifies(runs: Path, name: str) -> None:
    with ledger.open(ledger_of(runs / "training" / name.replace(" ", "-"))) as book:
        assert verify(book, recompute=True).findings == ()
        entries = [record.entry for record in book.entries()]
        balances = book.balances()
    paid = [entry for entry in entries if entry.postings]
    assert len({entry.kind for entry in paid}) == 1 and len(paid) == ROUNDS
    assert sum(balances.values()) == 0
    treasury = {"shares": -6 * 10**6}.get(name.split(" ")[0], 0)
    if not name.startswith("pay-what"):
        assert balances.get("treasury", 0) == treasury
    if "agreement" in name:  # all train on digits, so their models agree beyond chance
        values = [
            value for entry in entries if entry.rule == memo.RULE for value, _ in memo.read(entry.inputs).values()
        ]
        assert len(values) == 3 * ROUNDS and min(values) > 0.1 and len(set(values)) > ROUNDS
