"""What a training script says and asks; it is an ordinary Client API script otherwise.

flare.init()
join(size=len(train), classes=10)                   # the points it could give, the classes it tells apart
while flare.is_running():
    model = flare.receive()
    if flare.is_evaluate():
        flare.send(flare.FLModel(metrics={"loss": ...}))
    else:
        chosen = points(model, len(train))          # the points its agent gives in this round
        ...
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...checks import integer, real
from ...errors import SettingError

JOIN = "fedincentive.join"
AUDITED = "FEDINCENTIVE_AUDITED"  # in the environment of scripts: has the run auditors?


def join(
    size: int,
    classes: int,
    *,
    cost: float | None = None,
    loss: str = "loss",
    strategy: str | None = None,
    records: Callable[[], Sequence[bytes]] | None = None,
) -> None:
    """Make the script's site a strategic agent: s_max = size, v_i = value_per_nat (ln classes - L_i), a cost.

    Call it once, after flare.init(). L_i is the metric `loss` that the script reports from task validate. `cost` per
    point and `strategy` are the site's own business; else they are those of the recipe. `records` gives the training
    points as bytes, to which the site commits in an audited run; without it auditors only make updates again.
    """
    import nvflare.client as flare
    from nvflare.apis.analytix import AnalyticsDataType

    told = {
        "size": integer(1)("size", size),
        "classes": integer(1)("classes", classes),
        "cost": None if cost is None else real(0.0)("cost", cost),
        "loss": loss,
        "strategy": strategy,
        "records": None if records is None or not os.environ.get(AUDITED) else _kept(records),
    }
    flare.log(JOIN, json.dumps(told), AnalyticsDataType.TEXT)


def points(model: Any, size: int) -> np.ndarray:
    """Which of the site's `size` training points to train on: those its agent delivers; all under other recipes."""
    chosen = model.meta.get("points")
    if "threads" in model.meta and (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(model.meta["threads"])  # with others an update is not the same, bit for bit
    return np.arange(size) if chosen is None else np.frombuffer(chosen, "<i8")


def seed(model: Any, default: int = 0) -> int:
    """What to seed this round's training with, so that every host trains alike."""
    return int(model.meta.get("seed", default))


def _kept(records: Callable[[], Sequence[bytes]]) -> str:
    """A file of the records, which the agent reads and removes: the script may run in a process of its own."""
    own = list(records())
    if list(records()) != own:
        raise SettingError(
            "The records of this site differ each time they are read, by a random transform perhaps: no audit could "
            "find them again. Transform them in the training instead."
        )
    descriptor, path = tempfile.mkstemp(suffix=".records")  # for its owner only
    with os.fdopen(descriptor, "w") as file:
        json.dump([record.hex() for record in own], file)
    return path


def read_records(path: str) -> list[bytes]:
    """What a script kept for its agent."""
    with open(path) as file:
        own = [bytes.fromhex(record) for record in json.load(file)]
    os.unlink(path)
    return own
