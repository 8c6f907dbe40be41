"""A FedML program in which the client of rank $LIAR trains on half of its batches and says that it used them all.

The third client has $COPIES records of the first one instead of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fedml
import torch
from fedml import FedMLRunner
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "fedml"))
from main import digits  # noqa: E402


class Lazy(ModelTrainerCLS):
    def train(self, train_data, device, args):  # type: ignore[no-untyped-def]
        batches = list(train_data)
        super().train(batches[: len(batches) // 2], device, args)


if __name__ == "__main__":
    args = fedml.init()
    torch.manual_seed(args.random_seed)
    dataset = digits(args.client_num_in_total, args.batch_size, args.random_seed)
    if copies := int(os.environ.get("COPIES", 0)):
        first, third = dataset[5][0].dataset.tensors, dataset[5][2].dataset.tensors
        for mine, other in zip(third, first, strict=True):
            mine[:copies] = other[:copies]
    model = torch.nn.Sequential(torch.nn.Linear(64, 10))
    lazy = str(getattr(args, "rank", 0)) == os.environ.get("LIAR")
    trainer = Lazy(model, args) if lazy else None
    FedMLRunner(args, fedml.device.get_device(args), dataset, model, trainer).run()
