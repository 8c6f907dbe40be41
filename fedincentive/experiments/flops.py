"""How much arithmetic a model needs, counted from the shapes of its layers; for forecasts and benchmarks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def convolutions(model: nn.Module, x: Tensor) -> list[tuple[Any, Tensor]]:
    """Each convolution of a model with the input it gets."""
    return [(layer, inside) for layer, inside, _ in _seen(model, x) if isinstance(layer, nn.Conv2d)]


def per_example(model: nn.Module, x: Tensor, only: type[nn.Module] | None = None) -> float:
    """Multiplications and additions of training on one example, x being a batch of one.

    A layer is computed once forward and twice backward, the first one of a model once: nobody needs the gradient of
    its input. An embedding is a look-up.
    """
    total, first = 0.0, True
    for layer, _, out in _seen(model, x):
        if only is None or isinstance(layer, only):
            total += _forward(layer, out) * (2 if first else 3)
        first = False
    return total


def _forward(layer: nn.Module, out: Tensor) -> float:
    if isinstance(layer, nn.LSTM):
        return 2.0 * sum(p.numel() for p in layer.parameters() if p.dim() == 2) * out.shape[1]
    return 2.0 * layer.weight[0].numel() * out.numel()  # type: ignore[index]


def _seen(model: nn.Module, x: Tensor) -> list[tuple[nn.Module, Tensor, Tensor]]:
    """The layers that compute, in order, with their first input and output."""
    found: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(layer: nn.Module, given: tuple[Any, ...], out: Any) -> None:
        found.append((layer, given[0], out[0] if isinstance(out, tuple) else out))

    kinds = (nn.Conv2d, nn.Linear, nn.LSTM)
    hooks = [layer.register_forward_hook(note) for layer in model.modules() if isinstance(layer, kinds)]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return found
