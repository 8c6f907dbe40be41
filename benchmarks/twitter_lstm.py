"""The paper's 120,255,086-parameter Twitter LSTM across silos by gRPC: one server, three clients, trim-2p-upbred.

    python benchmarks/twitter_lstm.py --data DATA          # DATA/sent140/*.json: Sentiment140 in LEAF's layout

runs FedML's own runner in four processes on loopback with the model's full shape and real tweets, updates waiting on
disk at the server, and prints what every process needed at its peak, the payments, and the verified ledger.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLIENTS = 3
CONFIG = """
common_args: {{training_type: cross_silo, random_seed: 0, scenario: horizontal, using_mlops: false}}
data_args: {{dataset: tweets, data_cache_dir: {data}}}
model_args: {{model: lstm}}
train_args: {{federated_optimizer: trim-2p-upbred, client_num_in_total: 3, client_num_per_round: 3,
  client_id_list: "[]", comm_round: {rounds}, epochs: 1, batch_size: 32, client_optimizer: sgd, learning_rate: 0.1}}
validation_args: {{frequency_of_the_test: 1000}}
device_args: {{using_gpu: false, worker_num: 3}}
comm_args: {{backend: GRPC, grpc_ipconfig_path: {folder}/addresses.csv}}
tracking_args: {{enable_wandb: false}}
incentive_args:
  incentive: {{beta: "0.5", gamma: 1000.0, cost: 0.1, value_per_nat: 100.0, alpha: 0.33, spill: always,
    output: {folder}/runs, server_timeout: 600.0}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with Sentiment140 in LEAF's layout")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twitter-lstm-") as name:
        orchestrate(Path(name), given.data.resolve(), given.rounds)


def orchestrate(folder: Path, data: Path, rounds: int) -> None:
    ports = free_ports(CLIENTS + 1)
    lines = [f"{rank},{rank},127.0.0.1,{port}" for rank, port in enumerate(ports)]
    (folder / "addresses.csv").write_text("\n".join(["eid,rank,grpc_server_ip,grpc_server_port", *lines]) + "\n")
    (folder / "config.yaml").write_text(CONFIG.format(data=data, folder=folder, rounds=rounds))
    environment = {**os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    begun, processes = time.perf_counter(), {}
    for rank in range(CLIENTS + 1):
        role = "server" if rank == 0 else "client"
        command = [sys.executable, __file__, "--cf", str(folder / "config.yaml")]
        command += ["--run_id", "lstm", "--rank", str(rank), "--role", role]
        log = open(folder / f"{rank}.log", "w")  # noqa: SIM115
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        processes[process.pid] = f"{role} {rank}"
    failed = []
    for _ in range(CLIENTS + 1):
        pid, status, usage = os.wait4(-1, 0)
        who = processes[pid]
        print(f"{who:<9} peak {usage.ru_maxrss / 1e6:5.2f} GB  {usage.ru_utime + usage.ru_stime:6.0f} s of CPU")
        if status:
            failed.append(who)
            print((folder / f"{who.split()[1]}.log").read_text()[-3000:])
    print(f"{rounds} training rounds in {time.perf_counter() - begun:.0f} s")
    for action in (["verify", "--recompute"], ["balances"]):
        ledger = str(folder / "runs" / "lstm" / "ledger.sqlite")
        subprocess.run([sys.executable, "-m", "fedincentive.cli", "ledger", *action, ledger], cwd=folder, check=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def federated() -> None:
    """One process of the federation: an ordinary FedML program."""
    import fedml
    import torch
    from fedml import FedMLRunner
    from torch.utils.data import DataLoader, TensorDataset

    from fedincentive.experiments import data, models

    args = fedml.init()
    torch.manual_seed(0)
    tweets = data.read("sent140", args.data_cache_dir)
    x, y = torch.as_tensor(tweets.x), torch.as_tensor(tweets.y)
    share = [64, 96, 128]  # a few batches each: what is large here is the model

    def loader(start: int, stop: int) -> DataLoader:
        return DataLoader(TensorDataset(x[start:stop], y[start:stop]), batch_size=args.batch_size)

    starts = [sum(share[:i]) + 32 * i for i in range(CLIENTS)]
    train = {i: loader(start, start + share[i]) for i, start in enumerate(starts)}
    test = {i: loader(start + share[i], start + share[i] + 32) for i, start in enumerate(starts)}
    counts = dict(enumerate(share))
    dataset = [sum(share), 96, loader(0, 288), loader(288, 384), counts, train, test, 2]
    model = models.TweetNet()
    assert models.size(model) == 120_255_086
    FedMLRunner(args, fedml.device.get_device(args), dataset, model).run()


if __name__ == "__main__":
    federated() if "--cf" in sys.argv else main()
