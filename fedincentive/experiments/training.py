"""Local training and held-out losses of agents that start from the same w, computed together.

`Plain` trains one agent after the other. `Grouped` does the same arithmetic for all of them at once: parameters are
stacked along a leading axis of agents (torch.func.vmap), agents that run out of batches stand still. Models whose
layers are matrix products gain from it; a convolution with a weight per agent does not, so each model says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from ..draws import generator
from ..messages import Update

MEMORY = 2**30  # bytes that stacked parameters and activations may take at once
EVALUATED = 1024  # examples of one forward pass of an evaluation


@dataclass(frozen=True)
class Local:
    """The local work: d_i = w_i - w after `epochs` of SGD in batches, or the gradient of v_i = -L_i on all points."""

    local: str = "epochs"
    epochs: int = 1
    batch: int = 32
    learning_rate: float = 0.1
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Shard:
    """One agent's data: what it may train on, and what it values models by."""

    x: Tensor
    y: Tensor
    x_held: Tensor
    y_held: Tensor


Request = tuple[str, np.ndarray]  # an agent and the examples it trains on


def batches(agent: str, drawn: np.ndarray, step: int, local: Local) -> list[np.ndarray]:
    """The batches of an agent's training round; all randomness comes from (seed, agent, step)."""
    rng = generator(local.seed, agent, step)
    found = []
    for _ in range(local.epochs):
        order = rng.permutation(drawn)
        found += [order[k : k + local.batch] for k in range(0, len(order), local.batch)]
    return found


class Plain:
    """One agent after the other: the reference, and the way for large convolutional models."""

    def __init__(self, model: nn.Module, shards: Mapping[str, Shard], local: Local) -> None:
        self.model, self.shards, self.local = model, shards, local
        self.names = [name for name, _ in model.named_parameters()]

    def updates(self, w: Update, requests: Sequence[Request], step: int) -> list[Update]:
        return [self._update(w, agent, drawn, step) for agent, drawn in requests]

    def _update(self, w: Update, agent: str, drawn: np.ndarray, step: int) -> Update:
        if not len(drawn):
            return _nothing(w)
        shard, start = self.shards[agent], [torch.from_numpy(np.array(w[name])) for name in self.names]
        now = [p.clone().requires_grad_() for p in start]
        if self.local.local == "gradient":
            grads = self._gradient(now, shard, drawn)
            return {name: -g.numpy() for name, g in zip(self.names, grads, strict=True)}
        for batch in batches(agent, drawn, step, self.local):
            grads = self._gradient(now, shard, batch)
            now = [
                (p.detach() - self.local.learning_rate * g).requires_grad_() for p, g in zip(now, grads, strict=True)
            ]
        return {n: (p.detach() - q).numpy() for n, p, q in zip(self.names, now, start, strict=True)}

    def _gradient(self, now: list[Tensor], shard: Shard, rows: np.ndarray) -> tuple[Tensor, ...]:
        index = torch.from_numpy(np.ascontiguousarray(rows))
        logits = functional_call(self.model, dict(zip(self.names, now, strict=True)), (shard.x[index],))
        return torch.autograd.grad(functional.cross_entropy(logits, shard.y[index]), now)


class Grouped:
    """Many agents in one pass, in chunks that fit in `memory` bytes; the same updates as `Plain` up to rounding."""

    def __init__(self, model: nn.Module, shards: Mapping[str, Shard], local: Local, memory: int = MEMORY) -> None:
        self.model, self.shards, self.local, self.memory = model, shards, local, memory
        self.names = [name for name, _ in model.named_parameters()]
        self._logits: Callable[..., Tensor] = vmap(self._forward)

    def _forward(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(self.model, parameters, (x,))

    def chunk(self, rows: int) -> int:
        """Agents per pass: parameters, gradients and update, and some ten times the input of a batch."""
        parameters = sum(p.numel() for p in self.model.parameters())
        example = next(iter(self.shards.values())).x[0].numel()
        return max(1, self.memory // (4 * (4 * parameters + 10 * rows * example)))

    def updates(self, w: Update, requests: Sequence[Request], step: int) -> list[Update]:
        found: list[Update] = [{}] * len(requests)
        if self.local.local == "gradient":
            plans = [[drawn] if len(drawn) else [] for _, drawn in requests]
        else:
            plans = [batches(agent, drawn, step, self.local) for agent, drawn in requests]
        # Longest first: agents that are through leave from the end of the stack.
        order = sorted(range(len(requests)), key=lambda k: -len(plans[k]))
        size = self.chunk(max((len(rows) for plan in plans for rows in plan), default=1))
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            stacked = self._train(w, [requests[k][0] for k in chosen], [plans[k] for k in chosen])
            for row, k in enumerate(chosen):
                found[k] = {name: array[row] for name, array in stacked.items()}
        return found

    def _train(self, w: Update, agents: list[str], plans: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
        start = {name: torch.from_numpy(np.array(w[name])) for name in self.names}
        now = {name: p.expand(len(agents), *p.shape).clone() for name, p in start.items()}
        gradient = self.local.local == "gradient"
        found = {name: torch.zeros_like(p) for name, p in now.items()} if gradient else now
        for turn in range(max(map(len, plans), default=0)):
            active = sum(1 for plan in plans if len(plan) > turn)
            live = {name: p[:active] for name, p in now.items()}
            grads = self._gradient(live, agents[:active], [plan[turn] for plan in plans[:active]])
            for name, g in grads.items():
                found[name][:active] -= g if gradient else self.local.learning_rate * g
        return {name: (d if gradient else d - start[name]).numpy() for name, d in found.items()}

    def _gradient(self, now: dict[str, Tensor], agents: list[str], rows: list[np.ndarray]) -> dict[str, Tensor]:
        """Each agent's own mean-loss gradient; short batches are padded with examples of weight 0."""
        width = max(map(len, rows))
        index = np.zeros((len(rows), width), dtype=np.int64)
        weight = torch.zeros(len(rows), width)
        for k, row in enumerate(rows):
            index[k, : len(row)] = row
            weight[k, : len(row)] = 1.0 / len(row)
        x = torch.stack([self.shards[a].x[torch.from_numpy(i)] for a, i in zip(agents, index, strict=True)])
        y = torch.stack([self.shards[a].y[torch.from_numpy(i)] for a, i in zip(agents, index, strict=True)])
        live = {name: p.detach().requires_grad_() for name, p in now.items()}
        logits = self._logits(live, x)
        losses = functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
        grads = torch.autograd.grad((losses * weight.flatten()).sum(), list(live.values()))
        return dict(zip(live, grads, strict=True))


class Losses:
    """Held-out losses: of one agent under any model, or of all agents under the same model in one pass."""

    def __init__(self, model: nn.Module, shards: Mapping[str, Shard]) -> None:
        self.model, self.shards = model, shards
        self._x = torch.cat([shard.x_held for shard in shards.values()])
        self._y = torch.cat([shard.y_held for shard in shards.values()])
        sizes = [len(shard.y_held) for shard in shards.values()]
        self._ends = np.cumsum(sizes)

    def one(self, w: Update, agent: str) -> float:
        shard = self.shards[agent]
        return float(self._each(w, shard.x_held, shard.y_held).mean())

    def all(self, w: Update) -> dict[str, float]:
        each = np.split(self._each(w, self._x, self._y), self._ends[:-1])
        return {agent: float(losses.mean()) for agent, losses in zip(self.shards, each, strict=True)}

    def _each(self, w: Update, x: Tensor, y: Tensor) -> np.ndarray:
        parameters = {name: torch.from_numpy(np.array(array)) for name, array in w.items()}
        found = []
        with torch.no_grad():
            for k in range(0, len(y), EVALUATED):
                logits = functional_call(self.model, parameters, (x[k : k + EVALUATED],))
                found.append(functional.cross_entropy(logits, y[k : k + EVALUATED], reduction="none"))
        return torch.cat(found).double().numpy()


def _nothing(w: Update) -> Update:
    return {name: np.zeros_like(array) for name, array in w.items()}
