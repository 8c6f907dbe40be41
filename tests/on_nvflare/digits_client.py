"""The training of data_parity in a Client API script."""

import data_parity as task
import numpy as np
import nvflare.client as flare
import torch
from fedincentive.plugins.nvflare import join, points, seed


def main() -> None:
    flare.init()
    x, y, test_x, test_y = task.data(int(flare.get_site_name().rsplit("-")[-1]) - 1)
    join(size=len(y), classes=task.CLASSES)
    while flare.is_running():
        model = flare.receive()
        w = model.params["prototypes"].numpy()
        if flare.is_evaluate():
            flare.send(flare.FLModel(metrics={"loss": task.loss(w, test_x, test_y)}))
            continue
        np.random.seed(seed(model))
        mine = np.sort(points(model, len(y)))
        flare.send(flare.FLModel(params={"prototypes": torch.from_numpy(task.trained(w, x[mine], y[mine]))}))


if __name__ == "__main__":
    main()
