"""How others compute the same: each peer takes an (n, m) array and the trim, and gives the trimmed mean of its rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

Peer = Callable[[np.ndarray, int], Any]


def numpy_sort(x: np.ndarray, k: int) -> np.ndarray:
    return np.sort(x, axis=0)[k : len(x) - k].mean(axis=0)


def numpy_partition(x: np.ndarray, k: int) -> np.ndarray:
    return np.partition(x, (k, len(x) - k - 1), axis=0)[k : len(x) - k].mean(axis=0)


def torch_sort(x: np.ndarray, k: int) -> Any:
    torch = import_module("torch")
    return torch.sort(torch.from_numpy(x), dim=0).values[k : len(x) - k].mean(dim=0)


def torch_topk(x: np.ndarray, k: int) -> Any:
    tensor = import_module("torch").from_numpy(x)
    ends = tensor.topk(k, dim=0).values.sum(dim=0) + tensor.topk(k, dim=0, largest=False).values.sum(dim=0)
    return (tensor.sum(dim=0) - ends) / (len(x) - 2 * k)


def scipy_trim_mean(x: np.ndarray, k: int) -> np.ndarray:
    return import_module("scipy.stats").trim_mean(x, (k + 0.5) / len(x), axis=0)


def flower(x: np.ndarray, k: int) -> Any:
    aggregate = import_module("flwr.server.strategy.aggregate")
    return aggregate.aggregate_trimmed_avg([([row], 1) for row in x], (k + 0.5) / len(x))


def byzfl(x: np.ndarray, k: int) -> Any:
    return byzfl_aggregators().TrMean(f=k)(x)


def byzfl_aggregators() -> Any:
    """Without ByzFL's top module, which imports torchvision and seaborn for its own benchmarks."""
    if "byzfl" not in sys.modules:
        top, spec = ModuleType("byzfl"), find_spec("byzfl")
        top.__path__ = list(spec.submodule_search_locations or []) if spec else []
        sys.modules["byzfl"] = top
    return import_module("byzfl.aggregators")


PEERS: dict[str, tuple[str, Peer]] = {
    "torch.sort": ("torch", torch_sort),
    "torch.topk": ("torch", torch_topk),
    "np.sort": ("numpy", numpy_sort),
    "np.partition": ("numpy", numpy_partition),
    "scipy trim_mean": ("scipy", scipy_trim_mean),
    "Flower": ("flwr", flower),
    "ByzFL": ("byzfl", byzfl),
}


def installed() -> dict[str, Peer]:
    """The peers that can run here."""
    return {name: run for name, (package, run) in PEERS.items() if package in sys.modules or find_spec(package)}


def key_by_key(states: list[dict[str, Any]], weights: list[float]) -> dict[str, Any]:
    """A state_dict's weighted mean as federated frameworks commonly do it: per name, client after client, in torch."""
    total = sum(weights)
    result: dict[str, Any] = {}
    for name in states[0]:
        for state, weight in zip(states, weights, strict=True):
            term = state[name] * (weight / total)
            result[name] = term if name not in result else result[name] + term
    return result


def fedml_aggregator() -> Callable[[list[dict[str, Any]], list[float]], Any] | None:
    """FedML's own aggregation of state_dicts, where FedML is installed."""
    if find_spec("fedml") is None:
        return None
    operator = import_module("fedml.ml.aggregator.agg_operator").FedMLAggOperator
    arguments = type("Arguments", (), {"federated_optimizer": "FedAvg"})()

    def run(states: list[dict[str, Any]], weights: list[float]) -> Any:
        copies = [dict(state) for state in states]
        return operator.agg(arguments, list(zip(weights, copies, strict=True)))

    return run
