"""One process at a time plays a run: a lock on its state folder, which the system takes back when the process dies."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from ..errors import RunError
from ..files import private_opener, reason

FILE = "lock"
_held: set[int] = set()  # descriptors; a forked child must not keep its parent's locks alive


class Lock:
    """Held from when it is made until `release`. The file stays; what it says is for the others' error message."""

    def __init__(self, folder: Path, run: str) -> None:
        self._file = -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = private_opener(str(folder / FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise RunError(
                f"The state of run {run!r} cannot be kept in {folder}: {reason(error)}. Choose another state folder."
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(file, 1000, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(file)
            if not isinstance(error, BlockingIOError):
                raise RunError(f"{folder / FILE} cannot be locked: {reason(error)}. Choose another folder.") from error
            raise RunError(
                f"Run {run!r} in {folder} is being played by {owner}. Wait for it, or end it, then resume."
            ) from error
        now = datetime.now(timezone.utc).isoformat(" ", "seconds")
        with suppress(OSError):  # a full disk: the lock holds all the same
            os.truncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()} since {now}\n".encode(), 0)
        self._file = file
        _held.add(file)

    @property
    def held(self) -> bool:
        return self._file in _held

    def release(self) -> None:
        """Another may play now; again it does nothing."""
        if self.held:
            _held.discard(self._file)
            os.close(self._file)
        self._file = -1


def _forget() -> None:
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
