"""A FedML program whose trainer learns prototypes: training_parity.py CONFIG... [-- FedML's options]."""

from __future__ import annotations

import sys
from pathlib import Path

import fedml
import numpy as np
import torch
from fedml import FedMLRunner
from fedml.core import ClientTrainer, ServerAggregator
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parent)]
from data_parity import AGENTS, CLASSES, SIZES, data, first_model, loss, trained  # noqa: E402
from several import configurations  # noqa: E402


class Prototypes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prototypes = torch.nn.Parameter(torch.from_numpy(first_model()["prototypes"]))


class Params:
    def get_model_params(self):
        return self.model.state_dict()

    def set_model_params(self, parameters):
        self.model.load_state_dict(parameters)


class Trainer(Params, ClientTrainer):
    """The points come in an order that torch drew; their numbers bring them back into that of every host."""

    def train(self, train_data, device, args):
        numbers, x, y = (torch.cat(column).numpy() for column in zip(*train_data, strict=True))
        order = np.argsort(numbers)
        with torch.no_grad():
            new = trained(self.model.prototypes.numpy(), x[order], y[order])
            self.model.prototypes.copy_(torch.from_numpy(new))

    def test(self, test_data, device, args):
        _, x, y = (torch.cat(column).numpy() for column in zip(*test_data, strict=True))
        with torch.no_grad():
            return {"test_loss": loss(self.model.prototypes.numpy(), x, y) * len(y), "test_total": len(y)}


class Aggregator(Params, ServerAggregator):
    def test(self, test_data, device, args):
        pass

    def test_all(self, train_data_local_dict, test_data_local_dict, device, args):
        return True


def loaders(index: int) -> tuple[DataLoader, DataLoader]:
    x, y, test_x, test_y = data(index)
    sets = [
        TensorDataset(torch.arange(len(b)), torch.from_numpy(a), torch.from_numpy(b))
        for a, b in ((x, y), (test_x, test_y))
    ]
    return DataLoader(sets[0], batch_size=16), DataLoader(sets[1], batch_size=16)


if __name__ == "__main__":
    for args in configurations():
        own = [loaders(index) for index in range(AGENTS)]
        train, test = ({index: pair[k] for index, pair in enumerate(own)} for k in (0, 1))
        everyones = DataLoader(ConcatDataset([loader.dataset for loader in test.values()]), batch_size=16)
        dataset = [sum(SIZES), 0, None, everyones, dict(enumerate(SIZES)), train, test, CLASSES]
        model = Prototypes()
        made = Trainer(model, args), Aggregator(model, args)
        FedMLRunner(args, fedml.device.get_device(args), dataset, model, *made).run()
