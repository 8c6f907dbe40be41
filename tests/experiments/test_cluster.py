"""Studies on a Ray cluster of two nodes: the same bytes as in local processes, also after losses and interruptions."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedincentive.cli.reproduce import reproduce
from fedincentive.errors import RunError, SettingError
from fedincentive.experiments import presets, runner
from fedincentive.experiments.cluster import Cluster

ray = pytest.importorskip("ray", reason="pip install 'fedincentive[cluster]'")
SMALL = {"betas": ["0.4", "2"], "economies": ["calibrated"], "agents": 4}
FILES = ("results.jsonl", "results.csv", "welfare-vs-beta.png")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two nodes of one core each, on loopback, as `ray start` makes them."""
    head, client = free_port(), free_port()
    where = f"ray://127.0.0.1:{client}"
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder,  # Ray's sockets need a short path
        start(folder, "--head", f"--port={head}", f"--ray-client-server-port={client}"),
    ):
        wait_for(client)
        with start(folder, f"--address=127.0.0.1:{head}"):
            wait_for_two(where)
            yield where


@contextmanager
def start(folder: str, *options: str) -> Iterator[None]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", *options]
    command += ["--node-ip-address=127.0.0.1", "--disable-usage-stats", "--object-store-memory=100000000"]
    with open(f"{folder}/log", "ab") as log:
        own = {"env": {**os.environ, "RAY_TMPDIR": folder}, "start_new_session": True}
        node = subprocess.Popen(command, stdout=log, stderr=log, **own)
    try:
        yield
    finally:
        with suppress(subprocess.TimeoutExpired):
            node.terminate()
            node.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)


def wait_for(port: int) -> None:
    give_up = time.monotonic() + 180
    while True:
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 5).close()
        assert time.monotonic() < give_up
        time.sleep(0.2)


def wait_for_two(where: str) -> None:
    """On a busy machine a head node takes its time before it serves anybody."""
    give_up = time.monotonic() + 300
    found = 0
    while found < 2:
        assert time.monotonic() < give_up
        with suppress(SettingError), Cluster(where):
            found = sum(node["Alive"] for node in ray.nodes())
        time.sleep(0.2)


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Iterator[Path]:
    whole = presets.load("quick")
    whole["studies"]["welfare-vs-beta"].update(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets, "load", lambda name: whole)
        yield play(tmp_path_factory.mktemp("local"), jobs=1)


def play(out: Path, **how: object) -> Path:
    return runner.run("welfare-vs-beta", out, seeds=2, only=["digits"], **how)


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


def results(folder: Path) -> list[dict[str, object]]:
    """Without the heads: a case that is played again is the first in a ledger of its own."""
    return [{**r, "result": {**r["result"], "head": None}} for r in runner.lines(folder / "results.jsonl")]


def test_a_cluster_gives_the_bytes_of_local_processes(local: Path, address: str, tmp_path: Path) -> None:
    spread = play(tmp_path, cluster=address)
    assert contents(spread) == contents(local)
    assert len(list((spread / "raw").iterdir())) == 2  # one job for each node
    assert not (spread / runner.OWNER).exists()


def test_an_interrupted_run_goes_on_in_a_cluster(local: Path, address: str, tmp_path: Path) -> None:
    folder = tmp_path / "welfare-vs-beta"
    shutil.copytree(local, folder)
    first, second = sorted((folder / "raw").iterdir())
    written = first.read_text().splitlines(keepends=True)
    first.write_text("".join(written[:2]) + written[2][:40])  # killed in the middle of a line
    second.unlink()
    for name in FILES:
        (folder / name).unlink()
    resumed = play(tmp_path, cluster=address, resume=True)
    assert results(resumed) == results(local)


def test_a_job_whose_worker_is_lost_runs_again(address: str, tmp_path: Path) -> None:
    def dies_once(folder: Path) -> None:
        if not (folder / "died").exists():
            (folder / "died").touch()
            os._exit(1)
        (folder / "done").touch()

    with Cluster(address) as machines:
        machines.submit(dies_once, tmp_path).result(120)
    assert (tmp_path / "died").exists() and (tmp_path / "done").exists()


def test_a_machine_without_the_folder_says_so(address: str, tmp_path: Path) -> None:
    work = ("example1", "all", [], {}, tmp_path / "only-here", None, "owner")
    with Cluster(address) as machines, pytest.raises(RunError, match="only-here.* every machine of the cluster"):
        machines.submit(runner._work, *work).result(120)


def test_workers_of_an_earlier_run_write_nothing(tmp_path: Path) -> None:
    (tmp_path / runner.OWNER).write_text("the next one")
    runner._work("example1", "all", [{"kind": "frozen"}], {}, tmp_path, None, "an earlier one")
    assert [path.name for path in tmp_path.iterdir()] == [runner.OWNER]


def test_an_address_where_nobody_answers_is_named(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ray.util.client.worker.INITIAL_TIMEOUT_SEC", 0.1)  # Ray asks three times
    where = f"ray://127.0.0.1:{free_port()}"
    with pytest.raises(SettingError, match=f"--on {where}: no Ray cluster answers"):
        runner.run("example1", tmp_path, cluster=where)
    two = CliRunner().invoke(reproduce, ["example1", "--on", where, "--on", "ray://127.0.0.1:1"])
    assert two.exit_code == 2 and "two clusters" in two.output
