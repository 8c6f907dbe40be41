"""Updates that would not fit in memory together wait on disk until their round closes.

Each is written at once when its report is accepted, with checksums, and appears only when it is whole. It is not forced
to the disk: a machine that loses power loses an open round, which is asked again, and nothing else.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path

from ..aggregation import StoredUpdate, store
from ..errors import AggregationError, RunError
from ..mechanisms import Mechanism
from ..messages import Update
from ..run import Answer

PREFIX = "fedincentive-spill-"
SHARE = 0.5  # of the memory that is free when the run opens; beyond it `spill: auto` goes to disk


class Spill:
    """Takes over the updates of accepted reports, where the settings and the size of the round ask for it."""

    def __init__(self, mechanism: Mechanism, n: int, w: Update, folder: Path | None) -> None:
        needed = n * sum(array.nbytes for array in w.values())
        wanted = mechanism.settings.spill
        self.active = mechanism.aggregator.works_on_files and (
            wanted == "always" or (wanted == "auto" and needed > SHARE * free_memory())
        )
        self._kept: list[StoredUpdate] = []
        if self.active:
            self.folder = made(folder)
            weakref.finalize(self, remove, self.folder, os.getpid())

    def keep(self, agent: str, answer: Answer) -> Answer:
        """The answer with its update on disk."""
        if not self.active or not answer.update:
            return answer
        path = self.folder / f"{len(self._kept)}.safetensors"
        try:
            self._kept.append(StoredUpdate(store(path, answer.update, {"agent": agent}), agent))
        except AggregationError as error:
            raise RunError(
                f"The update of agent {agent!r} cannot wait on disk: {error} Remove the cause and resume; the last "
                "round that closed is safe."
            ) from error
        return replace(answer, update=self._kept[-1])

    def clear(self) -> None:
        """The round is closed: its updates are not needed any more."""
        for update in self._kept:
            update.close()
            update.path.unlink(missing_ok=True)
        self._kept.clear()


def made(parent: Path | None) -> Path:
    """A folder for one process, without what a killed one left of its open round."""
    try:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
            for left in parent.glob(f"{PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise RunError(
            f"Updates cannot wait in {parent or tempfile.gettempdir()}: {error.strerror}. Choose another state folder."
        ) from error


def remove(folder: Path, process: int) -> None:
    """Not when a forked child ends: its parent still needs the updates."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def free_memory() -> int:
    """Bytes that can be used without swapping, under the control group's limit where there is one."""
    found = [2**62]
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    limit, used = _lines("/sys/fs/cgroup/memory.max"), _lines("/sys/fs/cgroup/memory.current")
    if limit and used and limit[0].strip().isdecimal():
        found.append(max(0, int(limit[0]) - int(used[0])))
    return min(found)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
