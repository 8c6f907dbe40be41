"""A table to play at: a center and the agents of a closed-form game, all real."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedincentive import engine, mechanisms
from fedincentive.agent import Agent, ClosedFormSite, GameOracle
from fedincentive.center import Center
from fedincentive.payments import Oracles


class Watched(ClosedFormSite):
    """A site that counts the points really trained on, whatever is reported or recorded."""

    trained = 0.0

    def update(self, w, points, step, s):
        self.trained += points
        return super().update(w, points, step, s)


def set_table(game, mechanism, *, strategies=(), lies=(), ledger=None, state=None, oracles=None, **values):
    """Center and agents for `game`; `strategies` and `lies` are by agent name, `values` the incentive settings."""
    settings = mechanisms.Settings.read({"run": "test", **values})
    strategies, lies = dict(strategies), dict(lies)
    agents = [
        Agent(site.name, site, strategies.get(site.name, "gradient"), s0=float(game.s0[i]), lies=lies.get(site.name))
        for i, site in enumerate(Watched.of(game))
    ]
    by_name = {agent.name: agent for agent in agents}
    oracle = GameOracle(game, lambda name: by_name[name].actual)
    center = Center(
        settings,
        mechanisms.get(mechanism, settings),
        [agent.enrol() for agent in agents],
        {"w": game.w0},
        ledger,
        state,
        oracles=Oracles(oracle, oracle) if oracles is None else oracles,
    )
    return center, agents


@pytest.fixture(scope="session")
def table():
    return set_table


@pytest.fixture(scope="session")
def played():
    """Plays a game to its end: the center, the outcome, the rounds, and each agent's utility at what it really gave."""

    def play(game, mechanism, **options):
        center, agents = set_table(game, mechanism, **options)
        history = []
        outcome = engine.run(center, agents, progress=history.append)
        s = np.array([outcome.s[name] for name in game.agents])
        if outcome.trained and not center.mechanism.moves:
            s = np.array([agent.site.trained / outcome.trained for agent in agents])
        paid = np.array([outcome.payments[name] for name in game.agents]) / center.settings.minor
        utilities = game.values(outcome.w["w"], s) - game.costs(s) + paid
        return SimpleNamespace(center=center, outcome=outcome, history=history, agents=agents, utilities=utilities)

    return play
