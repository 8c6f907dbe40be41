"""Between FedML's state dicts of tensors and the core's mappings of arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...errors import SettingError
from ...messages import Update


def to_arrays(parameters: Any) -> dict[str, np.ndarray]:
    """A copy of a model as arrays; bfloat16, which NumPy lacks, becomes float32."""
    if not isinstance(parameters, Mapping):
        raise SettingError(
            f"get_model_params() returns a {type(parameters).__name__}: a mapping from name to tensor is needed, such "
            "as model.state_dict()."
        )
    arrays = {}
    for name, tensor in parameters.items():
        tensor = torch.as_tensor(tensor).detach().cpu()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        arrays[name] = tensor.numpy().copy()
    return arrays


def to_tensors(w: Update) -> OrderedDict[str, torch.Tensor]:
    """A copy of a model as FedML's trainers and aggregators take it."""
    return OrderedDict((name, torch.from_numpy(np.array(array))) for name, array in w.items())


def difference(new: Update, old: Update) -> dict[str, np.ndarray]:
    """d = w_local - w, in the model's own types."""
    return {name: np.asarray(new[name] - array).astype(array.dtype, copy=False) for name, array in old.items()}


def buffers(model: Any, w: Update) -> frozenset[str]:
    """The entries of w that are not parameters of the model: BatchNorm statistics, counters."""
    parameters = {name for name, _ in model.named_parameters()} if hasattr(model, "named_parameters") else set()
    return frozenset(name for name in w if name not in parameters) if parameters & set(w) else frozenset()
