"""The in-process host: carries broadcasts to the agents and their reports back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .agent import Agent
from .center import Center, Outcome, state
from .center.outcome import advise
from .errors import ReportRefused, SettingError
from .game import Certificate, Game, beta_dom, beta_ne, certify
from .messages import Broadcast, Report, RoundResult, Update
from .payments import TREASURY

log = logging.getLogger("fedincentive")


def play(center: Center, agents: Sequence[Agent], *, progress: Callable[[RoundResult], None] | None = None) -> Outcome:
    """Play the run to its end; `progress` is told how each round ended.

    >>> from fedincentive import mechanisms
    >>> from fedincentive.agent import ClosedFormSite
    >>> from fedincentive.game import repaired_example
    >>> settings = mechanisms.Settings.read({"rounds": 10, "beta": "0.5"})
    >>> sites = ClosedFormSite.of(repaired_example())
    >>> agents = [Agent(site.name, site, s0=2.5) for site in sites]
    >>> mechanism = mechanisms.get("2p-upbred", settings)
    >>> center = Center(settings, mechanism, [agent.enrol() for agent in agents], sites[0].w0)
    >>> play(center, agents).s
    {'agent-1': 5.0, 'agent-2': 5.0}
    """
    by_name = {agent.name: agent for agent in agents}
    unknown = [name for name in center.run.agents if name not in by_name]
    if unknown:
        raise SettingError(f"Agent {unknown[0]!r} is enrolled but is not among the agents that play.")
    _recall(center, by_name)
    while not center.done:
        for report in answers(center.broadcast(), [by_name[name] for name in center.missing]):
            _carry(center, report)
        if center.path is not None:
            state.write_json(center.path / state.AGENTS, {name: agent.state() for name, agent in by_name.items()})
        result = center.close()
        if progress is not None:
            progress(result)
    outcome = center.outcome
    assert outcome is not None
    return outcome


def answers(broadcast: Broadcast, agents: Sequence[Agent]) -> Iterator[Report]:
    """Report after report; agents whose attack is made from the honest updates are asked last and shown them."""
    knowing = [agent for agent in agents if agent.omniscient and broadcast.phase == "train"]
    honest: list[Update] = []
    for agent in agents:
        report = None if agent in knowing else agent.respond(broadcast)
        if report is not None:
            if knowing and report.update is not None:
                honest.append(report.update)
            yield report
    for agent in knowing:
        report = agent.respond(broadcast, honest)
        if report is not None:
            yield report


def certificate(center: Center, game: Game, **known: Any) -> Certificate:
    """The certificate of a finished run of a closed-form game, from its ledger where it has one."""
    outcome, mechanism, run = center.outcome, center.mechanism, center.run
    if outcome is None:
        raise SettingError("The run is not over: play it to its end before it is certified.")
    posted: Sequence[Mapping[str, int]] | None = None
    if mechanism.contribution:
        posted = [dict(run.posted)] if run.posted else []
        if center.ledger is not None:
            entries = center.ledger.entries(center.settings.run)
            posted = [dict(e.postings) for e in entries if e.kind in ("tranche", "settlement")]
    p_star = {agent: run.balances.get(agent, 0) - run.posted.get(agent, 0) for agent in run.agents}
    known.setdefault("basis", outcome.basis)
    return certify(
        game,
        outcome.w["w"],
        given(center, game),
        beta=float(mechanism.beta),
        settlement=center.settings.settlement if mechanism.contribution else "none",
        payments=posted,
        truthful_payments=p_star if mechanism.truthful else None,
        treasury=-run.balances.get(TREASURY, 0) if mechanism.truthful else None,
        minor=center.settings.minor,
        claims=outcome.promises.claims,
        disclaimed=outcome.promises.disclaimed,
        notes=outcome.promises.notes,
        **known,
    )


def given(center: Center, game: Game) -> np.ndarray:
    """What each agent gave: what it delivered in training, not what it agreed to, unless both move together."""
    outcome = center.outcome
    assert outcome is not None
    source = outcome.delivered if outcome.trained and not center.mechanism.moves else outcome.s
    return np.array([source[agent] for agent in game.agents])


def advice(center: Center, game: Game) -> str:
    """What to do where phase 1 ended short, with the betas of a game that is known."""
    return advise(center.run, center.mechanism, beta_ne(game, game.w0), beta_dom(game, game.w0))


def _recall(center: Center, by_name: Mapping[str, Agent]) -> None:
    """What the agents of a resumed run remembered."""
    saved = state.read_json(center.path / state.AGENTS) if center.path is not None else None
    for name, memory in (saved or {}).items():
        if name in by_name:
            by_name[name].restore(memory)


def _carry(center: Center, report: Report) -> None:
    try:
        center.submit(report)
    except ReportRefused as refusal:
        log.warning("%s", refusal)
