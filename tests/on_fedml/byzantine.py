"""A FedML program whose client $HOSTILE sends noise instead of its model. All counts are equal.

Every client writes the model it got and the one it sent in each round to CLIENT-ROUND.npz.
"""

from __future__ import annotations

import os
from collections import Counter

import fedml
import numpy as np
import torch
from fedml import FedMLRunner
from fedml.ml.trainer import trainer_creator
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Hostile(ModelTrainerCLS):
    """FedML's single-process simulator has one trainer for all clients and takes no other: the data tell who it is."""

    rounds: Counter[int] = Counter()

    def train(self, train_data, device, args):  # type: ignore[no-untyped-def]
        got = flat(self.model)
        super().train(train_data, device, args)
        if train_data.client == int(os.environ.get("HOSTILE", 0)):
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.normal_(0, 10)
        np.savez(f"{train_data.client}-{self.rounds[train_data.client]}.npz", got=got, sent=flat(self.model))
        self.rounds[train_data.client] += 1


def flat(model: torch.nn.Module) -> np.ndarray:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy().copy()


def digits(clients: int, batch_size: int) -> list:
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    test, size = order[:300], (len(y) - 300) // clients
    parts = [order[300 + i * size : 300 + (i + 1) * size] for i in range(clients)]

    def loader(part: torch.Tensor) -> DataLoader:
        return DataLoader(TensorDataset(x[part], y[part]), batch_size=batch_size)

    train = {i: loader(part) for i, part in enumerate(parts)}
    for i in train:
        train[i].client = i
    tests = {i: loader(test) for i in range(clients)}
    counts = dict.fromkeys(range(clients), size)
    return [size * clients, 300, loader(order[300:]), loader(test), counts, train, tests, 10]


if __name__ == "__main__":
    trainer_creator.ModelTrainerCLS = Hostile
    args = fedml.init()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = digits(args.client_num_in_total, args.batch_size)
    FedMLRunner(args, fedml.device.get_device(args), dataset, torch.nn.Sequential(torch.nn.Linear(64, 10))).run()
