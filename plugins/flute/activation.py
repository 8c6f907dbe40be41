"""Where FLUTE learns of our strategies: its two selectors, and the one method that trains a client."""

from __future__ import annotations

from functools import cache
from typing import Any

import core.client as their_client
import core.server as their_server

from .client import process_round
from .server import IncentiveServer
from .settings import is_mechanism, is_ours
from .strategy import FluteRobustStrategy, FluteStrategy


@cache  # twice would train on a part of a part
def activate() -> None:
    """Put our names beside FLUTE's own, which work as before."""
    theirs, their_class = their_server.select_strategy, their_server.select_server
    their_round = their_client.Client.process_round

    def select_strategy(strategy: str) -> type:
        if not is_ours(strategy):
            return theirs(strategy)
        return FluteStrategy if is_mechanism(strategy) else FluteRobustStrategy

    def select_server(server_type: str) -> type:
        found = their_class(server_type)
        return IncentiveServer if found is their_server.OptimizationServer else found

    def round_of(client_data: Any, server_data: Any, model: Any, data_path: Any, eps: float = 1e-7) -> Any:
        if not is_ours(client_data[2]["strategy"]):
            return their_round(client_data, server_data, model, data_path, eps)
        return process_round(their_round, client_data, server_data, model, data_path)

    their_server.select_strategy = their_client.select_strategy = select_strategy
    their_server.select_server = select_server
    their_client.Client.process_round = staticmethod(round_of)
