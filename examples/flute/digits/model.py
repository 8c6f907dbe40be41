import torch
from core.model import BaseModel
from torch.nn import functional as F


class Digits(BaseModel):
    """One layer; each process begins with the same weights."""

    def __init__(self, model_config):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        torch.nn.init.zeros_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def loss(self, input):
        return F.cross_entropy(self.layer(input["x"]), input["y"])

    def inference(self, input):
        output = self.layer(input["x"])
        right = (output.argmax(dim=1) == input["y"]).float().mean().item()
        return {"output": output, "acc": right, "batch_size": len(input["y"])}
