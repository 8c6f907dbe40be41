"""Models of the agents' own, where they are given worse ones than there are.

`Masked` (accuracy shaping and RealFM, `masked/1` in `payments/levels.py`): worth no more than an agent's points have
earned. After a training round agent i is given the new number in every place k with u_k < q_i and keeps its own in all
others; u ~ U[0, 1) is drawn from (seed, agent), and q_i is the largest that halving finds for which its model is worth
at most what i has earned. So what an agent has from earlier rounds is counted. Noise could be subtracted by whoever
knows the seed, and a model on the way between two by whoever has both; a number that was never sent cannot be had. Two
agents who put their models together have the places of both. An agent who has earned less than its model is worth, as
it delivered less than before, begins again from the first model. Its update counts in the places that it was given; in
the others it started from numbers that are not the center's.

`Sparse` (CGSV, `payments/downloads.py`): after a training round agent i adds to its own model the part q_i of the
model's change, in each layer the numbers of the largest size. Its update counts in all places, with the same length as
everybody's. Who was always given all has the center's model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import draws
from ..contribution import finite
from ..errors import SettingError
from ..identity import digest
from ..mechanisms import Mechanism
from ..messages import Update
from ..payments import Oracles, Payment
from ..payments.downloads import Downloads
from ..payments.levels import Levels
from ..payments.pooled import PARTS
from ..run import Run

HALVINGS = 8  # of q: so many models are evaluated for each agent that has not earned all of the new one


class OwnModels:
    """The agents' own models of one run. `first` is the model before the first round, `models` those that are not the
    center's; `buffers` are the entries that are no parameters."""

    def __init__(
        self, payment: Any, seed: int, first: Update, buffers: Collection[str], models: Mapping[str, Update]
    ) -> None:
        self.payment, self.seed, self.first, self.buffers = payment, seed, first, buffers
        self.models, self._next = models, models

    @staticmethod
    def of(
        mechanism: Mechanism, first: Update, buffers: Collection[str], models: Mapping[str, Update] | None = None
    ) -> OwnModels | None:
        """None where all are sent the same model."""
        found = [(payment, kind) for payment in mechanism.payments if (kind := _kind(payment)) is not None]
        if len(found) > 1:
            names = " and ".join(repr(payment.name) for payment, _ in found)
            raise SettingError(
                f"incentive.payment names {names}, which send agents different models: name one of them."
            )
        return found[0][1](found[0][0], mechanism.settings.seed, first, buffers, models or {}) if found else None

    @classmethod
    def saved(
        cls, mechanism: Mechanism, agents: Sequence[str], arrays: Mapping[str, Update], buffers: Collection[str]
    ) -> OwnModels | None:
        """As `arrays` gave them to be saved."""
        models: dict[str, dict[str, np.ndarray]] = {}
        for label, array in arrays["own"].items():
            number, name = label.split(":", 1)
            models.setdefault(agents[int(number)], {})[name] = array
        return cls.of(mechanism, arrays["begun"], buffers, models)

    def arrays(self, agents: Sequence[str]) -> dict[str, Update]:
        """What is saved with a state: the first model, and those that are granted from now on."""
        own = {
            f"{agents.index(agent)}:{name}": array
            for agent, model in self._next.items()
            for name, array in model.items()
        }
        return {"begun": self.first, "own": own}

    def hand_over(self) -> None:
        """The round is closed: from now on agents are sent what it granted."""
        self.models = self._next

    def model(self, agent: str, w: Update) -> Update:
        """What this agent has been given of the center's w."""
        return self.models.get(agent, w)

    def digests(self, run: Run, w: Update) -> dict[str, str]:
        whole = digest(w)
        return {agent: digest(self.models[agent]) if agent in self.models else whole for agent in run.agents}

    @property
    def parameters(self) -> list[str]:
        return [name for name, array in self.first.items() if name not in self.buffers and array.dtype.kind == "f"]

    def refuse(self, run: Run, oracles: Oracles) -> None:
        """Before the first round."""

    def counted(self, run: Run, agent: str, update: Update) -> Update:
        """An update as it counts."""
        raise NotImplementedError

    def weights(self, run: Run) -> Mapping[str, int] | None:
        """By what the mean of the updates is weighted; None: as the settings say."""
        return None

    def grant(
        self, run: Run, w: Update, new: Update, updates: Mapping[str, Update], oracles: Oracles
    ) -> dict[str, dict[str, Any]]:
        """What each agent has from now on, once a training round is closed; w was the center's model before. Returns
        what the round's event tells payments of it."""
        raise NotImplementedError


class Masked(OwnModels):
    """Entries that are no parameters come with the whole model only."""

    payment: Levels

    def counted(self, run: Run, agent: str, update: Update) -> Update:
        """An update in the places that its agent was given, 0 elsewhere."""
        if agent not in self.models:
            return update
        share = self.payment.memory(run)["shares"][agent]
        given = {name: places < share for name, places in self._places(agent)}
        return {name: np.where(given[name], a, a.dtype.type(0)) if name in given else a for name, a in update.items()}

    def grant(
        self, run: Run, w: Update, new: Update, updates: Mapping[str, Update], oracles: Oracles
    ) -> dict[str, dict[str, Any]]:
        """As much of the new model as each has earned; told is what that is worth."""
        memory, whole, first = self.payment.memory(run), *(self._worth(run, m, oracles) for m in (new, self.first))
        before, models = memory.get("levels", {}), dict[str, Update]()
        shares, levels = dict.fromkeys(run.agents, 1.0), dict.fromkeys(run.agents, whole)
        for agent, cap in self.payment.earned(run).items():
            if whole <= cap:
                continue
            level, own = before.get(agent, first), self.model(agent, w)
            if level > cap:
                level, own = first, self.first
            low, high, best = 0.0, 1.0, own
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                found = self._worth(run, model := self._mixed(agent, own, new, middle), oracles)
                if found <= cap:
                    low, level, best = middle, found, model
                else:
                    high = middle
            shares[agent], levels[agent], models[agent] = low, level, best
        memory["shares"], memory["levels"], self._next = shares, levels, models
        return {"levels": levels}

    def refuse(self, run: Run, oracles: Oracles) -> None:
        """Before the first round: nobody can be given less than the first model, which all have."""
        least = self._worth(run, self.first, oracles)
        for agent, floor in (self.payment.floors or {}).items():
            if least > floor:
                raise SettingError(
                    f"incentive.options.level.floors says that agent {agent!r} has {float(floor):g} without data, but "
                    f"the first model is worth {least:.6g} already, and all have it: raise the floor to that, and "
                    "bases with it. Both are in units of the center's utility times value_per_nat."
                )

    @staticmethod
    def _worth(run: Run, model: Update, oracles: Oracles) -> float:
        assert oracles.utility is not None  # Levels.check
        return run.settings.value_per_nat * finite(oracles.utility(model))

    def _mixed(self, agent: str, own: Update, new: Update, share: float) -> Update:
        """The agent's own model with this share of the new one's numbers."""
        given = {name: np.where(places < share, new[name], own[name]) for name, places in self._places(agent)}
        return {name: given.get(name, array) for name, array in own.items()}

    def _places(self, agent: str) -> Iterator[tuple[str, np.ndarray]]:
        """u of each place of a parameter."""
        drawn = draws.generator(self.seed, "withheld", agent)
        for name in self.parameters:
            yield name, drawn.random(self.first[name].shape, dtype=np.float32)


class Sparse(OwnModels):
    """Entries that are no parameters come whole, with every round."""

    payment: Downloads

    def refuse(self, run: Run, oracles: Oracles) -> None:
        """Before the first round: an update of the agreed length must fit into the model's numbers."""
        for name in self.parameters:
            kind = self.first[name].dtype
            if self.payment.length > (most := float(np.finfo(kind).max)):
                raise SettingError(
                    f"incentive.options.download.length is {self.payment.length}, but {name!r} is of {kind}, which has "
                    f"no number above {most:g}: set a smaller length."
                )

    def counted(self, run: Run, agent: str, update: Update) -> Update:
        """An update with the agreed length; one of zeros stays."""
        peak = max((float(np.max(np.abs(update[name]), initial=0.0)) for name in self.parameters), default=0.0)
        if not peak > 0.0:
            return update
        unit = {
            name: np.divide(update[name], peak, dtype=np.float64) for name in self.parameters
        }  # squares stay finite
        factor = float(self.payment.length) / self._product(unit, unit) ** 0.5
        return {name: (unit[name] * factor).astype(a.dtype) if name in unit else a for name, a in update.items()}

    def weights(self, run: Run) -> Mapping[str, int] | None:
        """Everybody's r; delivered points in the first round."""
        found = self.payment.reputations(run)
        found = found if any(found.values()) else run.delivered
        return found if any(found.values()) else None

    def grant(
        self, run: Run, w: Update, new: Update, updates: Mapping[str, Update], oracles: Oracles
    ) -> dict[str, dict[str, Any]]:
        """The part of the change that each has by its weight; told are the updates' cosines with all of it."""
        scores = self._cosines(updates, self.weights(run) or dict.fromkeys(updates, 1))
        _, shares = self.payment.next(run, scores)
        change = {name: new[name] - w[name] for name in self.parameters}
        models = dict[str, Update]()
        for agent, share in shares.items():
            if share < PARTS or agent in self.models:
                own = self._added(self.model(agent, w), w, new, change, share)
                if not all(np.array_equal(own[name], new[name]) for name in change):
                    models[agent] = own
        self._next = models
        return {"scores": scores}

    def _cosines(self, updates: Mapping[str, Update], weights: Mapping[str, int]) -> dict[str, int]:
        """Of each update with the weighted sum of all, in billionths."""
        together = {name: np.zeros(self.first[name].shape) for name in self.parameters}
        for agent, update in updates.items():
            for name, total in together.items():
                total += float(weights[agent]) * np.asarray(update[name], dtype=np.float64)
        size, found = self._product(together, together) ** 0.5, dict[str, int]()
        for agent, update in updates.items():
            both = size * self._product(update, update) ** 0.5
            cosine = self._product(update, together) / both if both > 0.0 else 0.0
            found[agent] = round(PARTS * min(max(cosine, -1.0), 1.0))
        return found

    def _added(self, own: Update, w: Update, new: Update, change: Update, share: int) -> Update:
        """An agent's own model with this part of the change; where it has the center's number, it has the new one."""
        made = dict(new)
        for name, moved in change.items():
            whole = np.where(own[name] == w[name], new[name], own[name] + moved)
            made[name] = np.where(largest(moved, share), whole, own[name])
        return made

    def _product(self, a: Update, b: Update) -> float:
        """Over the parameters; NumPy adds up in the same order on every machine, BLAS does not."""
        return sum(float(np.sum(np.multiply(a[name], b[name], dtype=np.float64))) for name in self.parameters)


def largest(change: np.ndarray, share: int) -> np.ndarray:
    """Where the numbers of the largest size are, this part of them in billionths, rounded up; equal ones come together.

    >>> largest(np.array([3.0, -1.0, 2.0, -2.0]), PARTS // 2)
    array([ True, False,  True,  True])
    """
    size = np.abs(change)
    count = -(-size.size * share // PARTS)
    if not 0 < count < size.size:
        return np.full(size.shape, count > 0)
    return np.asarray(size >= np.partition(size, size.size - count, axis=None)[size.size - count])


def _kind(payment: Payment) -> type[OwnModels] | None:
    if isinstance(payment, Downloads):
        return Sparse
    return Masked if isinstance(payment, Levels) and payment.masks else None
