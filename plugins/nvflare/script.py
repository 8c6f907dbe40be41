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
from typing import Any

import numpy as np

from ...checks import integer, real

JOIN = "fedincentive.join"


def join(
    size: int, classes: int, *, cost: float | None = None, loss: str = "loss", strategy: str | None = None
) -> None:
    """Make the script's site a strategic agent: s_max = size, v_i = value_per_nat (ln classes - L_i), a cost.

    Call it once, after flare.init(). L_i is the metric `loss` that the script reports from task validate. `cost` per
    point and `strategy` are the site's own business; else they are those of the recipe.
    """
    import nvflare.client as flare
    from nvflare.apis.analytix import AnalyticsDataType

    told = {
        "size": integer(1)("size", size),
        "classes": integer(1)("classes", classes),
        "cost": None if cost is None else real(0.0)("cost", cost),
        "loss": loss,
        "strategy": strategy,
    }
    flare.log(JOIN, json.dumps(told), AnalyticsDataType.TEXT)


def points(model: Any, size: int) -> np.ndarray:
    """Which of the site's `size` training points to train on: those its agent delivers; all under other recipes."""
    chosen = model.meta.get("points")
    return np.arange(size) if chosen is None else np.frombuffer(chosen, "<i8")


def seed(model: Any, default: int = 0) -> int:
    """What to seed this round's training with, so that every host trains alike."""
    return int(model.meta.get("seed", default))
