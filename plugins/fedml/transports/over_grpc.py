"""FedML's own gRPC service, with frames that are never unpickled.

It differs from FedML's manager where that one fails: each end binds its configured address only, a send waits for an
end that has not started yet, a receiver sleeps while nothing comes, and an unreachable end is an error in time. A large
frame travels in parts, and an end takes few of them at a time, so that its memory does not grow with their number.
"""

from __future__ import annotations

import csv
import logging
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import grpc
from fedml.core.distributed.communication.constants import CommunicationConstants
from fedml.core.distributed.communication.grpc import grpc_comm_manager_pb2 as pb2
from fedml.core.distributed.communication.grpc import grpc_comm_manager_pb2_grpc as service

from ....errors import RunError, SettingError
from ..wire import Buffer
from .chunks import LARGEST, PART, Assembly, Busy, Lost, Oversized, divide
from .tls import Tls

OPTIONS = [
    ("grpc.max_send_message_length", PART + 1024),
    ("grpc.max_receive_message_length", PART + 1024),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),  # two servers on one port would share its clients
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 100),
]
BUSY, AGAIN = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.FAILED_PRECONDITION
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, BUSY, AGAIN)
PAUSE = 0.2
SERVER = 0
WAITING_FRAMES, WAITING_BYTES = 256, 64 * 2**20  # a flood is turned away instead of filling the memory


class GrpcTransport:
    """`limit` is the size of the largest frame that may come. With `tls` nothing travels in the clear."""

    concurrent = True

    def __init__(self, table: str, rank: int, size: int, limit: int = LARGEST, tls: Tls | None = None) -> None:
        self.rank, self._tls = rank, tls
        self._addresses = read_table(table, size)
        self._inbox: queue.Queue[tuple[str, Buffer]] = queue.Queue()
        self._assembly, self._in_use = Assembly(max(limit, PART)), False
        self._channels: dict[int, grpc.Channel] = {}
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8), options=OPTIONS)
        service.add_gRPCCommManagerServicer_to_server(_Inbox(self._inbox, self._assembly), self._server)
        address = self._addresses[rank].own
        try:
            bound = (
                self._server.add_insecure_port(address)
                if tls is None
                else self._server.add_secure_port(address, tls.listening())
            )
        except RuntimeError as error:
            raise RunError(f"Rank {rank} cannot listen on {address} ({error}). Is another run using it?") from None
        if not bound:
            raise RunError(f"Rank {rank} cannot listen on {address}. Is another run using it?")
        self._server.start()
        logging.info("fedincentive: rank %d listens on %s", rank, address)

    def send(self, rank: int, frame: bytes, timeout: float) -> None:
        if rank not in self._channels:
            address = self._addresses[rank].reached
            self._channels[rank] = (
                grpc.insecure_channel(address, options=OPTIONS)
                if self._tls is None
                else grpc.secure_channel(address, self._tls.calling(), options=OPTIONS)
            )
        stub, end = service.gRPCCommManagerStub(self._channels[rank]), time.monotonic() + timeout
        parts, number = divide(frame), 0
        while number < len(parts):
            request = pb2.CommRequest(client_id=self.rank, message=parts[number])
            try:
                stub.sendMessage(request, timeout=max(end - time.monotonic(), 0.001), wait_for_ready=True)
                number, end = number + 1, time.monotonic() + timeout  # a large frame takes as long as it takes
            except grpc.RpcError as error:
                # A call that was under way when the other end died fails at once; that end may be coming back.
                if error.code() not in PASSING or time.monotonic() + PAUSE > end:
                    where = f"rank {rank} at {self._addresses[rank].reached}"
                    raise ConnectionError(f"{where}: {error.code().name}, {error.details()}") from None
                if error.code() is BUSY and rank == SERVER:
                    end = time.monotonic() + timeout  # it is there, and will have time
                if error.code() is AGAIN:
                    number = 0
                time.sleep(PAUSE)

    def receive(self, timeout: float) -> tuple[str, Buffer] | None:
        if self._in_use:  # until now: whoever received it has what it wanted
            self._assembly.release()
            self._in_use = False
        try:
            sender, frame = self._inbox.get(timeout=timeout)
        except queue.Empty:
            return None
        self._in_use = not isinstance(frame, bytes)
        return sender, frame

    def close(self) -> None:
        self._server.stop(1.0).wait()
        for channel in self._channels.values():
            channel.close()

    abort = close


class _Inbox(service.gRPCCommManagerServicer):
    def __init__(self, inbox: queue.Queue[tuple[str, Buffer]], assembly: Assembly) -> None:
        self._inbox, self._assembly = inbox, assembly

    def sendMessage(self, request: pb2.CommRequest, context: grpc.ServicerContext) -> pb2.CommResponse:  # noqa: N802
        try:
            if self._inbox.qsize() >= WAITING_FRAMES or self._waiting() > WAITING_BYTES:
                raise Busy
            frame = self._assembly.add(request.message, sender_of(context))
            if frame is not None:
                self._inbox.put((f"{context.peer()} (says it is rank {request.client_id})", frame))
        except Oversized:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is larger than any of this run")
        except Busy:
            context.abort(BUSY, "too many messages are waiting")
        except Lost:
            context.abort(AGAIN, "the parts before this one are not here: send them all again")
        return pb2.CommResponse()

    def _waiting(self) -> int:
        """Bytes of small frames in the inbox; large ones have places of their own."""
        with self._inbox.mutex:
            return sum(len(frame) for _, frame in self._inbox.queue if isinstance(frame, bytes))


def sender_of(context: grpc.ServicerContext) -> str:
    """Who sends, as far as it cannot be made up: the certificate where one is asked for, else the machine's address."""
    certificate = context.auth_context().get("x509_pem_cert")
    return certificate[0].decode() if certificate else context.peer().rsplit(":", 1)[0]


class RankAddress(NamedTuple):
    """Where a rank listens and where others reach it; they differ behind an ingress."""

    own: str
    reached: str


def read_table(path: str, size: int) -> dict[int, RankAddress]:
    """FedML's grpc_ipconfig.csv by rank; a rank without a row is an error, not an open port.

    The columns are eid,rank,grpc_server_ip,grpc_server_port and perhaps ingress_ip; or receiver_id,ip as in FedML's
    older examples, with its own numbering of ports.
    """
    try:
        with Path(path).open(newline="") as file:
            rows = list(csv.DictReader(file))
        table = dict(_address(row) for row in rows)
    except OSError as error:
        raise SettingError(f"comm_args.grpc_ipconfig_path: {path} cannot be read ({error.strerror}).") from None
    except (KeyError, ValueError, AttributeError, TypeError):
        raise SettingError(
            f"comm_args.grpc_ipconfig_path: {path} needs the columns eid,rank,grpc_server_ip,grpc_server_port."
        ) from None
    missing = [rank for rank in range(size) if rank not in table]
    if missing:
        raise SettingError(
            f"comm_args.grpc_ipconfig_path: {path} has no row with eid {missing[0]}; ranks 0..{size - 1} need one: the "
            "server, device_args.worker_num client processes (client_num_per_round where that is not given) and "
            "incentive.auditors."
        )
    return table


def _address(row: dict[str, str]) -> tuple[int, RankAddress]:
    if "receiver_id" in row:
        rank = int(row["receiver_id"])
        own, port = row["ip"].strip(), CommunicationConstants.GRPC_BASE_PORT + rank
    else:
        rank, own, port = int(row["eid"]), row["grpc_server_ip"].strip(), int(row["grpc_server_port"])
    ingress = (row.get("ingress_ip") or "").strip()
    return rank, RankAddress(f"{own}:{port}", f"{own if ingress in ('', 'None') else ingress}:{port}")
