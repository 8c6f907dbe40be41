"""Packages as pip would leave them, that offer something in a group of entry points."""

from __future__ import annotations

from pathlib import Path

SHRUNK_MEAN = """
from fedincentive.aggregation import Rule

def shrunk_mean(updates, factor):
    return {name: sum(update[name] for update in updates) / len(updates) * factor for name in updates[0]}

RULE = Rule("shrunk-mean", shrunk_mean, {"clip": "factor"}, least=lambda n, f: f + 1, conventions="The mean, shrunk.")
"""


def install(folder: Path, package: str, code: str, points: str) -> Path:
    """A folder to be put on the path; `points` is what pip writes from the package's entry points."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{package}.py").write_text(code)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    return folder


def install_shrunk_mean(folder: Path) -> Path:
    """A rule of another package, under its name."""
    return install(folder, "house_rule", SHRUNK_MEAN, "[fedincentive.rules]\nshrunk-mean = house_rule:RULE\n")
