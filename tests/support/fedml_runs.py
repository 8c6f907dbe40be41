"""Runs of FedML as its users write them down and start them, and what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples" / "fedml"
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
        ports = [free_port() for _ in range(clients + 1 + len((incentive or {}).get("auditors", ())))]
        sections["comm_args"]["grpc_ipconfig_path"] = grpc_table(folder, ports).name
    if backend == "TRPC":
        (folder / "trpc_master_config.csv").write_text(f"master_ip,master_port\n127.0.0.1,{free_port()}\n")
        sections["comm_args"]["trpc_master_config_path"] = "trpc_master_config.csv"
    if backend == "MPI":
        ranks = clients + 1 + len((incentive or {}).get("auditors", ()))
        (folder / "gpu_mapping.yaml").write_text(f"mapping_default:\n  localhost: [{ranks}]\n")
        sections["device_args"] |= {"gpu_mapping_file": "gpu_mapping.yaml", "gpu_mapping_key": "mapping_default"}
    if incentive is not None:
        sections["incentive_args"] = {"incentive": {"accept_losses": True, **incentive}}  # they test the carrying
    for section, values in extra.items():
        sections.setdefault(section, {}).update(values)
    path = folder / f"{optimizer}-{backend}.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def grpc_table(folder: Path, ports: Sequence[int]) -> Path:
    """The addresses of the ranks, all of this machine."""
    path = folder / "grpc_ipconfig.csv"
    rows = "".join(f"{rank},{rank},127.0.0.1,{port}\n" for rank, port in enumerate(ports))
    path.write_text("eid,rank,grpc_server_ip,grpc_server_port\n" + rows)
    return path


def mpirun(needs: Any, *argv: object, ranks: int = 4) -> list[str]:
    """The command that runs a Python program as one server and three clients, on a machine with few cores too."""
    words = [needs("mpirun"), "--allow-run-as-root", "--oversubscribe", "-np", ranks, sys.executable, *argv]
    return [str(word) for word in words]


def in_backends(start: Any, needs: Any, program: Path, files: Mapping[str, Sequence[Path]], root: Path) -> None:
    """A program with its configurations in every backend, all side by side, to their ends."""
    command = mpirun(needs, program, *files["MPI"])
    mpi = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    others = [start(root, program, *files["sp"], log="sp")]
    for backend in (name for name in files if name not in ("sp", "MPI")):
        for rank, role in ((1, "client"), (2, "client"), (3, "client"), (0, "server")):
            options = ("--", "--rank", rank, "--role", role)
            others.append(start(root, program, *files[backend], *options, log=f"{backend}-{rank}"))
    for process in others:
        process.ends_well(timeout=500)
    out, _ = mpi.communicate(timeout=500)
    assert mpi.returncode == 0, out[-4000:]


def accuracy(text: str) -> float:
    """The last test accuracy that FedML printed."""
    return float(re.findall(r"'test_acc': ([0-9.]+)", text)[-1])
