"""Ports for servers that tests start."""

from __future__ import annotations

import random
import socket

_given: set[int] = set()


def free_port() -> int:
    """A loopback port that nobody uses, below those the system gives to outgoing connections: there one that is free
    now may be taken before the server starts. None is given twice."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
