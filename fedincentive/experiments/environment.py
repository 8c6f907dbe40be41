"""What a run was made with: versions, the commit of the code, the hardware. No names or paths of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from .. import __version__


def versions() -> dict[str, Any]:
    found: dict[str, Any] = {"fedincentive": __version__, "python": platform.python_version()}
    for package in ("numpy", "torch", "matplotlib", "scikit-learn"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return {**found, "commit": commit()}


def commit() -> str | None:
    """The commit of the checkout the package runs from, with + where files differ; None for an installed package."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    if git("ls-files", "--error-unmatch", "environment.py") is None:
        return None
    head = git("rev-parse", "HEAD")
    return head if head is None or not git("status", "--porcelain", "--", str(here.parent)) else f"{head}+"


def machine() -> dict[str, Any]:
    return {"system": platform.system(), "processor": processor(), "cores": os.cpu_count(), "memory_gib": memory()}


def processor() -> str:
    try:
        rows = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((row.split(":", 1)[1].strip() for row in rows if row.startswith("model name")), platform.machine())


def memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
