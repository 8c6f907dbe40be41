"""Frames over MPI as plain bytes. When a rank dies MPI ends the whole job; `abort` makes an error do the same."""

from __future__ import annotations

import time
from typing import Any

TAG = 4630
LARGEST = 2**31 - 1


class MpiTransport:
    concurrent = False

    def __init__(self, comm: Any, rank: int) -> None:
        self.rank = rank
        self._comm = comm
        self._sending: list[tuple[Any, bytes]] = []  # a frame must live until its request completes

    def send(self, rank: int, frame: bytes, timeout: float) -> None:
        if len(frame) > LARGEST:
            raise ConnectionError(f"rank {rank}: a message of {len(frame)} bytes is more than MPI counts; use gRPC.")
        from mpi4py import MPI

        # Not a blocking send: two ends that send a large frame to each other would wait for ever.
        self._sending = [(request, kept) for request, kept in self._sending if not request.Test()]
        self._sending.append((self._comm.Isend([frame, MPI.BYTE], dest=rank, tag=TAG), frame))

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        from mpi4py import MPI

        end, pause = time.monotonic() + timeout, 0.0005
        status = MPI.Status()
        while not self._comm.Iprobe(source=MPI.ANY_SOURCE, tag=TAG, status=status):
            if time.monotonic() >= end:
                return None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        frame = bytearray(status.Get_count(MPI.BYTE))
        self._comm.Recv([frame, MPI.BYTE], source=status.Get_source(), tag=TAG)
        return f"rank {status.Get_source()}", bytes(frame)

    def close(self) -> None:
        for request, _ in self._sending:
            request.Wait()
        self._sending.clear()

    def abort(self) -> None:
        self._comm.Abort(1)
