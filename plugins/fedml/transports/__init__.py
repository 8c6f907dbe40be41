"""Links carry frames of bytes between rank 0 (the server) and ranks 1..n (the clients), by FedML's backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ....checks import nearest
from ....errors import SettingError
from ..settings import FedmlSettings
from ..wire import Buffer

BACKENDS = ("GRPC", "MPI", "TRPC")


class Transport(Protocol):
    """One end. `send` raises ConnectionError when the other end cannot be reached in time; nothing else is lost."""

    concurrent: bool  # may several threads send at once?

    def send(self, rank: int, frame: bytes, timeout: float) -> None: ...

    def receive(self, timeout: float) -> tuple[str, Buffer] | None:
        """(a description of the sender for the log, frame), or None after `timeout` seconds."""

    def close(self) -> None: ...

    def abort(self) -> None:
        """After an error: let nobody wait for this end."""


def connect(args: Any, rank: int, size: int, host: FedmlSettings, largest: Callable[[], int]) -> Transport:
    """The link for `args.backend`; `size` counts the server too, `largest()` is the most bytes a message has."""
    backend = str(args.backend)
    if backend == "GRPC":
        from . import tls
        from .over_grpc import GrpcTransport, read_table

        table = required(args, "grpc_ipconfig_path")
        return GrpcTransport(table, rank, size, largest(), tls.read(host, read_table(table, size)[rank].reached))
    if host.tls_ca or host.tls_certificate or host.tls_key:
        raise SettingError(f"incentive.tls_ca and its fellows are for backend GRPC, not {backend}: leave them out.")
    if backend == "MPI":
        from .over_mpi import MpiTransport

        return MpiTransport(args.comm, rank)
    if backend == "TRPC":
        from .over_trpc import TrpcTransport

        return TrpcTransport(required(args, "trpc_master_config_path"), rank, size)
    raise SettingError(f"comm_args.backend is {backend!r}, which is not driven here.{nearest(backend, BACKENDS)}")


def required(args: Any, name: str) -> str:
    value = getattr(args, name, None)
    if not value:
        raise SettingError(f"comm_args.{name} is required with backend {args.backend}.")
    return str(value)
