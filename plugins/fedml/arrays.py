"""Between FedML's state dicts of tensors and the core's mappings of arrays."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from ...errors import SettingError
from ...messages import Update


def to_arrays(parameters: Any) -> dict[str, np.ndarray]:
    """A copy of a model as arrays; bfloat16, which NumPy lacks, becomes float32."""
    return {name: array.copy() for name, array in arrays(parameters).items()}


def arrays(parameters: Any) -> dict[str, np.ndarray]:
    """A model as arrays that share its memory where they can: for reading, until it is trained again."""
    return {name: tensor.numpy() for name, tensor in tensors(parameters).items()}


def tensors(parameters: Any) -> dict[str, torch.Tensor]:
    """The same as tensors of the processor's memory."""
    if not isinstance(parameters, Mapping):
        raise SettingError(
            f"get_model_params() returns a {type(parameters).__name__}: a mapping from name to tensor is needed, such "
            "as model.state_dict()."
        )
    found = {name: torch.as_tensor(tensor).detach().cpu() for name, tensor in parameters.items()}
    return {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in found.items()}


def to_tensors(w: Update) -> OrderedDict[str, torch.Tensor]:
    """A copy of a model as FedML's trainers and aggregators take it."""
    return OrderedDict((name, torch.from_numpy(np.array(array))) for name, array in w.items())


def lent(w: Update) -> OrderedDict[str, torch.Tensor]:
    """The model itself as tensors, for those who only read it."""
    _warned()
    return OrderedDict((name, torch.from_numpy(np.asarray(array))) for name, array in w.items())


@cache
def _warned() -> None:
    """torch says once that it cannot protect an array that is not writable: here nobody writes to it."""
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        torch.from_numpy(array)


def set_model(holder: Any, w: Update) -> None:
    """Give a trainer or aggregator the model: FedML's own copy what they are given, others get a copy to keep."""
    copies = type(holder).set_model_params.__module__.startswith("fedml.")
    holder.set_model_params(lent(w) if copies else to_tensors(w))


def difference(new: Any, old: Update) -> dict[str, np.ndarray]:
    """d = w_local - w, in the model's own types; torch takes all cores for it, NumPy one."""
    model = tensors(new)
    return {
        name: torch.sub(model[name], before).numpy().astype(old[name].dtype, copy=False)
        for name, before in lent(old).items()
    }


def buffers(model: Any, w: Update) -> frozenset[str]:
    """The entries of w that are not parameters of the model: BatchNorm statistics, counters."""
    parameters = {name for name, _ in model.named_parameters()} if hasattr(model, "named_parameters") else set()
    return frozenset(name for name in w if name not in parameters) if parameters & set(w) else frozenset()
