"""Centers that cheat with audits: whatever they skip, choose or turn round is found by both verifiers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "rounds"))
from table import answer, play_until  # noqa: E402
from test_audits import Audited  # noqa: E402

from fedincentive.center import audits as center_audits  # noqa: E402
from fedincentive.ledger import disputes  # noqa: E402
from fedincentive.provenance import audits  # noqa: E402

PAID = {"mechanism": "2p-upbred", "beta": "0.5", "gamma": 900.0, "steering": "1"}


def cheating(folder: Path, patch: pytest.MonkeyPatch, where: Any, name: str, how: Any, **options: Any) -> list[str]:
    """What is found in the ledger of a center that was changed in one place; the verifiers are not."""
    table = Audited(folder, **{**PAID, **options})
    with patch.context() as changed:
        changed.setattr(where, name, how)
        table.play()
    return table.findings()


def test_an_audited_run_with_money_is_clean_with_and_without_a_liar(tmp_path: Path) -> None:
    for lie in ({}, {"lab": "sign-flip"}):
        (folder := tmp_path / str(len(lie))).mkdir()
        table = Audited(folder, lies=lie, **PAID)
        assert table.play() == {"lab": 0} if lie else table.play() == {}
        assert table.findings() == []
        kinds = {entry.kind for entry in table.entries}
        assert {"deposit", "refund"} <= kinds and ("forfeit-0" in kinds) == bool(lie)
        balances = table.center.run.balances
        assert sum(balances.values()) == balances["escrow"] == 0
        if lie:
            assert balances["lab"] < min(balances[name] for name in ("clinic", "hospital", "practice"))


def test_skipped_audits_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cheating(tmp_path, monkeypatch, audits, "coins", lambda value, agents, chance: set()) == ["audit"]


def test_sparing_one_friend_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coins = audits.coins
    spared = lambda value, agents, chance: coins(value, agents, chance) - {"hospital"}  # noqa: E731
    assert cheating(tmp_path, monkeypatch, audits, "coins", spared) == ["audit"]


def test_an_auditor_of_the_centers_choice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = lambda value, agent, auditors: sorted(auditors)  # noqa: E731
    assert cheating(tmp_path, monkeypatch, audits, "order", chosen) == ["audit"]


def test_a_pass_that_was_not_repeated_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cheating(tmp_path, monkeypatch, audits, "repeated", lambda value, agent: False, rounds=12) == ["audit"]


def test_a_fail_that_counts_as_a_pass_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(heard: Any, *, repeat: bool) -> str | None:
        return audits.PASS if heard else None

    assert "audit" in cheating(tmp_path, monkeypatch, audits, "verdict", deaf, lies={"lab": "sign-flip"})


def test_a_copy_that_is_let_through_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"lies": {"lab": "copy"}, "audit": 1e-9}
    assert "audit" in cheating(tmp_path, monkeypatch, audits, "copies", lambda updates: set(), **given)


def test_a_false_verdict_in_an_auditors_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hear = center_audits.hear

    def framing(run: Any, reports: Any) -> None:
        hear(run, reports)
        for item in run.audits[0]["heard"]:
            item["verdicts"] = [{**one, "why": "forged"} for one in item["verdicts"]]

    assert cheating(tmp_path, monkeypatch, center_audits, "hear", framing) == ["signature"]


def test_who_is_said_to_have_withheld_its_last_link_can_dispute_it(tmp_path: Path) -> None:
    """The center drops what practice showed at the end. The ledger cannot know; the agent's signed report is kept."""
    table = Audited(tmp_path, receipts=True, **PAID)
    play_until(table.center, table.players, "confirm")
    answer(table.center, [player for player in table.players if player.name != "practice"])
    assert table.player("practice").respond(table.center.broadcast()) is not None
    table.center.close()
    assert table.play() == {"practice": 4} and table.findings() == []
    kept = sorted((tmp_path / "state" / "receipts" / "practice").glob("dispute-*.json"))
    memo = disputes.dispute(table.book, kept[-1].read_text(), "practice")
    assert memo.inputs["claim"]["reveal"] == table.player("practice").notary.links[5]
    table.book.append(memo)
    assert table.findings() == []
