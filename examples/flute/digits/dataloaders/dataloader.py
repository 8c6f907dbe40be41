import numpy as np
import torch
from core.dataloader import BaseDataLoader
from experiments.digits.dataloaders.dataset import Dataset


class DataLoader(BaseDataLoader):
    def __init__(self, mode, num_workers=0, **kwargs):
        dataset = Dataset(kwargs["data"], test_only=mode != "train", user_idx=kwargs["user_idx"])
        super().__init__(
            dataset, batch_size=kwargs["args"]["batch_size"], shuffle=mode == "train", collate_fn=self.collate
        )

    def collate(self, batch):
        x, y = zip(*batch, strict=True)
        return {"x": torch.from_numpy(np.stack(x)), "y": torch.tensor(np.array(y))}
