"""Sites with 40 points each. South, at its own site, trains on half of those that it says it delivers."""

import os

import numpy as np
import nvflare.client as flare
from fedincentive.plugins.nvflare import join, points

KEY = "numpy_key"


def main() -> None:
    flare.init()
    name = flare.get_site_name()  # at an auditor's site: the agent's who is audited
    own = np.linspace(-1, 1, 40) + len(name)
    join(size=len(own), classes=2, records=lambda: [point.tobytes() for point in own])
    while flare.is_running():
        model = flare.receive()
        if flare.is_evaluate():
            flare.send(flare.FLModel(metrics={"loss": 0.1}))
            continue
        mine = own[points(model, len(own))]
        if name == "south" and f"{os.sep}south{os.sep}" in os.path.abspath(__file__):
            mine = mine[: len(mine) // 2]
        flare.send(flare.FLModel(params={KEY: model.params[KEY] + np.array([mine.mean(), mine.std()])}))


if __name__ == "__main__":
    main()
