"""What `fedincentive doctor` says about NVFlare, found out without importing it."""

from __future__ import annotations

from importlib import metadata

SUPPORTED = "2.9"


def version() -> str | None:
    """The version that is installed."""
    try:
        return metadata.version("nvflare")
    except metadata.PackageNotFoundError:
        return None


def problems(found: str) -> list[str]:
    """What is wrong with this version.

    >>> problems("2.9.0"), len(problems("2.10.1"))
    ([], 1)
    """
    if found == SUPPORTED or found.startswith(f"{SUPPORTED}."):
        return []
    return [f"NVFlare {found} is installed; the plugin is made for {SUPPORTED}: pip install 'fedincentive[nvflare]'."]
