"""The model of data_parity as torch has it."""

import torch


class Prototypes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prototypes = torch.nn.Parameter(torch.full((10, 64), 8.0, dtype=torch.float64))


class Validator:
    """What a model is worth at the server."""

    def __call__(self, model: dict) -> float:
        import data_parity as task

        return task.worth(model)
