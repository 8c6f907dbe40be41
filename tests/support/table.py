"""A table to play at: a center and the agents of a game, all real.

Every suite sits down here: how settings, agents, oracles and the center are wired is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedincentive import engine, mechanisms
from fedincentive.agent import Agent, ClosedFormSite, GameOracle, Notary
from fedincentive.center import Center
from fedincentive.payments import Oracles
from fedincentive.settings import Settings

BLIND = Oracles()  # a center that can check nothing, as in a host


class Watched(ClosedFormSite):
    """A site that counts the points really trained on, whatever is reported or recorded."""

    trained = 0.0

    def update(self, w, points, step, s):
        self.trained += points
        return super().update(w, points, step, s)


def agents_of(game, *, strategies=(), lies=(), keys=None, receipts=None, chain=None) -> list[Agent]:
    """The agents of a closed-form game; `strategies` and `lies` are by agent name, `keys` a ring that has theirs."""
    strategies, lies = dict(strategies), dict(lies)
    notaries = {} if keys is None else {name: Notary.of(keys, name, receipts, chain=chain) for name in game.agents}
    return [
        Agent(
            name, site, strategies.get(name, "gradient"), s0=float(s0), lies=lies.get(name), notary=notaries.get(name)
        )
        for name, site, s0 in zip(game.agents, Watched.of(game), game.s0, strict=True)
    ]


def oracle_of(game, agents: Sequence[Agent], kind: type[GameOracle] = GameOracle) -> GameOracle:
    """Knows the game and what each agent really has."""
    by_name = {agent.name: agent for agent in agents}
    return kind(game, lambda name: by_name[name].actual)


def opened(settings: Settings, mechanism: str, agents: Sequence[Any], w: Any, *places: Any, **options: Any) -> Center:
    """A center for these agents, or for what they enrol with; `places` are its ledger and folder. With `resume` in the
    settings it is the saved one, where there is one."""
    enrolled = [agent.enrol() if isinstance(agent, Agent) else agent for agent in agents]
    return Center.open(settings, mechanisms.get(mechanism, settings), enrolled, w, *places, **options)


def set_table(
    game, mechanism, *, strategies=(), lies=(), keys=None, book=None, folder=None, oracles=None, receipts=True, **values
) -> tuple[Center, list[Agent]]:
    """Center and agents of a closed-form game; `values` are the incentive settings. The run is kept in the ledger
    `book` and in `folder`. The oracles know everything unless others are given; with keys, signatures are checked."""
    settings = Settings.read({"run": "test", "mechanism": mechanism, **values})
    if keys is None:
        seats = {"strategies": dict(strategies), "lies": dict(lies), "oracles": oracles, "site": Watched}
        return engine.table(game, settings, ledger=book, state=folder, **seats)
    kept = folder / "receipts" if folder and receipts else None
    agents = agents_of(game, strategies=strategies, lies=lies, keys=keys, receipts=kept, chain=settings.chain)
    oracle = oracle_of(game, agents)
    known = Oracles(oracle, oracle) if oracles is None else oracles
    return opened(settings, mechanism, agents, {"w": game.w0}, book, folder, keys=keys, oracles=known), [
        *agents,
        *engine.auditors(game, settings, keys, agents),
    ]


def play(center: Center, agents: Sequence[Agent], progress: Callable[[Any], None] | None = None) -> Any:
    """The run to its end, in this process."""
    return engine.run(center, agents, progress=progress)


def answer(center: Center, agents: Sequence[Agent]) -> None:
    """The open round's answers, of those who are asked, but not its close."""
    for report in engine.answers(center.broadcast(), [agent for agent in agents if agent.name in center.missing]):
        center.submit(report)


def play_until(center: Center, agents: Sequence[Agent], phase: str, trained: int = 0) -> None:
    """Whole rounds until this phase is open and so many were trained."""
    while center.broadcast().phase != phase or center.run.trained < trained:
        answer(center, agents)
        center.close()


def played(game, mechanism, **options) -> SimpleNamespace:
    """A game to its end: the center, the outcome, the rounds, and each agent's utility at what it really gave."""
    center, agents = set_table(game, mechanism, **options)
    history = []
    outcome = play(center, agents, progress=history.append)
    s = np.array([outcome.s[name] for name in game.agents])
    if outcome.trained and not center.mechanism.moves:
        s = np.array([agent.site.trained / outcome.trained for agent in agents])
    paid = np.array([outcome.payments[name] for name in game.agents]) / center.settings.minor
    utilities = game.values(outcome.w["w"], s) - game.costs(s) + paid
    return SimpleNamespace(center=center, outcome=outcome, history=history, agents=agents, utilities=utilities)
