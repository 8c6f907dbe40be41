"""FedML programs as its users run them: real processes, real backends on loopback, FedML's own runner."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fedml_runs import MAIN
from programs import run, text_of, wait_for_words

HERE = Path(__file__).parent


class Process:
    """One running FedML program."""

    def __init__(self, connection: socket.socket, log: Path) -> None:
        self._answers = connection.makefile("rb")
        self._connection = connection
        self.log = log
        self.pid = int(self._answers.readline())
        self._status: int | None = None

    def wait(self, timeout: float = 300.0) -> int:
        """Its exit status; a program that does not end in time is killed, and its log shown."""
        if self._status is None:
            self._connection.settimeout(timeout)
            try:
                self._status = int(self._answers.readline())
            except TimeoutError:
                self.kill()
                pytest.fail(f"{self.log.name} does not end within {timeout:g} s:\n{self.text()[-4000:]}")
        return self._status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def text(self) -> str:
        return text_of(self.log)

    def says(self, words: str, timeout: float = 300.0) -> None:
        """Wait until its log holds these words."""
        wait_for_words(self.log, words, timeout)

    def ends_well(self, timeout: float = 300.0) -> None:
        assert self.wait(timeout) == 0, self.text()[-4000:]


class Starter:
    """Starts FedML programs from one process that has imported FedML already."""

    def __init__(self, socket_path: Path) -> None:
        self._path = str(socket_path)

    def __call__(self, cwd: Path, *argv: object, log: str, **env: str) -> Process:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        job = {"argv": [str(a) for a in argv], "cwd": str(cwd), "env": env, "log": str(cwd / f"{log}.log")}
        connection.sendall(json.dumps(job).encode() + b"\n")
        return Process(connection, cwd / f"{log}.log")

    def rank(self, cwd: Path, cf: Path, rank: int, run: str = "run", main: Path = MAIN) -> Process:
        role = "client" if rank else "server"
        options = ("--cf", cf.name, "--run_id", run, "--rank", rank, "--role", role)
        return self(cwd, main, *options, log=f"{run}-{rank}")

    def all_ranks(self, cwd: Path, cf: Path, clients: int = 3, run: str = "run", main: Path = MAIN) -> list[Process]:
        """A whole cross-silo run, clients first: they must wait for their server."""
        processes = [self.rank(cwd, cf, rank, run, main) for rank in (*range(1, clients + 1), 0)]
        for process in processes:
            process.ends_well()
        return processes


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """FedML writes ~/.fedml and reads the network's settings: it gets a home of its own."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("PYTHONPATH", raising=False)
        yield folder


@pytest.fixture(scope="session")
def start(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    folder = tmp_path_factory.mktemp("forks")
    path = folder / "socket"
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "forks.py"), str(path)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", (folder / "errors").read_text()
    yield Starter(path)
    process.kill()
    process.wait()


@pytest.fixture
def python(home: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """`python("main.py", ...)` runs the interpreter as a user does, in tmp_path."""

    def call(*argv: object, ok: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, *argv, cwd=tmp_path, env={**os.environ, **env}, ok=ok)

    return call
