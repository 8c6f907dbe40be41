"""An ordinary FedML program: scikit-learn's digits, split unevenly over the clients. It never names fedincentive."""

from __future__ import annotations

import fedml
import numpy as np
import torch
from fedml import FedMLRunner
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def digits(clients: int, batch_size: int, seed: int = 0) -> list:
    """FedML's eight-part dataset: client i has a share proportional to i + 2; a fifth of all points is for testing."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    x = torch.tensor(data.data[order] / 16, dtype=torch.float32)
    y = torch.tensor(data.target[order], dtype=torch.int64)
    held_out = len(y) // 5
    share = np.arange(2, clients + 2)
    train_cuts = held_out + (np.cumsum(share) / share.sum() * (len(y) - held_out)).astype(int)
    test_cuts = (np.cumsum(share) / share.sum() * held_out).astype(int)

    def loader(start: int, stop: int) -> DataLoader:
        return DataLoader(TensorDataset(x[start:stop], y[start:stop]), batch_size=batch_size)

    train = {i: loader(a, b) for i, (a, b) in enumerate(zip([held_out, *train_cuts], train_cuts, strict=False))}
    test = {i: loader(a, b) for i, (a, b) in enumerate(zip([0, *test_cuts], test_cuts, strict=False))}
    counts = {i: len(part.dataset) for i, part in train.items()}
    return [len(y) - held_out, held_out, loader(held_out, len(y)), loader(0, held_out), counts, train, test, 10]


if __name__ == "__main__":
    args = fedml.init()
    torch.manual_seed(args.random_seed)
    torch.set_num_threads(1)
    device = fedml.device.get_device(args)
    dataset = digits(args.client_num_in_total, args.batch_size, args.random_seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 10))
    FedMLRunner(args, device, dataset, model).run()
