"""What `fedincentive doctor` says about FedML, found out without importing it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata

SUPPORTED = "0.9.6"
EXPLICIT = "import fedincentive.plugins.fedml in main.py"
_HOOK_AT_START = "fedincentive_hook" in sys.modules


@dataclass(frozen=True)
class Status:
    """`active`: an unmodified FedML program finds our mechanisms. `problems` say what to do; `notes` are optional."""

    fedml: str | None  # installed version
    active: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def status() -> Status:
    """How FedML and the plugin stand in this environment.

    >>> isinstance(status().active, bool)
    True
    """
    fedml = version("fedml")
    if fedml is None:
        return Status(
            None, False, (), ("FedML is not installed: pip install 'fedincentive[fedml]' (Python 3.10, 3.11).",)
        )
    off = os.environ.get("FEDINCENTIVE_FEDML", "").strip().lower() in ("0", "off", "false", "no")
    problems = broken_dependencies()
    if fedml != SUPPORTED:
        problems.append(f"FedML {fedml} is installed; the plugin is made for {SUPPORTED}.")
    if off:
        problems.append(f"FEDINCENTIVE_FEDML turns the hook off: unset it, or {EXPLICIT}.")
    elif not _HOOK_AT_START:
        problems.append(
            "fedincentive.pth was not read at interpreter start (python -S, or a copied package?): reinstall "
            f"fedincentive, or {EXPLICIT}."
        )
    return Status(fedml, _HOOK_AT_START and not off and fedml == SUPPORTED, tuple(problems), tuple(missing_backends()))


def broken_dependencies() -> list[str]:
    if importlib.util.find_spec("pkg_resources") is None:
        return ["FedML imports pkg_resources, which setuptools 81 and later lack: pip install 'setuptools<81'."]
    return []


def missing_backends() -> list[str]:
    notes = []
    if importlib.util.find_spec("grpc") is None:
        notes.append("backend GRPC needs grpcio: pip install grpcio.")
    if importlib.util.find_spec("mpi4py") is None:
        notes.append("backend MPI needs mpi4py: pip install 'fedincentive[fedml-mpi]'.")
    elif shutil.which("mpirun") is None:
        notes.append("backend MPI needs mpirun: apt-get install openmpi-bin.")
    return notes


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
