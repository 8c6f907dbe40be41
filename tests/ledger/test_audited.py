"""Centers that cheat with audits: whatever they skip, choose or turn round is found by both verifiers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "rounds"))
from commands import command  # noqa: E402
from table import answer, play_until  # noqa: E402
from test_audits import Audited, Hides  # noqa: E402

from fedincentive import ledger  # noqa: E402
from fedincentive.center import audits as center_audits  # noqa: E402
from fedincentive.ledger import disputes, standalone  # noqa: E402
from fedincentive.ledger.export import to_jsonl  # noqa: E402
from fedincentive.ledger.verify import verify  # noqa: E402
from fedincentive.payments import Contribution, Deposit  # noqa: E402
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
    repeated, due = audits.repeated, []

    def never(value: str, agent: str, share: Any) -> bool:
        due.append(repeated(value, agent, share))
        return False

    found = cheating(tmp_path, monkeypatch, audits, "repeated", never, rounds=12)
    assert found == (["audit"] if any(due) else [])  # once in 157 runs none of 48 passes is to be repeated


@pytest.mark.parametrize(("step", "waits"), [(1, False), (4, False), (1, True)])
def test_another_link_than_the_next_one_cannot_draw_second_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, waits: bool
) -> None:
    """Nor where it was shown before the verdict, which had to wait for an agent's link."""
    settle = center_audits._settle

    def choosing(run: Any, settled: Any, ended: bool) -> Any:
        return settle(run, {**settled, "next": "0" * 64} if settled["step"] == step else settled, ended)

    table = Audited(tmp_path, **PAID)
    if waits:
        Hides(table.player("practice"), (step + 1, step + 2))
    with monkeypatch.context() as changed:
        changed.setattr(center_audits, "_settle", choosing)
        table.play()
    assert "beacon" in table.findings()


def test_a_fail_that_counts_as_a_pass_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(heard: Any, *, repeat: bool) -> str | None:
        return audits.PASS if heard else None

    assert "audit" in cheating(tmp_path, monkeypatch, audits, "verdict", deaf, lies={"lab": "sign-flip"})


def test_a_copy_that_is_let_through_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"lies": {"lab": "copy"}, "audit": 1e-9}
    assert "audit" in cheating(tmp_path, monkeypatch, audits, "copies", lambda updates: set(), **given)


def test_a_false_verdict_in_an_auditors_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hear = center_audits.hear

    def framing(run: Any, reports: Any, told: Any) -> None:
        hear(run, reports, told)
        for item in run.audits[0]["heard"]:
            item["verdicts"] = [{**one, "why": "forged"} for one in item["verdicts"]]

    assert cheating(tmp_path, monkeypatch, center_audits, "hear", framing) == ["signature"]


def test_who_is_said_to_have_withheld_its_last_link_can_dispute_it(tmp_path: Path) -> None:
    """The center drops what practice showed at the end. The ledger cannot know; the agent's signed report is kept."""
    table = Audited(tmp_path, receipts=True, repeats=0, **PAID)
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


# What is left out, and what is cut off


@pytest.mark.parametrize("steps", [(0,), (2,), (4,), (0, 1, 2, 3, 4)])
def test_a_tranche_that_is_left_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...]
) -> None:
    due = Contribution.due

    def stingy(self: Any, run: Any, event: Any) -> Any:
        return None if event.phase == "train" and run.step in steps else due(self, run, event)

    table = Audited(tmp_path, **PAID)
    with monkeypatch.context() as changed:
        changed.setattr(Contribution, "due", stingy)
        table.play()
    ours = [finding.message for finding in verify(table.book, recompute=True).findings if finding.name == "terms"]
    theirs = [message for name, _, message in standalone.check(list(to_jsonl(table.book)))[0] if name == "terms"]
    assert any("entries of kind tranche" in one for one in ours) and any("tranche entries" in one for one in theirs)


def test_a_refund_that_is_left_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    due = Deposit.due
    keeps = lambda self, run, event: None if event.phase == "end" else due(self, run, event)  # noqa: E731
    assert cheating(tmp_path, monkeypatch, Deposit, "due", keeps) == ["terms"]


def test_reports_and_payments_of_a_whole_round_that_are_left_out_are_found(tmp_path: Path) -> None:
    table = Audited(tmp_path, **{**PAID, "mechanism": "fedavg", "payment": "none", "audit": 1e-9})
    table.play()
    rest = [entry for entry in table.entries if (entry.kind, entry.round) != ("reports-train", 2)]
    with ledger.open(tmp_path / "fewer.db") as book:
        for entry in rest:
            book.append(entry)
        ours = [finding.message for finding in verify(book, recompute=True).findings]
        theirs = [message for _, _, message in standalone.check(list(to_jsonl(book)))[0]]
    assert any("3 training rounds came before it, but 2 entries of kind reports-train" in one for one in ours)
    assert any("3 training rounds came before it, and only 2 reports-train entries" in one for one in theirs)


@pytest.mark.parametrize(
    "how", [{}, {"settlement": "end", "auditors": None, "report_values": False}, {"lies": {"lab": "sign-flip"}}]
)
def test_a_run_without_its_last_entries_is_never_silently_clean(tmp_path: Path, how: dict[str, Any]) -> None:
    table = Audited(tmp_path, **{**PAID, "rounds": 2, **how})
    table.play()
    with ledger.open(tmp_path / "cut.db") as book:
        for entry in table.entries:
            ours, signatures = verify(book, recompute=True), standalone.Signatures(skip=True)
            found, _ = standalone.check(list(to_jsonl(book)), signatures=signatures)
            known = len(list(book.entries())) > 0
            assert bool(ours.findings) == bool(found) and (not known or ours.findings or ours.unfinished["test"])
            assert bool(ours.unfinished) == bool(signatures.unfinished) == known
            book.append(entry)
        whole, signatures = verify(book, recompute=True), standalone.Signatures(skip=True)
        assert whole.clean and not whole.unfinished
        assert standalone.check(list(to_jsonl(book)), signatures=signatures)[0] == signatures.unfinished == []


def test_an_unfinished_run_is_named_by_both_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Audited(tmp_path, **PAID)
    play_until(table.center, table.players, "train", 3)
    told = command("ledger", "verify", tmp_path / "l.db", "--recompute").output
    assert "note: run 'test' is unfinished: it has 3 of 5 reports-train entries, 3 of 5 tranche entries" in told
    (tmp_path / "export.jsonl").write_text("".join(to_jsonl(table.book)))
    assert standalone.main([str(tmp_path / "export.jsonl"), "--no-signatures"]) == 0
    assert "unfinished: run 'test' (3 of 5 reports-train, 3 of 5 tranche" in capsys.readouterr().out


@pytest.mark.parametrize(("keys", "told"), [(False, True), (True, False)])
def test_who_was_asked_without_signatures_is_called_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: bool, told: bool
) -> None:
    how = {"auditors": None, "rounds": 2, "sampled": 3, "mechanism": "fedavg", "payment": "contribution", "beta": "1"}
    table = Audited(tmp_path, **how, **({} if keys else {"keys": None}))
    table.play()
    said = command("ledger", "verify", tmp_path / "l.db", "--recompute").output
    assert ("run 'test' asked samples: who was drawn is said by the center" in said) == told and "clean" in said
    (tmp_path / "export.jsonl").write_text("".join(to_jsonl(table.book)))
    assert standalone.main([str(tmp_path / "export.jsonl")]) == 0
    assert ("who was asked is only said by the center, and not shown: 'test'" in capsys.readouterr().err) == told
