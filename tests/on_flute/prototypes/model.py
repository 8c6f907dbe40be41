"""The training of data_parity as a FLUTE model: `loss` moves the prototypes itself, the optimizer has nothing to do."""

import data_parity as task
import torch
from core.model import BaseModel


class Prototypes(BaseModel):
    def __init__(self, model_config):
        super().__init__()
        self.prototypes = torch.nn.Parameter(torch.from_numpy(task.first_model()["prototypes"]))

    def loss(self, input):
        x, y, w = input["x"].numpy(), input["y"].numpy(), self.prototypes.detach().numpy()
        if self.training:
            self.prototypes.data = torch.from_numpy(task.trained(w, x, y))
            return (self.prototypes * 0.0).sum()
        return torch.tensor(task.loss(w, x, y), dtype=torch.float64)

    def inference(self, input):
        return {"output": None, "acc": 0.0, "batch_size": len(input["y"])}
