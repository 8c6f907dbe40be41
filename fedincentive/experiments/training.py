"""Local training and held-out losses of agents that start from the same w, computed together.

`Plain` trains one agent after the other. `Grouped` does the same arithmetic for all of them at once: parameters are
stacked along a leading axis of agents (torch.func.vmap), agents that run out of batches stand still. Models whose
layers are matrix products gain from it; a convolution with a weight per agent does not, so each model says which it is.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from ..draws import generator
from ..messages import Update
from .data import PADDING

MEMORY = 2**30  # bytes that stacked parameters and activations may take at once
EVALUATED = 1024  # examples of one forward pass of an evaluation
CACHED = 64  # the same for large models, whose activations would not stay in the processor's cache
EMBEDDING = "embedding.weight"  # the parameter of which a text trains only the rows of its words


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


def keep_memory() -> None:
    """Let this process keep the memory that activations free, where its C library is glibc.

    Otherwise each batch gives megabytes back to the system and has them mapped and cleared again: half of the
    processor time of a batch of 32 images.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: smaller blocks come from the heap (the largest value there is)
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: the heap does not shrink


class Plain:
    """One agent after the other, or `workers` of them at a time: the reference, and the way for large models.

    An agent's arithmetic is done by one thread whatever `workers` is, so the updates are the same bytes. Each thread
    has one model that its agents take turns with; convolutions read pixels with their channels side by side. Of an
    embedding only the rows of the words an agent has take part: the others have gradient 0.
    """

    def __init__(self, model: nn.Module, shards: Mapping[str, Shard], local: Local, workers: int = 1) -> None:
        self.model, self.shards, self.local, self.workers = model, shards, local, workers
        self.names = [name for name, _ in model.named_parameters()]
        self._own = threading.local()
        self._pool: ThreadPoolExecutor | None = None

    def updates(self, w: Update, requests: Sequence[Request], step: int) -> list[Update]:
        if self.workers == 1 or len(requests) == 1:
            return [self._update(w, agent, drawn, step) for agent, drawn in requests]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        # Longest first, so that no thread is left with a long one while the others are through.
        order = sorted(range(len(requests)), key=lambda k: -len(requests[k][1]))
        futures = {k: self._pool.submit(self._update, w, *requests[k], step) for k in order}
        return [futures[k].result() for k in range(len(requests))]

    def _update(self, w: Update, agent: str, drawn: np.ndarray, step: int) -> Update:
        if not len(drawn):
            return _nothing(w)
        if not hasattr(self._own, "model"):
            self._own.model = channels_last(copy.deepcopy(self.model))
        model, shard = self._own.model, self.shards[agent]
        x, rows = words(model, shard.x)
        now = load(model, w, rows)
        if self.local.local == "gradient":
            move = [-g for g in self._gradient(model, now, x, shard.y, drawn)]
        else:
            start = [p.detach().clone() for p in now]
            for batch in batches(agent, drawn, step, self.local):
                grads = self._gradient(model, now, x, shard.y, batch)
                with torch.no_grad():
                    for p, g in zip(now, grads, strict=True):
                        p.sub_(g, alpha=self.local.learning_rate)
            move = [p.detach() - q for p, q in zip(now, start, strict=True)]
        found = zip(self.names, move, strict=True)
        return {name: _whole(w[name], d, rows if name == EMBEDDING else None) for name, d in found}

    def _gradient(
        self, model: nn.Module, now: list[Tensor], x: Tensor, y: Tensor, rows: np.ndarray
    ) -> tuple[Tensor, ...]:
        index = torch.from_numpy(np.ascontiguousarray(rows))
        return torch.autograd.grad(functional.cross_entropy(model(channels_last(x[index])), y[index]), now)


def channels_last(value: Any) -> Any:
    """Images, and the weights of convolutions, in the order that oneDNN computes in; anything else as it is."""
    if isinstance(value, Tensor) and value.dim() != 4:
        return value
    return value.to(memory_format=torch.channels_last)


def words(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Texts with their words numbered from 0, and which row of the embedding each of these is; images as they are."""
    if not isinstance(getattr(model, "embedding", None), nn.Embedding):
        return x, None
    rows = torch.unique(torch.cat([x.flatten(), x.new_tensor([PADDING])]))  # padding stays word 0
    return torch.searchsorted(rows, x), rows


def load(model: nn.Module, w: Update, rows: Tensor | None) -> list[Tensor]:
    """Put w into a model, of its embedding only these rows, and return the model's parameters."""
    if rows is not None:
        model.embedding.weight = nn.Parameter(torch.from_numpy(w[EMBEDDING][rows.numpy()]))  # type: ignore[union-attr]
    with torch.no_grad():
        for name, p in model.named_parameters():
            if rows is None or name != EMBEDDING:
                p.copy_(_tensor(w[name]))
    return list(model.parameters())


def _whole(like: np.ndarray, d: Tensor, rows: Tensor | None) -> np.ndarray:
    """An update as the center takes it: in the model's order, with rows that nobody trained at 0."""
    if rows is None:
        return d.contiguous().numpy()
    found = np.zeros_like(like)
    found[rows.numpy()] = d.numpy()
    return found


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

    def __init__(self, model: nn.Module, shards: Mapping[str, Shard], workers: int = 1) -> None:
        self.model, self.shards, self.workers = model, shards, workers
        self._x = torch.cat([shard.x_held for shard in shards.values()])
        self._y = torch.cat([shard.y_held for shard in shards.values()])
        sizes = [len(shard.y_held) for shard in shards.values()]
        self._ends = np.cumsum(sizes)
        self._own = copy.deepcopy(model)  # convolutions with their channels side by side
        if not getattr(model, "grouped", False):
            channels_last(self._own)

    def one(self, w: Update, agent: str) -> float:
        shard = self.shards[agent]
        return float(self._each(w, shard.x_held, shard.y_held).mean())

    def all(self, w: Update) -> dict[str, float]:
        each = np.split(self._each(w, self._x, self._y), self._ends[:-1])
        return {agent: float(losses.mean()) for agent, losses in zip(self.shards, each, strict=True)}

    def _each(self, w: Update, x: Tensor, y: Tensor) -> np.ndarray:
        size = EVALUATED if self.model.grouped else CACHED
        x, rows = words(self._own, x)
        load(self._own, w, rows)

        def losses(k: int) -> Tensor:
            with torch.no_grad():
                logits = self._own(x[k : k + size] if self.model.grouped else channels_last(x[k : k + size]))
                return functional.cross_entropy(logits, y[k : k + size], reduction="none")

        starts = range(0, len(y), size)
        if self.workers == 1 or len(starts) == 1:
            found = list(map(losses, starts))
        else:
            with ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                found = list(pool.map(losses, starts))
        return torch.cat(found).double().numpy()


def _tensor(array: np.ndarray) -> Tensor:
    """A view: arrays of a broadcast may not be written to, and nobody here does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _nothing(w: Update) -> Update:
    return {name: np.zeros_like(array) for name, array in w.items()}
