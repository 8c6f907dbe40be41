"""Reductions on CUDA devices: tensors that are there already, or host arrays sent there in pieces.

The module `fedincentive._cuda` is there only where nvcc was at build time. It imports without a driver; the first
reduction says what is missing. Torch is never imported here: a CUDA tensor can only be present if somebody else did.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import NativeUnavailable, SettingError

DEVICE_VARIABLE = "FEDINCENTIVE_DEVICE"
Found = tuple[int, int, list[int]]  # coordinates that keep a non-finite value, coordinates without weight, whose


def load() -> ModuleType:
    """The extension module, or NativeUnavailable with the reason and the remedy."""
    try:
        from fedincentive import _cuda
    except ImportError as error:
        raise NativeUnavailable(
            f"The CUDA kernels of fedincentive are not in this installation ({error}). Install it where nvcc is found, "
            "with FEDINCENTIVE_CUDA=1 pip install ., or copy the updates to the CPU with .cpu() first."
        ) from error
    return _cuda


def info() -> dict[str, Any]:
    """What `fedincentive doctor` shows: built or not, for which architectures, driver, devices.

    >>> isinstance(info()["built"], bool)
    True
    """
    try:
        module = load()
    except NativeUnavailable as error:
        return {"built": False, "archs": "", "runtime": 0, "driver": 0, "devices": [], "problem": str(error)}
    return {"built": True, **module.info()}


def host_device() -> int | None:
    """The device that FEDINCENTIVE_DEVICE (cuda or cuda:1, say) sends host arrays to; None: they stay on the CPU.

    >>> host_device() is None or host_device() >= 0
    True
    """
    text = os.environ.get(DEVICE_VARIABLE, "cpu")
    if text == "cpu":
        return None
    match = re.fullmatch(r"cuda(?::(\d+))?", text)
    if match is None:
        raise SettingError(f"{DEVICE_VARIABLE}={text!r} is unknown; give cpu, cuda, or cuda:1 for the second device.")
    return int(match[1] or 0)


def reduce_tensors(
    groups: Sequence[Sequence[Any]], code: int, wide: bool, trim: int, weights: list[float], divisor: float
) -> tuple[list[Any], Found]:
    """Reduces groups of CUDA tensors (one group per entry, one tensor per client) on torch's current stream.

    The settings are those of `kernel.reduce`. Results are tensors on the same device.
    """
    device = groups[0][0].device
    stream = sys.modules["torch"].cuda.current_stream(device).cuda_stream
    return reduce_on(load(), groups, code, wide, trim, weights, divisor, device.index, stream)


def torch_memory(device: Any) -> Callable[[int], int]:
    """allocate(bytes) by torch, which may have reserved all there is; the memory is held as long as the function is."""
    held = []

    def allocate(size: int) -> int:
        held.append(sys.modules["torch"].empty(size, dtype=sys.modules["torch"].uint8, device=device))
        return int(held[-1].data_ptr())

    return allocate


def reduce_on(
    module: ModuleType,
    groups: Sequence[Sequence[Any]],
    code: int,
    wide: bool,
    trim: int,
    weights: list[float],
    divisor: float,
    device: int,
    stream: int,
) -> tuple[list[Any], Found]:
    torch = sys.modules["torch"]
    sources = [one_layout(torch, group) for group in groups]
    results = [torch.empty_like(group[0], dtype=torch.float64 if wide else None) for group in sources]
    return results, checked(
        module,
        module.reduce,
        np.array([tensor.data_ptr() for group in sources for tensor in group], dtype=np.uint64),
        np.array([result.numel() for result in results], dtype=np.int64),
        np.array([result.data_ptr() for result in results], dtype=np.uint64),
        *(len(groups[0]), code, wide, trim, weights, divisor, device, stream, torch_memory(groups[0][0].device)),
    )


def one_layout(torch: Any, tensors: Sequence[Any]) -> list[Any]:
    """The tensors as they are where all have the same dense layout (channels-last, say), else contiguous copies."""
    strides = torch.empty_like(tensors[0]).stride()
    if all(tensor.stride() == strides for tensor in tensors):
        return list(tensors)
    return [tensor.contiguous() for tensor in tensors]


def reduce_arrays(
    groups: Sequence[Sequence[np.ndarray]],
    outputs: Sequence[np.ndarray],
    code: int,
    wide: bool,
    trim: int,
    weights: list[float],
    divisor: float,
    device: int,
    module: ModuleType | None = None,
) -> Found:
    """Reduces groups of host arrays into C-ordered `outputs`, in pieces: they may exceed the device's memory."""
    module = module or load()
    sources = [[np.ascontiguousarray(array) for array in group] for group in groups]
    return checked(
        module,
        module.reduce_from_host,
        np.array([array.ctypes.data for group in sources for array in group], dtype=np.uint64),
        np.array([output.size for output in outputs], dtype=np.int64),
        np.array([output.ctypes.data for output in outputs], dtype=np.uint64),
        *(len(groups[0]), code, wide, trim, weights, divisor, device, 0, memory_beside_torch(device)),
    )


def memory_beside_torch(device: int) -> Callable[[int], int] | None:
    """Torch's memory where torch uses CUDA in this process; None takes it from the driver."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    torch.cuda.current_stream(device).synchronize()  # torch may hand out what its stream still uses; ours are others
    return torch_memory(f"cuda:{device}")


def checked(module: ModuleType, call: Any, *arguments: Any) -> Found:
    try:
        found: Found = call(*arguments)
    except RuntimeError as error:  # the module's CudaError, or torch's when it has no memory left
        if not isinstance(error, module.CudaError) and "out of memory" not in str(error):
            raise
        raise NativeUnavailable(
            f"{str(error).rstrip('.')}. `fedincentive doctor` shows driver and devices; without them, copy the updates "
            f"to the CPU with .cpu() and leave {DEVICE_VARIABLE} unset."
        ) from error
    return found
