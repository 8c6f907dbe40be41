"""An agent follows its center's log from run to run."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
from keyring import ring_of
from table import BLIND, agents_of, opened

from fedincentive import Settings, ledger
from fedincentive.agent import Agent, Notary
from fedincentive.errors import BroadcastRefused, LogForked, SettingError
from fedincentive.game import random_data_value
from fedincentive.identity import CENTER
from fedincentive.provenance.witness import convicts

GAME = random_data_value(3, 3)
RING = ring_of(GAME.agents)


def play(folder: Path, run: str, book: Path) -> list[Agent]:
    """A run in the ledger at `book`, to its end; its agents remember logs in `folder`."""
    agents = agents_of(GAME, keys=RING)
    for agent in agents:
        agent.notary = Notary.of(RING, agent.name, folder / run, logs=folder / "logs")
    settings = Settings.read({"run": run, "mechanism": "2p-upbred", "rounds": 2, "beta": "7", "gamma": 9.0})
    with ledger.open(book) as store:
        center = opened(settings, "2p-upbred", agents, {"w": GAME.w0}, store, None, keys=RING, oracles=BLIND)
        while not center.done:
            told = center.broadcast()
            for agent in agents:
                center.submit(agent.respond(told))
            center.close()
    return agents


def seen(agents: list[Agent]) -> set[int | None]:
    """What they would say of the log when they enrol again."""
    return {Notary.of(RING, a.name, logs=a.notary.logs.parent).enrol(a.enrol()).seen for a in agents}


def test_the_next_run_must_extend_what_the_last_one_showed(tmp_path: Path) -> None:
    first = play(tmp_path, "one", tmp_path / "l.db")
    assert {agent.enrol().seen for agent in first} == {None}  # as it was when they enrolled
    with ledger.read(tmp_path / "l.db") as book:
        size = book.head().count
    assert seen(first) == {size}
    second = play(tmp_path, "two", tmp_path / "l.db")
    assert {agent.enrol().seen for agent in second} == {size}
    with ledger.read(tmp_path / "l.db") as book:
        assert seen(second) == {book.head().count} and book.head().count > size


def test_a_history_rewritten_between_two_runs_is_noticed_with_evidence(tmp_path: Path) -> None:
    play(tmp_path, "one", tmp_path / "l.db")
    with ledger.read(tmp_path / "l.db") as book:
        entries = [record.entry for record in book.entries()]
    with ledger.open(tmp_path / "rewritten.db") as book:  # the same beginning, so the same origin, and another end
        for entry in entries[:-2]:
            book.append(entry)
        for k in range(4):
            book.append(ledger.Entry("other", k, "refund", "other/1", {}, {"a": 1, "b": -1}))
    with pytest.raises(LogForked) as fork:
        play(tmp_path, "two", tmp_path / "rewritten.db")
    assert fork.value.evidence["key"] == RING.public[CENTER].vkey
    assert list((tmp_path / "two").rglob("fork-*.json"))


def cut(path: Path, count: int) -> Path:
    """A copy of a ledger with its first entries only."""
    with ledger.read(path) as book, ledger.open(path.with_name(f"cut-{count}.db")) as copy:
        for record in list(book.entries())[:count]:
            copy.append(record.entry)
    return path.with_name(f"cut-{count}.db")


def test_a_history_cut_between_two_runs_convicts_or_is_refused(tmp_path: Path) -> None:
    play(tmp_path, "one", tmp_path / "l.db")
    with pytest.raises(LogForked, match="one size, two roots") as fork:
        play(tmp_path, "two", cut(tmp_path / "l.db", 2))  # three entries with the new terms, as were seen before
    assert convicts(fork.value.evidence, RING.public[CENTER])
    with pytest.raises(BroadcastRefused, match="were seen before"):
        play(tmp_path, "three", cut(tmp_path / "l.db", 3))


def test_another_ledger_is_named_and_the_first_is_not_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(tmp_path, "one", tmp_path / "l.db")
    with caplog.at_level(logging.WARNING, "fedincentive"):
        play(tmp_path, "two", tmp_path / "other.db")
    assert "in its last run it was fedincentive-ledger/" in caplog.text
    play(tmp_path, "three", tmp_path / "l.db")  # no proof was asked for, so none is missed
    with pytest.raises(BroadcastRefused, match="shows 3 entries, but .* were seen before"):
        play(tmp_path, "four", cut(tmp_path / "l.db", 2))


@pytest.mark.parametrize("size", [-1, True, "3", 2.0, 2**64])
def test_what_an_agent_says_of_the_log_is_a_size(size: Any) -> None:
    agents = [dataclasses.replace(agent.enrol(), seen=size) for agent in agents_of(GAME, keys=RING)]
    with pytest.raises(SettingError, match="enrols with seen = .*: it must be the size of a log"):
        opened(Settings.read({"mechanism": "upbred"}), "upbred", agents, {"w": GAME.w0}, keys=RING, oracles=BLIND)
