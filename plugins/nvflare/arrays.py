"""Between FLModel parameters (NumPy arrays or torch tensors) and the core's mappings of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ReportRefused
from ...messages import Update
from .wire import short


def to_array(value: Any) -> np.ndarray:
    """One parameter as an array that shares its memory where it can; bfloat16, which NumPy lacks, becomes float32."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        value = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise TypeError(f"an entry of type {array.dtype}")
    return array


def to_arrays(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: to_array(value) for name, value in params.items()}


def to_params(w: Update, tensors: bool) -> dict[str, Any]:
    """A model as sites get it; a copy, so that no trainer writes into the center's own."""
    copies = {name: np.array(array) for name, array in w.items()}
    if not tensors:
        return copies
    import torch

    return {name: torch.from_numpy(array) for name, array in copies.items()}


def fitted(params: Any, w: Update, agent: str) -> dict[str, np.ndarray]:
    """An agent's parameters in the model's names, order and types: filters may have turned float32 into float64, but
    what they left out, encrypted or made fractions of (counters) is refused by name."""
    if not isinstance(params, Mapping):
        raise ReportRefused(f"Agent {agent!r} sends its parameters as a {type(params).__name__}: a mapping is needed.")
    missing, extra = [name for name in w if name not in params], [name for name in params if name not in w]
    if missing or extra:
        raise ReportRefused(
            f"Agent {agent!r} sends a model without {short(missing)} and with {short(extra)}: all entries are needed, "
            "so no filter of its site may leave any out for task train."
        )
    fits = {}
    for name, old in w.items():
        try:
            new = to_array(params[name])
        except Exception as error:  # encrypted values, objects: whatever a filter made of them
            raise ReportRefused(f"Agent {agent!r} sends {name!r} as no array: {str(error)[:200]}.") from None
        if new.shape != old.shape:
            raise ReportRefused(f"Agent {agent!r} sends {name!r} with shape {new.shape} instead of {old.shape}.")
        fits[name] = new.astype(old.dtype, copy=False)
        if old.dtype.kind in "iub" and not np.array_equal(fits[name], new):
            raise ReportRefused(
                f"Agent {agent!r} sends {name!r} as {new.dtype}, with values that are no {old.dtype}: no filter of its "
                "site may change whole numbers."
            )
    return fits


def buffers(model: Any, w: Update) -> frozenset[str]:
    """The entries of w that are not parameters of the torch model: BatchNorm statistics, counters."""
    parameters = {name for name, _ in model.named_parameters()} if hasattr(model, "named_parameters") else set()
    return frozenset(name for name in w if name not in parameters) if parameters & set(w) else frozenset()
