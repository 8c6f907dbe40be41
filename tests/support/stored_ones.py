"""Small update files for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedincentive.aggregation import store
from fedincentive.aggregation.stored import CHUNK


def ones(folder: Path, clients: int = 3, size: int = 5 * CHUNK + 12) -> list[Path]:
    return [store(folder / f"{i}", {"w": np.ones(size // 4, np.float32)}) for i in range(clients)]
