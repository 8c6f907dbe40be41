"""What the agents of a finished run have gained by it, from the files it left."""

from __future__ import annotations

import json
from pathlib import Path


def gains(run: Path, cost: float) -> dict[str, float]:
    """u_i = v_i - c_i s_i + p_i of each agent, with the values that it reported itself."""
    ended = json.loads((run / "state" / "manifest.json").read_text())["outcome"]
    return {
        agent: ended["valuations"][agent] - cost * points + ended["payments"][agent] / 1e6
        for agent, points in ended["s"].items()
    }


def contribute_rounds(run: Path) -> int:
    return json.loads((run / "state" / "manifest.json").read_text())["outcome"]["contributed"]
