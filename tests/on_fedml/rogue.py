"""A client that misbehaves in one way per round, and a stranger that sends hostile bytes; then both behave."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from fedincentive.plugins.fedml import wire
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport

from fedincentive import game
from fedincentive.agent import Agent, ClosedFormSite, sign
from fedincentive.messages import Broadcast, Report


class Exploit:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return os.system, (f"touch {self.path}",)


class Storage:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return torch.storage._load_from_bytes, (self.data,)


def above_s_max(report: Report, key: bytes) -> Report:
    return sign(dataclasses.replace(report, s=1e9), key)


def nan(report: Report, key: bytes) -> Report:
    return sign(dataclasses.replace(report, s=math.nan), key)


def wrong_shape(report: Report, key: bytes) -> Report:
    return sign(dataclasses.replace(report, update={"w": np.zeros(5)}), key)


def not_finite(report: Report, key: bytes) -> Report:
    return sign(dataclasses.replace(report, update={"w": np.full(2, np.inf)}), key)


def unsigned(report: Report, key: bytes) -> Report:
    return dataclasses.replace(report, signature=None)


def honest(report: Report, key: bytes) -> Report:
    return report


WAYS: list[Callable[[Report, bytes], Report]] = [above_s_max, nan, wrong_shape, not_finite, unsigned, honest]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", required=True)
    parser.add_argument("--rank", type=int, required=True)
    options = parser.parse_args()
    played = game.read(Path("game.yaml"))
    index = played.agents.index(options.agent)
    keys = {name: f"secret of {name} ......".encode() for name in played.agents}
    key = keys[options.agent]
    agent = Agent(options.agent, ClosedFormSite(played, index), s0=float(played.s0[index]), key=key)
    link = GrpcTransport("grpc_ipconfig.csv", options.rank, len(played.agents) + 1)
    for data in (pickle.dumps(Exploit("touched")), pickle.dumps({"w": Storage(pickle.dumps(Exploit("touched")))})):
        link.send(0, data, 60.0)
    link.send(0, wire.encode(wire.hello(agent.enrol(), b"not the agent's key")), 60.0)
    link.send(0, wire.encode(wire.hello(agent.enrol(), key)), 60.0)
    while True:
        item = link.receive(60.0)
        assert item is not None, "the server is silent"
        broadcast = wire.decode(item[1])
        assert isinstance(broadcast, Broadcast)
        if broadcast.phase == "done":
            break
        report = agent.respond(broadcast)
        assert report is not None
        # Another agent's name with our own key: that agent must not suffer from it.
        other = next(name for name in played.agents if name != options.agent)
        link.send(0, wire.encode(sign(dataclasses.replace(report, agent=other, signature=None), key)), 60.0)
        way = WAYS[min(broadcast.round, len(WAYS) - 1)] if broadcast.phase == "train" else honest
        link.send(0, wire.encode(way(report, key)), 60.0)
    link.close()


if __name__ == "__main__":
    main()
