"""A client without keys that first spoils everyone's round, as far as it can, and then answers as it should."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from pathlib import Path

from fedincentive.plugins.fedml import wire
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport

from fedincentive import game

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import answering  # noqa: E402
from table import agents_of  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", required=True)
    parser.add_argument("--rank", type=int, required=True)
    options = parser.parse_args()
    played = game.read(Path("game.yaml"))
    agent = agents_of(played)[played.agents.index(options.agent)]
    link = GrpcTransport("grpc_ipconfig.csv", options.rank, len(played.agents) + 1)
    link.send(0, wire.encode(wire.Hello("run", agent.enrol())), 60.0)
    for _, report in answering.rounds(link, agent):
        for name in played.agents:
            link.send(0, wire.encode(dataclasses.replace(report, agent=name, s=math.nan, valuation=math.nan)), 60.0)
        time.sleep(0.5)  # a server that took them for answers would close the round now
        link.send(0, wire.encode(report), 60.0)
    link.close()


if __name__ == "__main__":
    main()
