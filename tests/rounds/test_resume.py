"""A run that is killed goes on as if nothing had happened: same model bytes, contributions, payments and ledger."""

from __future__ import annotations

import json
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from table import BLIND, answer, play, play_until, set_table

import fedincentive
from fedincentive import ledger, mechanisms
from fedincentive.agent import FreeRider
from fedincentive.center import Center
from fedincentive.errors import RunError
from fedincentive.game import random_data_value, repaired_example

SCRIPT = Path(__file__).with_name("crashing_run.py")
PAID = {"mechanism": "2p-upbred", "payment": "both", "beta": "9", "gamma": 30.0, "eta": 0.1, "loss_cap": 10_000.0}
RUNS = {
    "everything at once": {
        "incentive": {**PAID, "server_optimizer": "adam", "audit": 0.5, "audit_seed": 3, "sampled": 3},
        "lies": {"agent-2": "inflate-v"},
    },
    "agents with a memory": {
        "incentive": {"mechanism": "t-upbred", "gamma": 0.5, "eta": 0.1, "loss_cap": 10_000.0, "slope": "paper"},
        "lies": {"agent-1": "understate-s"},
    },
}


def terms(name: str, rounds: int) -> dict:
    return {**RUNS[name], "incentive": {**RUNS[name]["incentive"], "rounds": rounds}}


def start(directory: Path, given: dict) -> subprocess.Popen:
    command = [sys.executable, str(SCRIPT), "play", str(directory), json.dumps(given)]
    child = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "go\n"
    return child


def killed(directory: Path, given: dict, dice: random.Random, longest: float) -> tuple[int, str]:
    """How often the run was killed, at most 8 times, before it could end, and what it said then."""
    kills = 0
    while True:
        child = start(directory, given)
        if kills < 8:
            time.sleep(dice.uniform(0.0, longest))
            child.send_signal(signal.SIGKILL)
        text = child.communicate()[0]
        if child.returncode == 0:
            return kills, text
        assert child.returncode == -signal.SIGKILL
        kills += 1


@pytest.mark.parametrize("name", RUNS)
def test_killed_at_random_moments_it_ends_the_same(tmp_path, name) -> None:
    given = terms(name, 40)
    whole = tmp_path / "whole"
    whole.mkdir()
    child = start(whole, given)
    began = time.monotonic()
    expected = json.loads(child.communicate()[0])
    longest = (time.monotonic() - began) / 6
    dice, kills = random.Random(name), 0
    while kills < 3:  # the machine may have become faster since: then sooner
        broken = tmp_path / f"broken-{longest}"
        broken.mkdir()
        kills, text = killed(broken, given, dice, longest)
        assert json.loads(text) == expected
        longest /= 2


@pytest.mark.parametrize("name", RUNS)
def test_killed_around_every_single_write_it_ends_the_same(tmp_path, name) -> None:
    """Before and after each file is replaced and each entry is appended: no moment is special."""
    command = [sys.executable, str(SCRIPT), "everywhere", str(tmp_path), json.dumps(terms(name, 2))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["crashes"] > 15


def open_run(path, book=None, game=None, mechanism="2p-upbred", **values):
    terms = {"run": "r", "rounds": 3, "beta": "0.5", "resume": True, **values}
    return set_table(game or repaired_example(), mechanism, book=book, folder=path, oracles=BLIND, **terms)


def begin_run(*places, **values) -> None:
    """And stop at once."""
    open_run(*places, **values)[0].release()


def test_an_existing_run_needs_resume(tmp_path) -> None:
    open_run(tmp_path)
    with pytest.raises(
        RunError, match="Run 'r' exists in .*: set resume: true to continue it .*--resume.*, or give the new run"
    ):
        open_run(tmp_path, resume=False)


def test_a_ledger_that_knows_the_run_needs_its_state(tmp_path) -> None:
    with ledger.open(tmp_path / "l.db") as book:
        center, agents = open_run(tmp_path / "state", book)
        play(center, agents)
        with pytest.raises(RunError, match="The ledger has entries of run 'r', but its state is not here"):
            open_run(tmp_path / "elsewhere", book)
        other, agents = open_run(tmp_path / "elsewhere", book, run="s")
        play(other, agents)
        assert len(list(book.entries("s"))) == len(list(book.entries("r")))


def test_a_finished_run_is_only_read(tmp_path) -> None:
    with ledger.open(tmp_path / "l.db") as book:
        center, agents = open_run(tmp_path / "state", book)
        outcome = play(center, agents)
        again, agents = open_run(tmp_path / "state", book)
        assert again.done and again.outcome.to_json() == outcome.to_json()
        assert play(again, agents).digest == outcome.digest
        assert book.head().count == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beta": "0.6"}, "was begun with beta = '1/2', not '3/5'"),
        ({"rounds": 4}, "was begun with rounds = 3, not 4"),
        ({"mechanism": "fedavg"}, "was begun with mechanism = '2p-upbred', not 'fedavg'"),
        ({"run": "other"}, "was begun with run = 'r', not 'other'"),
    ],
)
def test_a_run_is_resumed_as_it_was_begun(tmp_path, values, message) -> None:
    begin_run(tmp_path)
    with pytest.raises(RunError, match=message):
        open_run(tmp_path, **values)


def test_a_run_goes_on_in_the_ledger_it_was_begun_with(tmp_path) -> None:
    with ledger.open(tmp_path / "l.db") as book:
        center, agents = open_run(tmp_path / "state", book, gamma=20.0)
        play_until(center, agents, "train", trained=2)
        center.release()
    with ledger.open(tmp_path / "other.db") as book, pytest.raises(RunError, match="the ledger given does not have it"):
        open_run(tmp_path / "state", book, gamma=20.0)
    with pytest.raises(RunError, match="no ledger is given: resume with the ledger it was begun with"):
        open_run(tmp_path / "state", gamma=20.0)


def test_patience_and_places_may_change(tmp_path) -> None:
    begin_run(tmp_path)
    open_run(tmp_path, quorum=0.9, repeats=9, state="elsewhere")


def test_a_run_keeps_its_agents(tmp_path) -> None:
    begin_run(tmp_path)
    with pytest.raises(RunError, match="Agent 'agent-1' enrols with s_max = .*, but run 'r' began with 5.0"):
        open_run(tmp_path, game=random_data_value(1, 2, 2))
    with pytest.raises(RunError, match="Agent 'agent-3' enrols"):
        open_run(tmp_path, game=random_data_value(1, 3, 2).__class__(
            ("agent-1", "agent-2", "agent-3"), random_data_value(1, 3, 2).valuation, random_data_value(1, 3, 2).cost,
            np.full(3, 5.0), np.full(3, 1.0), np.zeros(2),
        ))  # fmt: skip


def test_nothing_to_restore(tmp_path) -> None:
    settings = mechanisms.Settings()
    with pytest.raises(RunError, match="There is no saved run in .*: start it without resume"):
        Center.restore(tmp_path, settings, mechanisms.get("fedavg", settings))


@pytest.mark.parametrize("name", ["state.json", "model-0.safetensors"])
@pytest.mark.parametrize("damage", [b"", b"{", b"PK\x03\x04 not a zip"])
def test_a_damaged_state_is_named_and_never_guessed_around(tmp_path, name, damage) -> None:
    begin_run(tmp_path)
    (tmp_path / name).write_bytes(damage)
    with pytest.raises(RunError, match=f"{name} is .*damaged"):
        open_run(tmp_path)


def test_a_pickle_in_the_model_file_is_not_loaded(tmp_path) -> None:
    begin_run(tmp_path)
    (tmp_path / "model-0.safetensors").write_bytes(pickle.dumps({"w:w": np.zeros(3)}))
    with pytest.raises(RunError, match="model-0.safetensors is missing or damaged"):
        open_run(tmp_path)


def test_scalar_rounds_do_not_write_the_model(tmp_path) -> None:
    center, agents = open_run(tmp_path, gamma=0.05)
    written = (tmp_path / "model-0.safetensors").stat().st_mtime_ns
    for _ in range(5):
        answer(center, agents)
        assert center.close().phase == "contribute"
    assert (tmp_path / "model-0.safetensors").stat().st_mtime_ns == written
    kept = {"lock", "manifest.json", "model-0.safetensors", "state.json"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_the_manifest_has_what_an_auditor_needs(tmp_path) -> None:
    with ledger.open(tmp_path / "l.db") as book:
        center, agents = open_run(tmp_path / "state", book, seed=42)
        outcome = play(center, agents)
        heads = [(record.seq, record.hash) for record in book.entries()]
    manifest = json.loads((tmp_path / "state" / "manifest.json").read_text())
    assert manifest["seed"] == 42 and manifest["settings"]["beta"] == "1/2"
    assert manifest["agents"]["agent-1"] == {"s0": 2.5, "s_max": 5.0}
    assert set(manifest["versions"]) == {"fedincentive", "python", "numpy"}
    assert [(line["count"], line["hash"]) for line in manifest["checkpoints"]] == heads
    assert manifest["outcome"]["digest"] == outcome.digest and manifest["outcome"]["head"] == outcome.head
    assert "audit_seed" not in manifest["settings"]


def test_a_databases_password_is_written_nowhere(tmp_path) -> None:
    center, agents = open_run(tmp_path, ledger="postgresql://center:hunter2@127.0.0.1/money")
    play(center, agents)
    assert {path.name for path in tmp_path.iterdir()} >= {"state.json", "manifest.json"}
    assert all(b"hunter2" not in path.read_bytes() for path in tmp_path.iterdir())


def test_what_was_saved_is_appended_and_never_computed_again(tmp_path) -> None:
    """The ledger fails after the state is saved; the run comes back with agents that would now answer otherwise."""
    book = ledger.open(tmp_path / "l.db")
    center, agents = open_run(tmp_path / "state", book, gamma=20.0)
    play_until(center, agents, "train")
    answer(center, agents)
    book.close()
    with pytest.raises(Exception, match="closed|Cannot operate"):
        center.close()
    center.release()

    with ledger.open(tmp_path / "l.db") as book:
        assert [record.kind for record in book.entries()] == ["terms", "commitment"]
        center, agents = open_run(tmp_path / "state", book, gamma=20.0)
        assert [record.kind for record in book.entries()] == ["terms", "commitment", "tranche"]
        tranche = list(book.entries())[-1]
        assert tranche.inputs["delivered"] == {"agent-1": 5_000_000, "agent-2": 5_000_000}
        assert center.run.trained == 1 and center.head == tranche.hash
        for agent in agents:
            agent.strategy = FreeRider()
        outcome = play(center, agents)
        assert outcome.delivered == {"agent-1": pytest.approx(5 / 3), "agent-2": pytest.approx(5 / 3)}
        assert book.head().count == 5


def test_reading_a_finished_run_again_keeps_its_certificate(tmp_path) -> None:
    terms = {"mechanism": "2p-upbred", "beta": "0.5", "rounds": 3}
    outcome = fedincentive.play(repaired_example(), ledger=tmp_path / "l.db", **terms)
    folder = tmp_path / "l.db.runs" / "run"
    before = (folder / "manifest.json").read_bytes()
    again = fedincentive.play(repaired_example(), ledger=tmp_path / "l.db", resume=True, **terms)
    assert again.certificate == outcome.certificate
    settings = fedincentive.Settings.read(terms)
    with ledger.open(tmp_path / "l.db") as book:
        Center.restore(folder, settings, mechanisms.get("2p-upbred", settings), book)
    assert (folder / "manifest.json").read_bytes() == before and b'"certificate": {' in before


def test_a_run_begun_with_a_step_size_keeps_it_where_the_settings_name_none(tmp_path):
    """As every run of an older release was, whose default was 0.5."""
    given = {"game": {"kind": "repaired"}}
    whole = fedincentive.play(given, beta="0.5", gamma=0.5, rounds=3, state=tmp_path / "whole")
    with pytest.raises(RuntimeError, match="power cut"):
        fedincentive.play(given, beta="0.5", gamma=0.5, rounds=3, state=tmp_path / "cut", progress=_power_cut)
    resumed = fedincentive.play(given, beta="0.5", rounds=3, state=tmp_path / "cut", resume=True)
    assert (resumed.contributed, resumed.s) == (whole.contributed, whole.s)
    assert whole.contributed > 5  # strides are faster


def _power_cut(result) -> None:
    if result.round == 2:
        raise RuntimeError("power cut")
