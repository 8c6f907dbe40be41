"""The in-process host: carries broadcasts to the agents and their reports back, and plays closed-form games."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from . import ledger as books
from . import mechanisms
from .adversary import Misreport
from .agent import Agent, ClosedFormSite, GameOracle, Notary, Strategy, read_keys, worth_alone
from .audit import Auditor
from .center import Center, Outcome
from .center.state import as_begun
from .checks import nearest
from .errors import ReportRefused, SettingError
from .game import Game, load
from .ledger import Ledger
from .manifest import RECEIPTS, RUNS
from .messages import Broadcast, Report, RoundResult, Update
from .payments import Oracles
from .provenance.keys import KeyRing
from .settings import Settings

log = logging.getLogger("fedincentive")


def play(
    game: Game | Mapping[str, Any] | str | Path,
    *,
    strategies: Mapping[str, Strategy | str] | None = None,
    lies: Mapping[str, Misreport | str] | None = None,
    ledger: Ledger | str | Path | None = None,
    state: str | Path | None = None,
    progress: Callable[[RoundResult], None] | None = None,
    **incentive: Any,
) -> Outcome:
    """Play a closed-form game to its end: contributions, payments, model, and the certificate of what was achieved.

    `game` is a Game, a GAME.yaml or the mapping in one; `incentive` are settings (`mechanism`, `beta`, `rounds`, ...)
    over those of the file. `strategies` and `lies` are by agent; `ledger` and `state` keep payments and state.

        u_i(w, s) = v_i(w, s) - c_i(s) + p_i(s)

    >>> outcome = play({"game": {"kind": "repaired"}}, mechanism="2p-upbred", beta="0.5", rounds=10)
    >>> outcome.s, outcome.certificate.regret.value
    ({'agent-1': 5.0, 'agent-2': 5.0}, 0.0)
    """
    file_settings: Mapping[str, Any] = {}
    if not isinstance(game, Game):
        found = load(game)
        game, file_settings = found.game, found.incentive
    settings = Settings.read({**file_settings, **incentive})
    target = ledger or settings.ledger
    opened = (
        nullcontext(target)
        if target is None or isinstance(target, Ledger)
        else books.open(target, minor=settings.minor)
    )
    with opened as book:
        path = _state_path(target, state or settings.state, settings.run)
        if settings.resume and path is None:
            raise SettingError(
                "Nothing to resume: say where the run's state is with --state (state=), or name its --ledger (ledger=)."
            )
        center, agents = table(game, settings, strategies=strategies, lies=lies, ledger=book, state=path)
        with center:
            run(center, agents, progress=progress)
            honest = {} if strategies or lies else {"basis": "exact"}
            ended = center.conclude(game, **honest)
            really = {agent.name: agent.worked for agent in agents if isinstance(agent, Agent)}
            return replace(ended, worked=really) if lies else ended


def table(
    game: Game,
    settings: Settings,
    *,
    strategies: Mapping[str, Strategy | str] | None = None,
    lies: Mapping[str, Misreport | str] | None = None,
    ledger: Ledger | None = None,
    state: Path | None = None,
    oracles: Oracles | None = None,
    site: type[ClosedFormSite] = ClosedFormSite,
) -> tuple[Center, list[Agent | Auditor]]:
    """The center and the agents of a closed-form game, and its auditors where the settings name some; the center can
    check what agents say unless told otherwise."""
    strategies, lies = strategies or {}, lies or {}
    for name in (*strategies, *lies):
        if name not in game.agents:
            raise SettingError(f"The game has no agent {name!r}.{nearest(name, game.agents)}")
    settings = mechanisms.prepared(as_begun(settings, state), game)
    mechanism = mechanisms.get(settings.mechanism, settings)
    keys = read_keys(settings.keys) if settings.keys else None
    receipts = None if state is None else state / RECEIPTS
    agents = [
        Agent(
            own.name,
            own,
            strategies.get(own.name, mechanism.strategy),
            s0=float(game.s0[i]),
            lies=lies.get(own.name),
            notary=None
            if keys is None or own.name in keys.revoked
            else Notary.of(keys, own.name, receipts, durable=False, chain=settings.chain),
            budget=None if game.budget is None or not np.isfinite(game.budget[i]) else float(game.budget[i]),
            alone=worth_alone(own, settings),
        )
        for i, own in enumerate(site.of(game))
    ]
    by_name = {agent.name: agent for agent in agents}
    oracle = GameOracle(game, lambda name: by_name[name].actual)
    center = Center.open(
        settings,
        mechanism,
        [agent.enrol() for agent in agents],
        {"w": game.w0},
        ledger,
        state,
        keys=keys,
        oracles=Oracles(oracle, oracle, oracle.welfare, oracle.alone, oracle.labels) if oracles is None else oracles,
    )
    return center, [*agents, *auditors(game, settings, keys, agents)]


def auditors(game: Game, settings: Settings, keys: KeyRing | None, agents: Iterable[Agent]) -> list[Auditor]:
    """The auditors of an audited run of a closed-form game, each with a way into every site; none in other runs."""
    if keys is None or settings.auditors is None:
        return []
    sites = {agent.name: GameSite(game, agent) for agent in agents}
    return [Auditor.of(keys, name, sites.__getitem__) for name in settings.auditors]


class GameSite(ClosedFormSite):
    """What an auditor finds at the site of an agent: its part of the game, and what it really trained on."""

    def __init__(self, game: Game, agent: Agent) -> None:
        super().__init__(game, game.agents.index(agent.name))
        self.trained = agent.trained


def run(
    center: Center, agents: Sequence[Agent | Auditor], *, progress: Callable[[RoundResult], None] | None = None
) -> Outcome:
    """Play a center's run with these agents, and auditors where it has some, to its end; `progress` is told how each
    round ended."""
    for result in rounds(center, agents):
        if progress is not None:
            progress(result)
    outcome = center.outcome
    assert outcome is not None
    return outcome


def rounds(center: Center, agents: Sequence[Agent | Auditor]) -> Iterator[RoundResult]:
    """Play round after round, each when it is asked for, and give how it ended."""
    by_name = {agent.name: agent for agent in agents}
    unknown = [name for name in center.run.agents if name not in by_name and name not in center.revoked]
    if unknown:
        raise SettingError(f"Agent {unknown[0]!r} is enrolled but is not among the agents that play.")
    unknown = [name for name in center.settings.auditors or () if name not in by_name]
    if unknown:
        raise SettingError(f"Auditor {unknown[0]!r} is named in incentive.auditors but is not among those that play.")
    for name, memory in center.remembered.items():
        if name in by_name:
            by_name[name].restore(memory)
    center.memory = lambda: {name: agent.state() for name, agent in by_name.items()}
    while not center.done:
        asked = [by_name[name] for name in center.missing if name not in center.revoked]
        for report in answers(center.broadcast(), asked, center.broadcast):
            _carry(center, report)
        yield center.close()
    for name in center.run.agents if center.run.signed and center.run.status != "declined" else ():
        if name not in center.revoked:
            by_name[name].respond(center.broadcast())  # the last cosignatures, for its receipts


def answers(
    broadcast: Broadcast, agents: Sequence[Agent | Auditor], own: Callable[[str], Broadcast] | None = None
) -> Iterator[Report]:
    """Report after report; agents whose attack is made from the honest updates are asked last and shown them. `own`
    gives each agent's broadcast, where they may have models of their own."""

    def told(agent: Agent | Auditor) -> Broadcast:
        return broadcast if own is None else own(agent.name)

    knowing = [agent for agent in agents if agent.omniscient and broadcast.phase == "train"]
    honest: list[Update] = []
    for agent in agents:
        report = None if agent in knowing else agent.respond(told(agent))
        if report is not None:
            if knowing and report.update is not None:
                honest.append(report.update)
            yield report
    for agent in knowing:
        report = agent.respond(told(agent), honest)
        if report is not None:
            yield report


def _state_path(ledger: Ledger | str | Path | None, given: str | Path | None, run: str) -> Path | None:
    """A run that writes money keeps its state beside the ledger, or where hosts do for a database, unless told
    otherwise."""
    if given is not None:
        return Path(given)
    if ledger is None or isinstance(ledger, Ledger):
        return None
    return Path(RUNS) / run / "state" if "://" in str(ledger) else Path(f"{ledger}.runs") / run


def _carry(center: Center, report: Report) -> None:
    try:
        center.submit(report)
    except ReportRefused as refusal:
        log.warning("%s", refusal)
