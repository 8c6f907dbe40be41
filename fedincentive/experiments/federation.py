"""A federation: real data shared among agents, a model, what data costs and is worth. Any mechanism is played on it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import checks, engine, mechanisms
from ..adversary import Misreport
from ..agent import Strategy
from ..center import Center, Outcome
from ..checks import setting
from ..draws import generator
from ..errors import SettingError
from ..ledger import Ledger
from ..messages import RoundResult, Update
from . import models, partition
from .data import PADDING, Dataset
from .shared_training import Group, GroupAgent, GroupSite, Memory
from .training import EMBEDDING, Grouped, Local, Losses, Plain, Shard

Told = tuple[str, int, float | None]  # phase, training step, and the welfare of the valuations reported
SPLITS = ("iid", "writers", "grouped", "dirichlet", "pathological")


@dataclass(frozen=True)
class Layout:
    """Who has what: the data's side of a preset."""

    data: str = setting(checks.text)
    model: str = setting(checks.text)
    split: str = setting(checks.one_of(*SPLITS), "iid")
    agents: int = setting(checks.integer(2), 10)
    points: int | None = setting(checks.optional(checks.integer(5)), None, help="The most examples of an agent.")
    held_out: float = setting(checks.real(0.05, 0.9), 0.2, help="The part of them it values models by.")
    users: int | None = setting(checks.optional(checks.integer(1)), None, help="Users per agent where grouped.")


@dataclass(frozen=True)
class Played:
    """A finished run with what only a simulation knows: values, costs, and the seconds of every round."""

    outcome: Outcome
    settings: mechanisms.Settings
    nats: dict[str, float]  # r - L_i of the final model
    costs: dict[str, float]  # of the points delivered per training round, on average
    told: list[Told]  # of every round but those of phase 1
    seconds: list[float]  # processor seconds since the start: after phase 1, and after each of these rounds

    @property
    def welfare(self) -> float:
        """sum_i (r - L_i), in nats."""
        return sum(self.nats.values())

    @property
    def net_welfare(self) -> float:
        """sum_i (v_i - c_i), in units of money."""
        return self.settings.value_per_nat * self.welfare - sum(self.costs.values())

    @property
    def share(self) -> float:
        """Points contributed of all points there are."""
        return sum(self.outcome.s.values()) / sum(self.outcome.s_max.values())

    def utilities(self) -> dict[str, float]:
        """u_i = v_i - c_i + p_i."""
        paid, minor = self.outcome.payments, self.settings.minor
        return {a: self.settings.value_per_nat * v - self.costs[a] + paid[a] / minor for a, v in self.nats.items()}

    def curve(self) -> list[list[float]]:
        """[training rounds done, welfare in nats]: agents report how they value the model they are sent."""
        told = [(step, welfare) for phase, step, welfare in self.told if phase == "train" and welfare is not None]
        rows = [[step, welfare / self.settings.value_per_nat] for step, welfare in told]
        return [*rows, [self.outcome.trained, self.welfare]]


class Diary:
    """Sits with the agents and only remembers: what each round came to, and the processor seconds until then.

    Of phase 1, which can have a hundred thousand rounds, it keeps the seconds alone. Its clock runs while its own run
    is played; what another run has computed for this one counts with the seconds it took there. The center saves it
    with each round, so that a run that was killed knows its past exactly.
    """

    name, omniscient = "diary", False

    def __init__(self, center: Center, group: Group) -> None:
        self.center, self.group = center, group
        self.told: list[Told] = []
        self.seconds = [0.0]
        self._start = 0.0

    def begin(self) -> None:
        """A round begins."""
        self._start = self._clock()

    def _clock(self) -> float:
        return time.process_time() + self.group.lent

    def _after(self, phase: str) -> list[float]:
        """The seconds with those of the round that ends now."""
        now = self.seconds[-1] + self._clock() - self._start
        return [now] if phase == "contribute" else [*self.seconds, now]

    def note(self, result: RoundResult) -> None:
        if result.phase != "contribute":
            self.told.append((result.phase, result.step, result.metrics.get("welfare")))
        self.seconds = self._after(result.phase)

    def state(self) -> dict[str, Any]:
        """While a round is being closed: the rounds before it, and which one it is."""
        run = self.center.run
        shared = self.group.shared.get(run.settings.run, {})
        return {"told": self.told, "now": [run.phase, run.step], "seconds": self._after(run.phase), "shared": shared}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The last round's welfare is that of the valuations the center saved with it."""
        run = self.center.run
        known = len(run.valuations) == run.n
        welfare = sum(run.valuations.values()) / run.settings.minor if known else None
        phase, step = state["now"]
        self.told = [*map(tuple, state["told"]), *([] if phase == "contribute" else [(phase, step, welfare)])]
        self.seconds = list(state["seconds"])
        if state["shared"]:
            self.group.shared[run.settings.run] = state["shared"]


class Play:
    """A mechanism that is being played on a federation, round by round."""

    def __init__(
        self,
        federation: Federation,
        settings: mechanisms.Settings,
        agents: Sequence[GroupAgent],
        book: Ledger | None,
        state: Path | None,
    ) -> None:
        self.federation, self.settings = federation, settings
        mechanism = mechanisms.get(settings.mechanism, settings)
        enrolled = [agent.enrol() for agent in agents]
        self.center = Center.open(settings, mechanism, enrolled, federation.w0, book, state)
        self.diary = Diary(self.center, agents[0].site.group)  # type: ignore[attr-defined]
        self._rounds = engine.rounds(self.center, [*agents, self.diary])  # type: ignore[list-item]

    def step(self) -> bool:
        """Play one round; False where the run is over."""
        self.diary.begin()
        result = next(self._rounds, None)
        if result is not None:
            self.diary.note(result)
        return result is not None

    def until(self, trained: int) -> None:
        """Play until so many training rounds are done."""
        while self.center.run.trained < trained and self.step():
            pass

    def end(self) -> Played:
        """Play what is left."""
        federation, read = self.federation, self.settings
        with self.center:
            while self.step():
                pass
            outcome = self.center.conclude()
        losses = federation.losses.all(outcome.w)
        reward, cap = math.log(federation.data.classes), read.loss_cap
        nats = {name: reward - min(loss, cap) if math.isfinite(loss) else reward - cap for name, loss in losses.items()}
        spent = {name: read.cost_of(name) * outcome.delivered[name] for name in federation.names}
        return Played(outcome, read, nats, spent, self.diary.told, self.diary.seconds)


def lead(leader: Play, follower: Play) -> Played:
    """Play the leader to its end, and after each of its training rounds the same one of the follower.

    Where both train from the same model on the same points, the follower has the leader's updates, which need not be
    kept for longer. It stops where the leader does; its rounds are on disk, and whoever plays it goes on from there.
    """
    group = leader.diary.group
    group.memory.limit = max(group.memory.limit, group.round_bytes)
    with leader.center, follower.center:
        follower.until(leader.center.run.trained)  # where both were killed in between
        while leader.step():
            follower.until(leader.center.run.trained)
        return leader.end()


class Federation:
    """Agents with real data: the shares, the first model, costs ~ U[0, 1] and first contributions, all by seed.

    `workers` agents train at a time, one thread each. With `sparse`, the rows of a large embedding whose words nobody
    has stay out of the game: their gradient is 0 and so is every step that SGD or Adam makes of it, so that the other
    rows are the same bytes as if all had been sent. `whole` puts a model together again.
    """

    def __init__(
        self,
        data: Dataset,
        layout: Layout,
        seed: int,
        *,
        memory: Memory | None = None,
        workers: int = 1,
        sparse: bool = True,
    ) -> None:
        self.data, self.layout, self.seed, self.workers = data, layout, seed, workers
        self.parts = share(data, layout, seed)
        self.model = models.build(layout.model, data, seed)
        self.rows = _rows(self.model, data.x[np.concatenate(self.parts)]) if sparse else None
        if self.rows is not None:
            self.model.embedding = models.embedding_of(self.model, self.rows)
        self.w0 = {name: _fixed(array) for name, array in models.weights(self.model).items()}
        self.memory = Memory() if memory is None else memory
        width = len(str(layout.agents - 1))
        self.names = [f"agent-{k:0{width}d}" for k in range(layout.agents)]
        self.shards = {name: self._shard(part) for name, part in zip(self.names, self.parts, strict=True)}
        rng = generator(seed, "costs")
        self.cost = dict(zip(self.names, rng.uniform(0.0, 1.0, layout.agents).tolist(), strict=True))
        self.s0 = {name: float(_first(len(shard.y), rng)) for name, shard in self.shards.items()}
        self.orders = {name: generator(seed, name).permutation(len(shard.y)) for name, shard in self.shards.items()}
        self.losses = Losses(self.model, self.shards, workers)
        self._groups: dict[Local, Group] = {}

    def _shard(self, part: np.ndarray) -> Shard:
        held = max(1, round(self.layout.held_out * len(part)))
        x, y = self.data.x[part], torch.from_numpy(self.data.y[part])
        x = torch.from_numpy(x if self.rows is None else np.searchsorted(self.rows, x))
        prepare = getattr(self.model, "prepare", None)
        x = x if prepare is None else prepare(x).contiguous()
        return Shard(x[held:], y[held:], x[:held], y[:held])

    def group(self, local: Local) -> Group:
        """The agents' shared trainer for this kind of local work."""
        if local not in self._groups:
            trainer = (
                Grouped(self.model, self.shards, local)
                if self.model.grouped
                else Plain(self.model, self.shards, local, self.workers)
            )
            self._groups[local] = Group(trainer, self.losses, self.w0, self.memory)
        return self._groups[local]

    def whole(self, w: Update) -> Update:
        """A model with the rows of its embedding that stayed out of the game, as they were at the beginning."""
        if self.rows is None:
            return w
        table = models.weights(models.build(self.layout.model, self.data, self.seed))[EMBEDDING]
        table[self.rows] = w[EMBEDDING]
        return {**w, EMBEDDING: table}

    def agents(
        self,
        incentive: mechanisms.Settings,
        *,
        lies: Mapping[str, Misreport | str] | None = None,
        strategies: Mapping[str, Strategy | str] | None = None,
    ) -> list[GroupAgent]:
        group = self.group(
            Local(incentive.local, incentive.epochs, incentive.batch, incentive.learning_rate, incentive.seed)
        )
        found = []
        for name, shard in self.shards.items():
            site = GroupSite(
                name,
                group,
                len(shard.y),
                order=self.orders[name],
                reward=math.log(self.data.classes),
                cost_per_point=incentive.cost_of(name),
                value_per_nat=incentive.value_per_nat,
                loss_cap=incentive.loss_cap,
            )
            strategy = (strategies or {}).get(name, "gradient")
            found.append(GroupAgent(name, site, strategy, s0=self.s0[name], lies=(lies or {}).get(name)))
        return found

    def begin(
        self,
        incentive: Mapping[str, Any],
        book: Ledger | None = None,
        *,
        cost: float = 1.0,
        lies: Mapping[str, Misreport | str] | None = None,
        strategies: Mapping[str, Strategy | str] | None = None,
        state: Path | None = None,
    ) -> Play:
        """A mechanism that is about to be played; agent i's cost per point is `cost` times its draw from U[0, 1].

        With `state`, each round is kept in that folder, and a run that was broken off there goes on.
        """
        costs = {name: cost * c for name, c in self.cost.items()}
        read = mechanisms.Settings.read({"cost": costs, "seed": self.seed, "resume": state is not None, **incentive})
        return Play(self, read, self.agents(read, lies=lies, strategies=strategies), book, state)

    def play(self, incentive: Mapping[str, Any], book: Ledger | None = None, **how: Any) -> Played:
        """Play a mechanism to its end; see `begin`."""
        return self.begin(incentive, book, **how).end()

    def shared(self, run: str) -> dict[str, list[int]]:
        """The training rounds that a run had from others, by the run that trained for it."""
        found: dict[str, list[int]] = {}
        for group in self._groups.values():
            found |= group.shared.get(run, {})
        return found


def _rows(model: torch.nn.Module, x: np.ndarray) -> np.ndarray | None:
    """The rows of a large model's embedding that these texts use, padding first; None for other models."""
    if model.grouped or not hasattr(model, "embedding"):
        return None
    return np.unique(np.append(x, PADDING))


def share(data: Dataset, layout: Layout, seed: int) -> partition.Parts:
    """One index array per agent, cut to the layout's number of points."""
    n, cut = layout.agents, layout.points
    if layout.split in ("writers", "grouped") and data.users is None:
        raise SettingError(f"Data set {data.name!r} does not say whose its examples are: choose another split.")
    if layout.split == "iid" and cut is not None:
        if n * cut > len(data):
            raise SettingError(f"{n} agents with {cut} points need {n * cut} examples; {data.name} has {len(data)}.")
        parts = partition.iid(len(data), len(data) // cut, seed)[:n]
    elif layout.split == "iid":
        parts = partition.iid(len(data), n, seed)
    elif layout.split == "writers" and data.users is not None:
        parts = partition.by_user(data.users, n, seed, least=20)
    elif layout.split == "grouped" and data.users is not None:
        parts = partition.grouped_users(data.users, n, layout.users, seed)
    else:
        # A quick run takes the part of the data that its agents would have in an even split.
        kept = generator(seed, "kept").permutation(len(data))[: n * cut if cut else None]
        draw = partition.dirichlet if layout.split == "dirichlet" else partition.pathological
        return [kept[part] for part in draw(data.y[kept], n, seed=seed)]
    return [part[:cut] for part in parts]


def _first(s_max: int, rng: np.random.Generator) -> int:
    """An integer s0 ~ U[s_max/3, 2 s_max/3], as in the paper."""
    return int(rng.integers(math.ceil(s_max / 3), math.floor(2 * s_max / 3) + 1))


def _fixed(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
