"""Updates that wait on disk: the same run to the byte, nothing left behind, and clear words when the disk fails."""

from __future__ import annotations

import gc
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from table import play, set_table

from fedincentive import game
from fedincentive.aggregation import StoredUpdate
from fedincentive.center import Center, spill
from fedincentive.errors import AggregationError, RunError


@pytest.fixture
def quadratic():
    return game.random_quadratic(5, 7, 3)


def waiting(center):
    return center._spill.folder.iterdir()


@pytest.mark.parametrize("mechanism", ["fedavg", "2p-upbred", "trim-2p-upbred", "t-upbred"])
def test_a_spilled_run_is_the_same_run(quadratic, tmp_path: Path, mechanism: str) -> None:
    values = {"rounds": 4, "beta": "50", "gamma": 0.5, "alpha": 0.2, "eta": 0.01, "loss_cap": 1e6}
    wanted = play(*set_table(quadratic, mechanism, spill="never", **values))
    center, agents = set_table(quadratic, mechanism, spill="always", folder=tmp_path / "run", **values)
    assert center._spill.active
    got = play(center, agents)
    assert got.digest == wanted.digest and got.payments == wanted.payments and got.s == wanted.s
    assert list(waiting(center)) == []


def half_a_round(quadratic, **options):
    center, agents = set_table(quadratic, "fedavg", spill="always", rounds=2, eta=0.01, **options)
    broadcast = center.broadcast()
    for agent in agents[:3]:
        center.submit(agent.respond(broadcast))
    return center, agents, broadcast


def test_an_accepted_update_is_on_disk_at_once(quadratic, tmp_path: Path) -> None:
    center, agents, broadcast = half_a_round(quadratic, folder=tmp_path / "run")
    files = sorted(waiting(center))
    assert len(files) == 3
    with StoredUpdate(files[0]) as kept:
        assert kept.metadata["agent"] == agents[0].name
        assert np.array_equal(kept["w"], agents[0].respond(broadcast).update["w"])
    assert all(isinstance(answer.update, StoredUpdate) for answer in center._reports.values())


def test_damage_while_waiting_is_named(quadratic, tmp_path: Path) -> None:
    center, agents, broadcast = half_a_round(quadratic, folder=tmp_path / "run")
    for agent in agents[3:]:
        center.submit(agent.respond(broadcast))
    path = sorted(waiting(center))[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(AggregationError, match=f"of client '{agents[1].name}' is damaged in entry 'w'"):
        center.close()


def test_without_a_state_directory_the_files_go_with_the_center(quadratic) -> None:
    center, _, _ = half_a_round(quadratic)
    folder = center._spill.folder
    assert len(list(folder.iterdir())) == 3
    del center
    assert not folder.exists()


def test_a_run_resumed_in_the_same_process_keeps_its_updates(quadratic, tmp_path: Path) -> None:
    center, agents, _ = half_a_round(quadratic, folder=tmp_path / "run")
    settings, mechanism = center.settings, center.mechanism
    (tmp_path / "run" / ".fedincentive-0123.partial").touch()  # as a process that was killed may leave
    center.release()
    center = Center.restore(tmp_path / "run", settings, mechanism)
    gc.collect()  # the first center goes, and with it only what was its own
    broadcast = center.broadcast()
    for agent in agents:
        center.submit(agent.respond(broadcast))
    assert len(list(waiting(center))) == len(agents)
    assert [path.name for path in (tmp_path / "run").glob("fedincentive-spill-*")] == [center._spill.folder.name]
    assert not list((tmp_path / "run").glob("*.partial"))


FORKED = """
import os, sys
from pathlib import Path
import numpy as np
from fedincentive import mechanisms
from fedincentive.center.spill import Spill
settings = mechanisms.Settings.read({"run": "forked", "spill": "always"})
spill = Spill(mechanisms.get("fedavg", settings), 3, {"w": np.zeros(3)}, Path(sys.argv[1]))
if os.fork() == 0:
    sys.exit(0)
os.wait()
assert spill.folder.exists()
"""


def test_a_forked_child_that_ends_takes_nothing_with_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED, tmp_path / "run"], cwd=tmp_path, check=True)
    assert list((tmp_path / "run").iterdir()) == [], "the process itself does"


def test_a_state_folder_that_cannot_be_is_named(quadratic, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be kept in .*file: File exists. Choose another state folder"):
        set_table(quadratic, "fedavg", spill="always", folder=tmp_path / "file")


def test_a_full_disk_leaves_the_last_round_intact(quadratic, tmp_path: Path) -> None:
    center, agents, _ = half_a_round(quadratic, folder=tmp_path / "run")
    saved = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(RunError, match=f"agent '{agents[3].name}' cannot wait on disk: .* Remove the cause"):
            center.submit(agents[3].respond(center.broadcast()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == saved
    assert len(list(waiting(center))) == 3
    assert center.submit(agents[3].respond(center.broadcast()))


def test_auto_goes_by_free_memory(quadratic, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spill.free_memory() > 2**20
    assert not set_table(quadratic, "fedavg")[0]._spill.active
    monkeypatch.setattr(spill, "free_memory", lambda: 2 * 7 * quadratic.w0.nbytes - 1)
    assert set_table(quadratic, "fedavg")[0]._spill.active
    assert not set_table(quadratic, "fedavg", aggregation="centered-clipping")[0]._spill.active
    monkeypatch.setattr(spill, "free_memory", lambda: 2 * 7 * quadratic.w0.nbytes)
    assert not set_table(quadratic, "fedavg")[0]._spill.active
