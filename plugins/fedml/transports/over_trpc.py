"""Frames over torch's RPC, as FedML's TRPC backend does. Torch's RPC runs what its peers ask: trusted machines only."""

from __future__ import annotations

import csv
import os
import queue
from pathlib import Path

from torch.distributed import rpc

from ....errors import SettingError

WORKER = "worker{}"
JOIN_TIMEOUT = 300.0
_inbox: queue.Queue[tuple[str, bytes]] = (
    queue.Queue()
)  # torch calls a module-level function, so it fills a module-level queue


def deliver(sender: int, frame: bytes) -> None:
    """Called in the receiver's process by torch's RPC."""
    _inbox.put((f"rank {sender}", frame))


class TrpcTransport:
    concurrent = True

    def __init__(self, table: str, rank: int, size: int) -> None:
        self.rank = rank
        address, port = read_table(table)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, port
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"tcp://{address}:{port}", rpc_timeout=JOIN_TIMEOUT, _transports=["uv"]
        )
        rpc.init_rpc(
            WORKER.format(rank),
            backend=rpc.BackendType.TENSORPIPE,
            rank=rank,
            world_size=size,
            rpc_backend_options=options,
        )

    def send(self, rank: int, frame: bytes, timeout: float) -> None:
        try:
            rpc.rpc_sync(WORKER.format(rank), deliver, args=(self.rank, frame), timeout=timeout)
        except RuntimeError as error:
            raise ConnectionError(f"rank {rank}: {str(error).splitlines()[0]}") from None

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        try:
            return _inbox.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        # A graceful shutdown waits for every rank, the dead ones too.
        rpc.shutdown(graceful=False)

    abort = close


def read_table(path: str) -> tuple[str, str]:
    """FedML's trpc_master_config.csv: a header line, then the server's address and port."""
    try:
        with Path(path).open(newline="") as file:
            rows = list(csv.reader(file))
        address, port = rows[1][0].strip(), str(int(rows[1][1]))
    except OSError as error:
        raise SettingError(f"comm_args.trpc_master_config_path: {path} cannot be read ({error.strerror}).") from None
    except (IndexError, ValueError):
        raise SettingError(
            f"comm_args.trpc_master_config_path: {path} needs a header line and one line with address and port."
        ) from None
    return address, port
