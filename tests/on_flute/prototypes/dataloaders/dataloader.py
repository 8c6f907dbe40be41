import numpy as np
import torch
from core.dataloader import BaseDataLoader
from experiments.prototypes.dataloaders.dataset import Dataset


class DataLoader(BaseDataLoader):
    def __init__(self, mode, **kwargs):
        super().__init__(Dataset(kwargs["data"], test_only=mode != "train"), batch_size=1000, collate_fn=self.collate)

    def collate(self, batch):
        """In the order of the points' numbers, which is that of every host."""
        ordered = sorted(batch, key=lambda point: point[0][0])
        return {
            "x": torch.from_numpy(np.stack([x for (_, x), _ in ordered])),
            "y": torch.tensor([int(y) for _, y in ordered]),
        }
