"""How much of each round's change an agent is given: CGSV (Xu et al. 2021), a part of the gradient instead of money.

    u_i = length d_i / |d_i|                           every update counts with the same length
    D   = sum_i r_i u_i                                the model's change; by delivered points in the first round
    r_i <- max(keep r_i + (1 - keep) cos(u_i, D), 0.001), scaled to sum 1        from 0 on
    q_i = tanh(altruism r_i) / max_j tanh(altruism r_j)

Agent i adds the part q_i of D to a model of its own: in each layer the numbers of the largest size
(`center/own_models.py`). No money moves. The ledger has a memo of each training round with the cosines, which are the
center's word, and with r and q, which follow from them: r in exact integers.

As in the authors' code (main.py), not in the paper's words, which were not to be had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..entry import Entry
from ..errors import SettingError
from ..run import Run
from ..settings import Settings
from ..terms import Terms
from .base import Array, Body, Event, Memory, Payment, Problem, Promises, When, in_order, points_within
from .exact import Amounts
from .oracles import Oracles
from .pooled import ALTRUISM, PARTS, download, reputations, tanh_shares


@dataclass(frozen=True)
class Downloads(Payment):
    keep: Fraction = Fraction(19, 20)  # the authors' alpha
    altruism: Fraction = Fraction(1)  # their beta: the larger, the more alike are the parts
    length: Fraction = Fraction(1)  # their Gamma
    server_optimizer: str = "sgd"
    weights: str = "uniform"
    aggregation: str | None = None

    name, kinds, rules = "download", ("download",), ("download/1",)

    def __post_init__(self) -> None:
        if not 0 <= self.keep < 1:
            raise SettingError(f"incentive.options.download.keep is {self.keep}: it must be at least 0, below 1.")
        if not ALTRUISM[0] <= self.altruism <= ALTRUISM[1]:
            raise SettingError(
                f"incentive.options.download.altruism is {self.altruism}: it must be from 0.000001 to a billion."
            )
        if not 0 < self.length <= 10**9:
            raise SettingError(
                f"incentive.options.download.length is {self.length}: it must be above 0, at most a billion."
            )

    @classmethod
    def of(cls, settings: Settings) -> Downloads:
        if settings.audited:
            raise SettingError(
                "incentive.auditors make training passes again from the model that all were sent, but payment "
                "'download' sends every agent another one: leave the auditors out, or choose a mechanism that pays "
                "money."
            )
        return super().of(settings)

    def check(self, n: int, oracles: Oracles) -> None:
        super().check(n, oracles)
        for key, wanted in (("server_optimizer", "sgd"), ("weights", "uniform"), ("aggregation", "mean")):
            if (getattr(self, key) or wanted) != wanted:
                raise SettingError(
                    f"incentive.{key} is {getattr(self, key)!r}: cgsv adds sum_i r_i d_i/|d_i| to the model, with "
                    f"weights r of its own, so set {key}: {wanted}."
                )

    def reputations(self, run: Run) -> dict[str, int]:
        """r after the last training round, in billionths; 0 before the first."""
        return dict(self.memory(run).get("weights") or dict.fromkeys(run.agents, 0))

    def next(self, run: Run, scores: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
        """(r, q) after a training round in which the updates had these cosines."""
        weights = reputations(self.reputations(run), scores, self.keep)
        return weights, tanh_shares(weights, self.altruism)

    def due(self, run: Run, event: Event) -> Entry | None:
        if event.phase != "train":
            return None
        weights, shares = self.next(run, event.scores)
        inputs = {
            "before": self.reputations(run),
            "scores": dict(event.scores),
            "weights": weights,
            "shares": shares,
            "keep": str(self.keep),
            "altruism": str(self.altruism),
            "step": run.trained - 1,
            "points": {agent: run.delivered[agent] for agent in run.agents},
        }
        return self.entry(run, inputs)

    @classmethod
    def amounts(cls, body: Body, memory: Memory, minor: int) -> Amounts:
        given = body["inputs"]
        return download(*(given[key] for key in ("before", "scores", "weights", "shares", "keep", "altruism")))

    @classmethod
    def remember(cls, body: Body, memory: Memory) -> None:
        memory["weights"] = dict(body["inputs"]["weights"])

    @classmethod
    def replay(cls, body: Body, memory: Memory, minor: int) -> Iterator[Problem | Amounts]:
        yield from in_order(body, memory)
        before, first = body["inputs"]["before"], body["inputs"].get("step") == 0
        if before != (dict.fromkeys(before, 0) if first else memory.get("weights", before)):
            yield "terms", "the weights it begins with are not those that the round before it ended with."
        yield from super().replay(body, memory, minor)

    def schedule(self) -> Mapping[str, When]:
        return {"download": "step"}

    def against(self, body: Body, terms: Terms) -> Iterator[str]:
        given = body["inputs"]
        yield from points_within(given["points"], terms.s_max, "points")
        if set(given["before"]) != set(terms.s_max):
            odd = sorted(set(given["before"]) ^ set(terms.s_max))[0]
            yield f"{odd!r} has a weight but is not in the terms, or is in the terms and has none"
        for key in ("keep", "altruism"):
            if given[key] != str(getattr(self, key)):
                yield f"{key} is {given[key]!r}, agreed is '{getattr(self, key)}'"

    @classmethod
    def explain(cls, entry: Entry, account: str, minor: int) -> str:
        given = entry.inputs
        if account not in given["shares"]:
            return entry.rule
        cosine = f"a cosine of {given['scores'][account] / PARTS:.4f}" if account in given["scores"] else "no update"
        return f"memo, {cosine}; it is given {given['shares'][account] / PARTS:.2%} of the model's change"

    @classmethod
    def told(cls, entry: Entry) -> Mapping[str, Mapping[str, int]]:
        return {"delivered": entry.inputs["points"]}

    def limits(self, agents: object, s_max: Array) -> Array:
        return np.zeros(len(s_max))

    def summary(self, oracles: Oracles | None = None) -> str:
        return (
            "no money: each agent is given the larger a part of the model's changes the more its updates go with them"
        )

    def promises(self, oracles: Oracles) -> Promises:
        return Promises((), {"equilibrium": "the rule is about updates, and says nothing of contributions"})
