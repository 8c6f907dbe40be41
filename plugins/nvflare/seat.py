"""One agent or auditor at its site: what it is asked is answered here, whether it came as a task or as a message."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from ...agent import Agent, Site, worth_alone
from ...aggregation import StoredUpdate, store
from ...audit import Auditor
from ...errors import BroadcastRefused, ReportRefused
from ...hosting import Session
from ...messages import PHASES, SCALARS, Broadcast, Update
from ...sealed import read_json, write_json
from . import wire
from .settings import here, read

log = logging.getLogger("fedincentive")
FIRST_MODEL = "first.safetensors"
# The site of an agent, what it gives at first, and a strategy of its own
SiteOf = Callable[[str], tuple[Site, float, str | None]]


class Seat:
    """The agent of one site in one job, or the auditor whose name the site has. `site_of` waits until an agent's site
    is known: a training script says so when it joins. What the agent must remember is in a file and survives a restart.

    Tasks and auxiliary messages come in different threads: one is answered at a time.
    """

    def __init__(self, name: str, incentive: Mapping[str, Any], run: Path, local: Path, site_of: SiteOf) -> None:
        self._made_with = incentive, run, local
        told = dict(incentive)
        fixed = {key: told.pop(key) for key in ("run", "rounds", "agents")}
        self.name, self.site_of = name, site_of
        self.settings, self.host = here(*read(told, **fixed), run, local)
        self.session = Session(self.settings, self.host, log)
        self.folder = self.session.directory / "agents"
        self._memory: dict[str, Any] = read_json(self._file) or {}
        self._agent: Agent | Auditor | None = None
        self._answered: tuple[str, str | None] = ("", None)  # the last scalar broadcast and its answer
        self._lock = RLock()

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.name}.json"

    def of(self, agent: str, site_of: SiteOf) -> Seat:
        """The seat of an agent whom this auditor visits."""
        return Seat(agent, *self._made_with, site_of)

    @property
    def audits(self) -> bool:
        """Is it an auditor's?"""
        return self.name in (self.settings.auditors or ())

    @property
    def agent(self) -> Agent | Auditor:
        """The agent as it was when it last answered, or the auditor."""
        if self._agent is None:
            if self.audits:
                self._agent = self.session.auditor(self.name, lambda agent: self.site_of(agent)[0])
            else:
                self._agent = self._new_agent()
        return self._agent

    def _new_agent(self) -> Agent:
        site, s0, strategy = self.site_of(self.name)
        if (game := getattr(site, "game", None)) is not None:  # the terms that it expects may follow from the game
            self.session = Session(self.settings, self.host, log, game=game)
        agent = Agent(
            self.name,
            site,
            strategy or self.host.strategy_of(self.name, site, self.settings),
            s0=s0,
            notary=self.session.notary(self.name),
            commitment=self.session.commitment(self.name, site),
            budget=self.host.budget_of(self.name),
            alone=worth_alone(site, self.settings),
        )
        if "agent" in self._memory:
            agent.restore(self._memory["agent"])
        return agent

    def enrol(self, asked: str, first: Update | None) -> str:
        """Join: who the agent is, in the center's own run; the secret that comes with it opens scalar rounds."""
        told = wire.fields(asked, "the server")
        if told.get("run") != self.settings.run:
            raise BroadcastRefused(f"The server asks to join run {told.get('run')!r}, not {self.settings.run!r}.")
        with self._lock:
            self.folder.mkdir(parents=True, exist_ok=True)
            if first is not None:
                store(self.folder / f"{self.name}.{FIRST_MODEL}", first)
            enrol, signature = self.agent.enrol(), self.agent.enrolment(self.settings.run)
            self._remember(secret=told["secret"])
        return wire.write(enrol, signature=signature)

    @property
    def first_model(self) -> Update | None:
        """The model before the first round, where it came with the enrolment."""
        path = self.folder / f"{self.name}.{FIRST_MODEL}"
        if not path.exists():
            return None
        with StoredUpdate(path) as kept:
            return dict(kept)

    def admits(self, secret: Any) -> bool:
        """Whether a message comes from the center that this agent enrolled with: any site may send messages."""
        mine = self._memory.get("secret")
        given = secret.encode(errors="replace") if type(secret) is str else None
        return given is not None and mine is not None and hmac.compare_digest(given, mine.encode())

    def answer(self, asked: str, w: Update | None = None) -> tuple[str | None, Update | None]:
        """The report for a broadcast, and its update; nothing where the agent stays away. Asked twice, it says the same
        twice; a broadcast from before the last one is refused."""
        with self._lock:
            if asked == self._answered[0]:
                return self._answered[1], None
            try:
                broadcast = wire.read(Broadcast, asked, "the server", w)
            except ReportRefused as error:
                raise BroadcastRefused(str(error)) from None
            if broadcast.run != self.settings.run or broadcast.phase not in PHASES:
                raise BroadcastRefused(f"A broadcast of run {broadcast.run!r} is not for run {self.settings.run!r}.")
            when = [broadcast.round, PHASES.index(broadcast.phase)]
            if when < self._memory.get("when", [-1, -1]):
                raise BroadcastRefused(f"Round {broadcast.round} ({broadcast.phase}) comes after a later one.")
            report = self.agent.respond(broadcast)
            self._remember(agent=self.agent.state(), when=when)
            text = None if report is None else wire.write(report)
            self._answered = (asked, text) if broadcast.phase in SCALARS else ("", None)
            return text, None if report is None else report.update

    def _remember(self, **values: Any) -> None:
        self._memory.update(values)
        write_json(self._file, self._memory)
