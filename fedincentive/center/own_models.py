"""A model of its own for each agent, worth no more than its points have earned (`payments/levels.py`, `masked/1`).

After a training round agent i is given the new number in every place k with u_k < q_i and keeps its own in all others;
u ~ U[0, 1) is drawn from (seed, agent), and q_i is the largest that halving finds for which its model is worth at most
what i has earned. So what an agent has from earlier rounds is counted. Noise could be subtracted by whoever knows the
seed, and a model on the way between two by whoever has both; a number that was never sent cannot be had. Two agents who
put their models together have the places of both.

An agent who has earned less than its model is worth, as it delivered less than before, begins again from the first
model. Its update counts in the places that it was given; in the others it started from numbers that are not the
center's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from .. import draws
from ..errors import SettingError
from ..identity import digest
from ..mechanisms import Mechanism
from ..messages import Update
from ..payments import Levels, Oracles
from ..run import Run

HALVINGS = 8  # of q: so many models are evaluated for each agent that has not earned all of the new one


class OwnModels:
    """The agents' own models of one run. `first` is the model before the first round, `models` those that are not the
    center's. Entries that are no parameters (`buffers`) come with the whole model only."""

    def __init__(
        self, payment: Levels, seed: int, first: Update, buffers: Collection[str], models: Mapping[str, Update]
    ) -> None:
        self.payment, self.seed, self.first, self.buffers = payment, seed, first, buffers
        self.models, self._next = models, models

    @classmethod
    def of(
        cls, mechanism: Mechanism, first: Update, buffers: Collection[str], models: Mapping[str, Update] | None = None
    ) -> OwnModels | None:
        """None where all are sent the same model."""
        payment = next((p for p in mechanism.payments if isinstance(p, Levels) and p.masks), None)
        return None if payment is None else cls(payment, mechanism.settings.seed, first, buffers, models or {})

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

    def counted(self, run: Run, agent: str, update: Update) -> Update:
        """An update in the places that its agent was given, 0 elsewhere."""
        if agent not in self.models:
            return update
        share = self.payment.memory(run)["shares"][agent]
        given = {name: places < share for name, places in self._places(agent)}
        return {name: np.where(given[name], a, a.dtype.type(0)) if name in given else a for name, a in update.items()}

    def grant(self, run: Run, w: Update, new: Update, oracles: Oracles) -> dict[str, float]:
        """What each agent has of the new model, once the round is closed; returns what that is worth. w was the
        center's model before."""
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
        return levels

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
        return run.settings.value_per_nat * float(oracles.utility(model))

    def _mixed(self, agent: str, own: Update, new: Update, share: float) -> Update:
        """The agent's own model with this share of the new one's numbers."""
        given = {name: np.where(places < share, new[name], own[name]) for name, places in self._places(agent)}
        return {name: given.get(name, array) for name, array in own.items()}

    def _places(self, agent: str) -> Iterator[tuple[str, np.ndarray]]:
        """u of each place of a parameter."""
        drawn = draws.generator(self.seed, "withheld", agent)
        for name, array in self.first.items():
            if name not in self.buffers and array.dtype.kind == "f":
                yield name, drawn.random(array.shape, dtype=np.float32)
