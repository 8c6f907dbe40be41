"""A training script for tests: w moves towards the mean of the points it is given; an argument says what it sends."""

import sys

import numpy as np
import nvflare.client as flare
from fedincentive.plugins.nvflare import join, points

POINTS = np.arange(40, dtype=np.float64)


def main(how: str = "full") -> None:
    flare.init()
    if how == "silent":
        return
    own = POINTS + 100 * int(flare.get_site_name()[-1]) if how == "named" else POINTS
    join(size=len(own), classes=2, cost=0.25, loss="error", records=lambda: [point.tobytes() for point in own])
    while flare.is_running():
        model = flare.receive()
        w = model.params["w"]
        if flare.is_evaluate():
            name = "loss" if how == "unnamed" else "error"
            flare.send(flare.FLModel(metrics={name: float(abs(w[0]))}))
            continue
        mine = own[points(model, len(own))]
        sent = {"w": w + float(mine.mean()), "n": model.params["n"] + 1}
        if how == "partial":
            del sent["n"]
        if how == "crash":
            raise RuntimeError("the disk is full")
        flare.send(flare.FLModel(params=sent, metrics={"seen": len(mine)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
