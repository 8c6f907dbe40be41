"""The loop of a client over a real link, for tests that answer in ways of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedincentive.plugins.fedml import wire

from fedincentive.agent import Agent
from fedincentive.messages import Broadcast, Report


def rounds(link: Any, agent: Agent) -> Iterator[tuple[Broadcast, Report]]:
    """Each broadcast until the run is done, with what the agent would honestly answer."""
    while True:
        item = link.receive(60.0)
        assert item is not None, "the server is silent"
        broadcast = wire.decode(item[1])
        if isinstance(broadcast, wire.Notice):
            continue
        assert isinstance(broadcast, Broadcast)
        if broadcast.phase == "done":
            return
        report = agent.respond(broadcast)
        assert report is not None
        yield broadcast, report
