"""The files of a run: one owner at a time, nothing stale or damaged is played on, and each round costs the same."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command
from table import BLIND, answer, play, play_until, set_table

from fedincentive import ledger
from fedincentive.agent import FreeRider
from fedincentive.center import Center
from fedincentive.center.state import Texts
from fedincentive.errors import LedgerError, RunError
from fedincentive.game import repaired_example
from fedincentive.hosting import HostSettings, Session
from fedincentive.manifest import SavedRun
from fedincentive.settings import Settings

log = logging.getLogger("fedincentive")
CAMPAIGN = Path(__file__).parents[2] / "benchmarks" / "kill_runs.py"
TERMS = {"run": "r", "mechanism": "2p-upbred", "rounds": 5, "beta": "0.5", "gamma": 20.0, "resume": True}


def seat(folder: Path, book=None, **values):
    return set_table(repaired_example(), book=book, folder=folder, oracles=BLIND, **{**TERMS, **values})


def stopped(folder: Path, book=None, trained: int = 2, **values) -> None:
    """A run that was stopped after so many training rounds."""
    center, agents = seat(folder, book, **values)
    play_until(center, agents, "train", trained)
    center.release()


@pytest.fixture
def book(tmp_path: Path):
    with ledger.open(tmp_path / "l.db") as opened:
        yield opened


# Killed, damaged, twice at once


def test_killed_damaged_or_played_twice_a_run_ends_the_same_or_is_refused(tmp_path: Path) -> None:
    """A short campaign; `python benchmarks/kill_runs.py` is the long one."""
    few = ["--kills", "8", "--damages", "20", "--pairs", "2", "--rounds", "10"]
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else str(tmp_path)  # a process that dies needs no real disk
    played = [sys.executable, str(CAMPAIGN), *few]
    places = {**os.environ, "TMPDIR": memory}
    done = subprocess.run(played, env=places, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"kills": 8' in done.stdout and '"second refused by name": 2' in done.stdout


def die_before_the_state(center: Center, agents) -> None:
    """Close the round in a child that is killed when the model is on disk and the state is not."""
    child = os.fork()
    if child == 0:
        move = os.replace

        def kill_at_the_state(source, target, **options):
            if Path(target).name == "state.json":
                os.kill(os.getpid(), signal.SIGKILL)
            move(source, target, **options)

        os.replace = kill_at_the_state
        again = Center.restore(center.path, center.settings, center.mechanism, center.ledger)
        answer(again, agents)
        again.close()
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def test_the_model_of_a_round_that_was_never_saved_is_not_played_on(tmp_path: Path) -> None:
    center, agents = seat(tmp_path / "run")
    play_until(center, agents, "train", trained=2)
    center.release()
    lazy = seat(tmp_path / "other")[1]
    for agent in lazy:
        agent.strategy = FreeRider()
    die_before_the_state(center, lazy)
    assert (tmp_path / "run" / "model-3.safetensors").exists()
    center, agents = seat(tmp_path / "run")
    play_until(center, agents, "train", trained=3)
    center.release()
    restored, _ = seat(tmp_path / "run")
    assert restored.run.trained == 3 and restored.w["w"].tobytes() == center.w["w"].tobytes()


def test_a_model_of_another_round_is_refused(tmp_path: Path) -> None:
    stopped(tmp_path / "run", trained=1)
    stale = (tmp_path / "run" / "model-1.safetensors").read_bytes()
    stopped(tmp_path / "run", trained=3)
    (tmp_path / "run" / "model-3.safetensors").write_bytes(stale)
    with pytest.raises(RunError, match="model-3.safetensors is .*not the model that was saved with the state"):
        seat(tmp_path / "run")


@pytest.mark.parametrize("name", ["state.json", "model-2.safetensors", "checkpoints.jsonl"])
def test_what_is_missing_is_named(tmp_path: Path, book, name: str) -> None:
    stopped(tmp_path / "run", book)
    (tmp_path / "run" / name).unlink()
    with pytest.raises(RunError, match=f"{name} is missing"):
        seat(tmp_path / "run", book)


def test_a_checkpoint_that_was_changed_is_refused(tmp_path: Path, book) -> None:
    stopped(tmp_path / "run", book)
    path = tmp_path / "run" / "checkpoints.jsonl"
    path.write_text(path.read_text().replace('"count": 1', '"count": 7'))
    with pytest.raises(RunError, match=r"checkpoints.jsonl is missing or damaged \(it is not what the run wrote\)"):
        seat(tmp_path / "run", book)


@pytest.mark.parametrize("name", ["round", "audit_seed", "optimizer_steps"])
def test_a_state_that_was_changed_is_refused(tmp_path: Path, name: str) -> None:
    stopped(tmp_path)
    path = tmp_path / "state.json"
    changed, times = re.subn(rf'"{name}": (\d+)', rf'"{name}": 1\1', path.read_text(), count=1)
    assert times
    path.write_text(changed)
    with pytest.raises(RunError, match=r"state.json is damaged \(its checksum is wrong\)"):
        seat(tmp_path)


def test_a_state_of_an_older_version_says_so(tmp_path: Path) -> None:
    stopped(tmp_path)
    values = json.loads((tmp_path / "state.json").read_text())
    del values["sha256"]
    (tmp_path / "state.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match="no checksum: cut, or of another version"):
        seat(tmp_path)


def test_what_agents_remember_is_saved_with_the_round(tmp_path: Path) -> None:
    """A state from a backup brings the agents' memory of its own round: they cannot be a round ahead of it."""
    liars = {"lies": {"agent-1": "understate-s"}, "gamma": 0.5, "rounds": 3}
    whole = play(*seat(tmp_path / "whole", **liars))
    center, agents = seat(tmp_path / "run", **liars)
    rounds = itertools.count()
    play(center, agents, progress=lambda _: shutil.copytree(center.path, tmp_path / f"{next(rounds)}"))
    again = play(*seat(tmp_path / "1", **liars))
    assert json.dumps(again.to_json()) == json.dumps(whole.to_json())


# One owner


def test_a_second_center_is_refused_and_told_who_plays(tmp_path: Path) -> None:
    center, agents = seat(tmp_path)
    with pytest.raises(RunError, match=rf"Run 'r' in .* is being played by process {os.getpid()} on .* since 20"):
        seat(tmp_path)
    answer(center, agents)
    center.close()
    center.release()
    seat(tmp_path)[0].release()
    answer(center, agents)
    with pytest.raises(RunError, match="Run 'r' was released here: open it again"):
        center.close()


def test_a_run_that_cannot_be_resumed_is_not_kept_from_others(tmp_path: Path) -> None:
    stopped(tmp_path)
    with pytest.raises(RunError, match="was begun with beta"):
        seat(tmp_path, beta="0.75")
    play(*seat(tmp_path))


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom fedincentive.center.lock import Lock\n"
        "Lock(Path(sys.argv[1]), 'r')\n"
        "if (child := os.fork()) == 0: time.sleep(60)\n"
        "print(child, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(RunError, match=f"played by process {parent.pid} on"):
            seat(tmp_path)
        parent.kill()
        parent.wait()
        os.kill(child, 0)  # it lives
        seat(tmp_path)[0].release()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_a_host_s_session_gives_the_run_back(tmp_path: Path) -> None:
    settings = Settings.read({**TERMS, "state": str(tmp_path / "state")})
    for _ in range(2):
        session = Session(settings, HostSettings(output=str(tmp_path)), log, ledger=tmp_path / "l.db")
        game = repaired_example()
        agents = set_table(game, **{**TERMS, "resume": False})[1]
        session.center([agent.enrol() for agent in agents], {"w": game.w0})
        session.close()
    with ledger.open(tmp_path / "l.db") as book:
        seat(tmp_path / "state", book)[0].release()


# A close that fails


@pytest.mark.parametrize("more", ["nothing", "reports again"])
def test_closing_again_appends_what_was_pending(tmp_path: Path, book, more: str) -> None:
    """The ledger fails once, after the round was saved: nothing is lost, nothing happens twice."""
    with ledger.open(tmp_path / "whole.db") as other:
        whole = play(*seat(tmp_path / "whole", other))
        bodies = [record.entry.body for record in other.entries()]
    center, agents = seat(tmp_path / "run", book)
    play_until(center, agents, "train", trained=1)
    answer(center, agents)
    gone = ledger.open(tmp_path / "l.db")
    gone.close()
    center.ledger = gone
    for _ in range(2):
        with pytest.raises(LedgerError, match="closed"):
            center.close()
    center.ledger = book
    if more == "reports again":
        answer(center, agents)
    result = center.close()
    assert (result.round, result.phase, result.head) == (center.run.round - 1, "train", center.head)
    assert center.run.trained == 2 and sum(result.payments.values()) == 0
    assert play(center, agents).payments == whole.payments
    assert [record.entry.body for record in book.entries()] == bodies


# What a round costs, and who may read it


def test_a_round_costs_the_same_however_many_came_before(tmp_path: Path, book) -> None:
    center, agents = seat(tmp_path / "run", book, rounds=300)
    play_until(center, agents, "train", trained=10)
    files = [tmp_path / "run" / name for name in ("state.json", "manifest.json")]
    early = [path.stat().st_size for path in files]
    play_until(center, agents, "train", trained=290)
    late = [path.stat().st_size for path in files]
    assert late[0] < early[0] + 100 and late[1] == early[1]
    lines = (tmp_path / "run" / "checkpoints.jsonl").read_text().splitlines()
    assert len(lines) == book.head().count == 292
    play(center, agents)
    saved = SavedRun.read(tmp_path / "run" / "manifest.json")
    assert len(saved.checkpoints) == 302 and saved.checkpoints[-1] == book.head()


def test_the_checkpoints_of_a_stopped_run_are_read_where_they_are(tmp_path: Path, book) -> None:
    stopped(tmp_path / "run", book)
    manifest = tmp_path / "run" / "manifest.json"
    with open(tmp_path / "run" / "checkpoints.jsonl", "ab") as file:
        file.write(b'{"count": 99')  # as a crash may leave it
    assert [c.count for c in SavedRun.read(manifest).checkpoints] == [1, 2, 3, 4]
    done = command("ledger", "verify", tmp_path / "l.db", "--checkpoint", manifest)
    assert done.exit_code == 0 and "4 checkpoints checked" in done.output
    play(*seat(tmp_path / "run", book))
    assert [c.count for c in SavedRun.read(manifest).checkpoints] == [1, 2, 3, 4, 5, 6, 7]


def test_an_older_manifest_is_read(tmp_path: Path) -> None:
    play(*seat(tmp_path))
    path = tmp_path / "manifest.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "checkpoints": [{"count": 1, "hash": "ab" * 32, "kind": "x", "round": 0}]}))
    assert [c.count for c in SavedRun.read(path).checkpoints] == [1]


def test_only_its_owner_reads_the_state(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        stopped(tmp_path)
    finally:
        os.umask(before)
    assert '"audit_seed"' in (tmp_path / "state.json").read_text()
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o600


def test_a_state_that_is_written_in_part_from_memory_is_what_json_would_write() -> None:
    texts, enrolled = Texts(), {"b": {"s_max": 1.5}, "a": {"s_max": 2.0}}
    values = {"run": {"terms": {"agents": {}}, "enrolled": enrolled, "s": {"a": 1}}, "settings": {"b": 1, "a": None}}
    for change in (lambda: None, lambda: enrolled["a"].update(s_max=3.0), lambda: values["settings"].update(c=2)):
        change()  # also where something is changed in its place
        values["run"]["s"]["a"] += 1
        assert texts.state(values) == json.dumps(values, sort_keys=True)
