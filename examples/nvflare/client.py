"""An ordinary NVFlare Client API script; the lines with `# strategic` make its site an agent."""

import nvflare.client as flare
import torch
from fedincentive.plugins.nvflare import join, points, seed  # strategic
from net import Net
from sklearn.datasets import load_digits
from torch import nn

torch.set_num_threads(1)


def main() -> None:
    flare.init()
    site = int(flare.get_site_name().split("-")[-1]) - 1  # site-1, site-2, ...
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x[site::5] / 16, dtype=torch.float32), torch.tensor(y[site::5])
    train, test = torch.arange(len(y)) % 4 != 0, torch.arange(len(y)) % 4 == 0
    join(size=int(train.sum()), classes=10)  # strategic
    net, loss = Net(), nn.CrossEntropyLoss()
    while flare.is_running():
        model = flare.receive()
        net.load_state_dict(model.params)
        net.eval()
        with torch.no_grad():
            metrics = {"loss": float(loss(net(x[test]), y[test]))}
        if flare.is_evaluate():
            flare.send(flare.FLModel(metrics=metrics))
            continue
        torch.manual_seed(seed(model))  # strategic
        mine = points(model, int(train.sum())).copy()  # strategic
        data, labels = x[train][mine], y[train][mine]  # strategic: x[train], y[train] without it
        optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
        net.train()
        for batch in torch.randperm(len(labels)).split(32):
            if len(batch) > 1:  # BatchNorm needs two points
                optimizer.zero_grad()
                loss(net(data[batch]), labels[batch]).backward()
                optimizer.step()
        flare.send(flare.FLModel(params=net.state_dict(), metrics=metrics))


if __name__ == "__main__":
    main()
