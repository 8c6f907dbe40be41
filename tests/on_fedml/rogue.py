"""A client that misbehaves in one way per round, and a stranger that sends hostile bytes; then both behave."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fedincentive.plugins.fedml import wire
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport

from fedincentive import game
from fedincentive.agent import sign
from fedincentive.identity import sign_enrolment
from fedincentive.messages import Broadcast, Report

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from exploits import nested, plain  # noqa: E402
from table import agents_of  # noqa: E402


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


def strange_signature(report: Report, key: bytes) -> Report:
    return dataclasses.replace(report, signature="\u00e9")


WAYS: list[Callable[[Report, bytes], Report]] = [
    above_s_max,
    nan,
    wrong_shape,
    not_finite,
    unsigned,
    strange_signature,
    honest,
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", required=True)
    parser.add_argument("--rank", type=int, required=True)
    options = parser.parse_args()
    played = game.read(Path("game.yaml"))
    keys = {name: f"secret of {name} ......".encode() for name in played.agents}
    key = keys[options.agent]
    agent = agents_of(played, keys=keys)[played.agents.index(options.agent)]
    link = GrpcTransport("grpc_ipconfig.csv", options.rank, len(played.agents) + 1)
    for data in (plain("touched"), nested("touched")):
        link.send(0, data, 60.0)
    enrol = agent.enrol()
    hello = wire.Hello(enrol, sign_enrolment("run", enrol, key))
    for signature in (
        sign_enrolment("run", enrol, b"not its key"),
        sign_enrolment("other run", enrol, key),
        "\u00e9\ud800",
    ):
        link.send(0, wire.encode(wire.Hello(enrol, signature)), 60.0)
    frame = wire.encode(hello)
    head = re.sub(rb'"s_max": [0-9.]+', b'"s_max": 1' + b"0" * 400, frame[wire.PREFIX.size :])
    link.send(0, wire.PREFIX.pack(wire.MAGIC, wire.VERSION, len(head)) + head, 60.0)
    link.send(0, wire.encode(hello), 60.0)
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
