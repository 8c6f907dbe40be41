"""The client's side in FLUTE: it trains on as many points as its agent delivers, and says whose update it is.

FLUTE's messages are a list of tensors each way. One more tensor at the end of the model tells how many points each
client trains on; one more at the end of an update, which client made it. So they pass through every backend.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ... import draws
from ...errors import SettingError
from .settings import is_mechanism, read


def process_round(theirs: Callable[..., dict], client_data: Any, server_data: Any, model: Any, data_path: Any) -> dict:
    """FLUTE's own Client.process_round, on the agent's points.

    In a single process the server's model is the same object: it is put back to where the round began, which FLUTE
    forgets (its FedAvg then steps from the last client's model, and counts that client twice).
    """
    client_id, (data, *more), config, send = client_data
    rate, sent, step = server_data
    count = len(list(model.parameters()))
    start, points = sent[:count], sent[count:]
    if is_mechanism(config["strategy"]):
        settings, host = read(config)
        torch.set_num_threads(settings.threads)  # one process has many, torch.distributed.run's have one: other bits
        agent = str(data["users"][0])
        own = points_of(settings.seed, agent, _size(data), host.held_out)[0]
        order = draws.order(settings.seed, agent, len(own))
        data = part(data, own[order[: int(points[0][client_id[0]])]])
        set_seed(draws.local_seed(settings.seed, agent, step))
    output = theirs((client_id, [data, *more], config, send), (rate, start, step), model, data_path)
    payload = output["pl"]
    payload["gradients"] = [g.detach().clone() for g in payload["gradients"]] + [torch.tensor([float(client_id[0])])]
    for p, before in zip(model.parameters(), start, strict=True):
        p.data, p.grad = before.to(p.device, copy=True), None
    return output


def points_of(seed: int, agent: str, size: int, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """(the points an agent may give, those it values models on)."""
    return draws.held_out(seed, agent, size) if held_out else (np.arange(size), np.arange(0))


def part(data: Mapping[str, Any], points: np.ndarray) -> Any:
    """The same user with these points alone, in this order."""
    user, size = data["users"][0], _size(data)
    kept = {"users": [user], "num_samples": [len(points)]}
    for field in ("user_data", "user_data_label"):
        if field in data:
            kept[field] = {user: _taken(data[field][user], points, size, f"{field} of user {user!r}")}
    return type(data)(kept)


def _size(data: Mapping[str, Any]) -> int:
    return int(data["num_samples"][0])


def _taken(values: Any, points: np.ndarray, size: int, whose: str) -> Any:
    if isinstance(values, Mapping):
        return {key: _taken(column, points, size, f"{whose}, column {key!r},") for key, column in values.items()}
    try:
        length = len(values)
    except TypeError:
        length = -1
    if length != size:
        raise SettingError(
            f"{whose} is a {type(values).__name__} and not a sequence of its {size} points (num_samples): a mechanism "
            "must be able to take some of them."
        )
    if isinstance(values, np.ndarray | torch.Tensor):
        return values[points]
    return [values[i] for i in points]


def set_seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
