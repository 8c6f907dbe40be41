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
from fedincentive.identity import enrolment, read_keys, signed
from fedincentive.messages import Broadcast, Report
from fedincentive.provenance.keys import PrivateKey

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import answering  # noqa: E402
from exploits import nested, plain  # noqa: E402
from table import agents_of  # noqa: E402

Sign = Callable[[Report], Report]


def above_s_max(report: Report, sign: Sign) -> Report:
    return sign(dataclasses.replace(report, s=1e9))


def nan(report: Report, sign: Sign) -> Report:
    return dataclasses.replace(report, s=math.nan)


def wrong_shape(report: Report, sign: Sign) -> Report:
    return sign(dataclasses.replace(report, update={"w": np.zeros(5)}))


def not_finite(report: Report, sign: Sign) -> Report:
    return sign(dataclasses.replace(report, update={"w": np.full(2, np.inf)}))


def unsigned(report: Report, sign: Sign) -> Report:
    return dataclasses.replace(report, signature=None)


def honest(report: Report, sign: Sign) -> Report:
    return report


def strange_signature(report: Report, sign: Sign) -> Report:
    return dataclasses.replace(report, signature="\u00e9")


WAYS: list[Callable[[Report, Sign], Report]] = [
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
    keys = read_keys("keys")
    agent = agents_of(played, keys=keys)[played.agents.index(options.agent)]
    link = GrpcTransport("grpc_ipconfig.csv", options.rank, len(played.agents) + 1)
    for data in (plain("touched"), nested("touched")):
        link.send(0, data, 60.0)
    enrol = agent.enrol()
    hello = wire.Hello("run", enrol, agent.enrolment("run"))
    for signature in (
        signed(PrivateKey(options.agent), enrolment("run", enrol)),
        agent.enrolment("other run"),
        "\u00e9\ud800",
    ):
        link.send(0, wire.encode(wire.Hello("run", enrol, signature)), 60.0)
    frame = wire.encode(hello)
    head = re.sub(rb'"s_max": [0-9.]+', b'"s_max": 1' + b"0" * 400, frame[wire.PREFIX.size :])
    link.send(0, wire.PREFIX.pack(wire.MAGIC, wire.VERSION, len(head)) + head, 60.0)
    link.send(0, wire.encode(hello), 60.0)
    for broadcast, report in answering.rounds(link, agent):
        # Another agent's name with our own key: that agent must not suffer from it.
        other = next(name for name in played.agents if name != options.agent)

        def sign(report: Report, broadcast: Broadcast = broadcast) -> Report:
            return agent.notary.sign(report, broadcast)

        link.send(0, wire.encode(sign(dataclasses.replace(report, agent=other))), 60.0)
        way = WAYS[min(broadcast.round, len(WAYS) - 1)] if broadcast.phase == "train" else honest
        link.send(0, wire.encode(way(report, sign)), 60.0)
    link.close()


if __name__ == "__main__":
    main()
