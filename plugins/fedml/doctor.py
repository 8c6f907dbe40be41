"""What `fedincentive doctor` says about FedML; it is imported for real in a process of its own, if at all."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

SUPPORTED = "0.9.6"
IMPORT_TIMEOUT = 180
EXPLICIT = "import fedincentive.plugins.fedml in main.py"
_HOOK_AT_START = "fedincentive_hook" in sys.modules


@dataclass(frozen=True)
class Status:
    """`active`: an unmodified FedML program finds our mechanisms. `problems` say what to do; `notes` are optional."""

    fedml: str | None  # installed version
    active: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def status(*, try_out: bool = False) -> Status:
    """How FedML and the plugin stand in this environment; with `try_out` also whether FedML can be imported at all.

    >>> isinstance(status().active, bool)
    True
    """
    fedml = version("fedml")
    if fedml is None:
        here = f"; this is {sys.version_info[0]}.{sys.version_info[1]}" if sys.version_info >= (3, 12) else ""
        told = f"FedML is not installed: pip install 'fedincentive[fedml]' (Python 3.10, 3.11{here})."
        return Status(None, False, (), (told,))
    off = os.environ.get("FEDINCENTIVE_FEDML", "").strip().lower() in ("0", "off", "false", "no")
    problems = broken_dependencies() or (broken_import() if try_out else [])
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


def broken_import() -> list[str]:
    """What importing FedML says where it fails: torch and torchvision that do not belong together, say."""
    command = [sys.executable, "-W", "ignore", "-c", "import fedml"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT)
    except subprocess.TimeoutExpired:
        return [f"FedML cannot be imported: `import fedml` takes more than {IMPORT_TIMEOUT} s."]
    if done.returncode == 0:
        return []
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    remedy = " Install torch and torchvision from one index." if "torchvision" in done.stderr else ""
    return [f"FedML cannot be imported: {said[:300]}.{remedy}"]


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
