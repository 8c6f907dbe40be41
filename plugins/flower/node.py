"""What a node knows of itself: the stable name, the keys and the cost of its agent, from its node-config.

flower-supernode ... --node-config 'agent="hospital-a" cost=0.2 keys="keys" partition-id=0 num-partitions=2'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context

from ... import hosting
from ...agent import Notary, read_keys
from ...agent.notary import LOGS
from ...errors import SettingError
from ...settings import Settings

Number = float | Mapping[str, float] | Callable[[Context], float] | None


def agent_name(context: Context) -> str:
    """The node's stable name: `agent` of its node-config, else agent-<partition-id + 1>, as in every host."""
    name = node_setting(context, "agent", str)
    if name:
        return name
    index, count = (node_setting(context, key, int) for key in ("partition-id", "num-partitions"))
    if index is None or count is None:
        raise SettingError(
            f"Node {context.node_id} has no stable name: start it with --node-config 'agent=\"hospital-a\" ...', or "
            "with partition-id and num-partitions. Node ids change when a node is started again."
        )
    return hosting.agent_name(index, count)


def node_setting(context: Context, key: str, kind: type) -> Any:
    value = context.node_config.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        raise SettingError(f"node-config {key} is {value!r}: a {kind.__name__} is needed.")
    return value


def notary(context: Context, settings: Settings, agent: str) -> Notary | None:
    """What signs for the agent: its keys are in the folder that `keys` of the node-config names, else in the run's own
    where that is on this machine. Receipts go beside it."""
    folder = node_setting(context, "keys", str)
    if folder is None and settings.keys is not None and Path(settings.keys).is_dir():
        folder = settings.keys
    if folder is None:
        return None
    receipts = Path(f"{folder}.receipts")
    return Notary.of(read_keys(folder), agent, receipts / settings.run, logs=receipts / LOGS)


def cost_of(cost: Number, context: Context, settings: Settings, agent: str) -> float:
    """What a point costs this agent: told in code, by the node, or by the run config, in this order."""
    if callable(cost):
        return float(cost(context))
    if isinstance(cost, Mapping):
        if agent not in cost:
            raise SettingError(f"strategic(cost=...) has no number for agent {agent!r}; known: {', '.join(cost)}.")
        return float(cost[agent])
    if cost is not None:
        return float(cost)
    own = node_setting(context, "cost", (int, float))  # type: ignore[arg-type]
    return settings.cost_of(agent) if own is None else float(own)
