"""The configurations of FLUTE's example, with changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "flute"


def config(name: str = "incentive", **server: Any) -> dict[str, Any]:
    """The example's configuration; `server` changes its server_config."""
    found = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text())
    found["server_config"] |= server
    return found
