"""A host in one file: every agent is a process of its own, behind a pipe.

    python -m pipes GAME.yaml

A host only carries messages. It makes a session, enrols the agents, takes each broadcast to those who have not answered
and their reports back, closes the round, and concludes; the session and the center do the rest.
"""

from __future__ import annotations

import logging
import multiprocessing as mp
import sys

from fedincentive import Agent
from fedincentive.agent import ClosedFormSite
from fedincentive.errors import ReportRefused
from fedincentive.game import load
from fedincentive.hosting import HostSettings, Session, read

log = logging.getLogger("fedincentive")


def site(path: str, index: int, pipe) -> None:
    """The other end of a pipe: one agent, asked until the run is over."""
    game = load(path).game
    agent = Agent(game.agents[index], ClosedFormSite(game, index), s0=float(game.s0[index]))
    pipe.send(agent.enrol())
    while (broadcast := pipe.recv()).phase != "done":
        pipe.send(agent.respond(broadcast))


def main(path: str) -> None:
    file = load(path)
    settings, host = read(file.incentive, HostSettings, {})
    session = Session(settings, host, log, game=file.game)
    session.preflight(file.game.agents)
    ends = [mp.Pipe() for _ in file.game.agents]
    for index, (_, theirs) in enumerate(ends):
        mp.Process(target=site, args=(path, index, theirs), daemon=True).start()
    pipes = {(enrol := ours.recv()).agent: (ours, enrol) for ours, _ in ends}
    center = session.center([enrol for _, enrol in pipes.values()], {"w": file.game.w0})
    while not center.done:
        for agent in center.missing:
            pipes[agent][0].send(center.broadcast(agent))  # some mechanisms send each agent a model of its own
            if pipes[agent][0].poll(host.round_timeout) and (report := pipes[agent][0].recv()) is not None:
                try:
                    center.submit(report)
                except ReportRefused as refusal:
                    log.warning("%s", refusal)
        session.note(center.close())
    for pipe, _ in pipes.values():
        pipe.send(center.broadcast())
    session.conclude(center)
    session.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(sys.argv[1])
