"""FedML programs as its users run them: real processes, real backends on loopback, FedML's own runner."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ports import free_port

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "fedml"
MAIN = EXAMPLES / "main.py"


def write_config(
    folder: Path,
    backend: str,
    optimizer: str,
    *,
    clients: int = 3,
    rounds: int = 3,
    incentive: Any = None,
    **extra: Any,
) -> Path:
    """A FedML YAML as a user would write it, with the tables of its backend beside it."""
    sections: dict[str, dict[str, Any]] = {
        "common_args": {"training_type": "simulation", "random_seed": 0},
        "data_args": {"dataset": "digits"},
        "model_args": {"model": "lr"},
        "train_args": {
            "federated_optimizer": optimizer,
            "client_num_in_total": clients,
            "client_num_per_round": clients,
            "comm_round": rounds,
            "epochs": 1,
            "batch_size": 32,
            "client_optimizer": "sgd",
            "learning_rate": 0.5,
        },
        "validation_args": {"frequency_of_the_test": 1},
        "device_args": {"using_gpu": False},
        "comm_args": {"backend": backend},
        "tracking_args": {"enable_wandb": False},
    }
    if backend in ("GRPC", "TRPC"):
        sections["common_args"] |= {"training_type": "cross_silo", "scenario": "horizontal", "using_mlops": False}
        sections["train_args"]["client_id_list"] = "[]"
        sections["device_args"]["worker_num"] = clients
    if backend == "GRPC":
        ports = [free_port() for _ in range(clients + 1)]
        rows = "".join(f"{rank},{rank},127.0.0.1,{port}\n" for rank, port in enumerate(ports))
        (folder / "grpc_ipconfig.csv").write_text("eid,rank,grpc_server_ip,grpc_server_port\n" + rows)
        sections["comm_args"]["grpc_ipconfig_path"] = "grpc_ipconfig.csv"
    if backend == "TRPC":
        (folder / "trpc_master_config.csv").write_text(f"master_ip,master_port\n127.0.0.1,{free_port()}\n")
        sections["comm_args"]["trpc_master_config_path"] = "trpc_master_config.csv"
    if backend == "MPI":
        (folder / "gpu_mapping.yaml").write_text(f"mapping_default:\n  localhost: [{clients + 1}]\n")
        sections["device_args"] |= {"gpu_mapping_file": "gpu_mapping.yaml", "gpu_mapping_key": "mapping_default"}
    if incentive is not None:
        sections["incentive_args"] = {"incentive": incentive}
    for section, values in extra.items():
        sections.setdefault(section, {}).update(values)
    path = folder / f"{optimizer}-{backend}.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


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
        return self.log.read_text() if self.log.exists() else ""

    def says(self, words: str, timeout: float = 300.0) -> None:
        """Wait until its log holds these words."""
        end = time.monotonic() + timeout
        while words not in self.text():
            assert time.monotonic() < end, f"{self.log.name} never says {words!r}:\n{self.text()[-4000:]}"
            time.sleep(0.05)

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
def config() -> Any:
    """`config(folder, backend, optimizer, ...)` writes a FedML YAML and returns its path."""
    return write_config


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

    def run(*argv: object, ok: bool = True, cwd: Path = tmp_path, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *map(str, argv)],
            cwd=cwd,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert (done.returncode == 0) == ok, done.stdout[-2000:] + done.stderr[-4000:]
        return done

    return run
