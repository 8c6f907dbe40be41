"""What a node knows of itself: the stable name, the keys and the cost of its agent, from its node-config.

flower-supernode ... --node-config 'agent="hospital-a" cost=0.2 keys="keys" partition-id=0 num-partitions=2'
flower-supernode ... --node-config 'auditor="ann" keys="keys" num-partitions=2'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict

from ... import hosting
from ...agent import Notary, read_keys
from ...agent.notary import LOGS
from ...errors import SettingError
from ...provenance import records
from ...provenance.keys import name_in_files
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


def keys_of(context: Context, settings: Settings) -> str | None:
    """The folder of this node's keys."""
    folder = node_setting(context, "keys", str)
    if folder is None and settings.keys is not None and Path(settings.keys).is_dir():
        folder = settings.keys
    return folder


def tag_key(context: Context, settings: Settings) -> bytes | None:
    """The key of the tags, by the node's own `tags` or the run's; the run must have one."""
    if settings.tags is None or not settings.audited:
        return None
    return records.tag_key(node_setting(context, "tags", str) or settings.tags)


def at_site(context: Context, agent: str) -> Context:
    """The context of an agent's own node, for an auditor who works at its site: node-config `sites` says which data
    partition is whose ("hospital-a=0 hospital-b=1"); agent-1, agent-2, ... have theirs by number."""
    config = {key: value for key, value in context.node_config.items() if key not in ("auditor", "sites")}
    given = dict(part.rsplit("=", 1) for part in str(context.node_config.get("sites", "")).split() if "=" in part)
    count = int(config.get("num-partitions", 0)) or None
    if agent in given and given[agent].isdecimal():
        index: int | None = int(given[agent])
    else:
        index = next((i for i in range(count or 0) if hosting.agent_name(i, count or 0) == agent), None)
    own: dict[str, Any] = {} if index is None else {"partition-id": index}
    return Context(context.run_id, context.node_id, {**config, **own, "agent": agent}, RecordDict(), context.run_config)


def notary(context: Context, settings: Settings, agent: str) -> Notary | None:
    """What signs for the agent: its keys are in the folder that `keys` of the node-config names, else in the run's own
    where that is on this machine. Receipts go beside it."""
    folder = keys_of(context, settings)
    if folder is None:
        return None
    options = {"chain": settings.chain, "logs": Path(f"{folder}.receipts") / LOGS}
    return Notary.of(read_keys(folder), agent, kept(folder, settings), **options)


def kept(folder: str, settings: Settings) -> Path:
    """Where a node keeps what it must not lose of a run: beside its keys."""
    return Path(f"{folder}.receipts") / settings.run


def commitment_file(folder: str, settings: Settings, agent: str) -> Path:
    """The salts of the agent's records, at its site."""
    return kept(folder, settings) / f"{name_in_files(agent)}.records"


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
