"""Flower's legacy ClientApp(client_fn=...): a Client or NumPyClient. Its arrays have no names, its configs no lists."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ...errors import SettingError

INS, RES = {"train": "fitins", "evaluate": "evaluateins"}, ("fitres", "evaluateres")


def is_legacy(app: ClientApp | None) -> bool:
    return getattr(app, "_call", None) is not None


def content(kind: str, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
    """What Flower's own adapter reads as FitIns or EvaluateIns; points go as bytes, which `points` reads."""
    told = dict(config)
    if "points" in told:
        told["points"] = np.asarray(told["points"], dtype="<i8").tobytes()
    name = INS[kind]
    return RecordDict({f"{name}.parameters": arrays, f"{name}.config": ConfigRecord(told)})


def answer(app: ClientApp, message: Message, context: Context, arrays: str, config: str) -> Message:
    """The app's reply to a train or evaluate message of the message API, in the same API."""
    kind, sent = message.metadata.message_type, message.content.array_records[arrays]
    told = content(kind, sent, message.content.config_records.get(config, ConfigRecord()))
    inner = Message(told, reply_to=message)
    inner.metadata.message_type = kind
    reply = app(inner, context)
    if reply.has_error():
        return reply
    made = RecordDict({"metrics": MetricRecord(metrics(reply.content))})
    for record in reply.content.array_records.values():
        made[arrays] = named(record, sent, f"node {context.node_id}")
    return Message(made, reply_to=message)


def points(packed: bytes) -> np.ndarray:
    return np.frombuffer(packed, dtype="<i8").astype(np.int64)


def named(record: ArrayRecord, w: Collection[str], agent: str) -> ArrayRecord:
    """A FitRes has its arrays in the model's order, and no names."""
    if len(record) != len(w):
        raise SettingError(f"The client of agent {agent!r} returns {len(record)} arrays for a model of {len(w)}.")
    return ArrayRecord(dict(zip(w, record.values(), strict=True)))


def metrics(reply: RecordDict) -> dict[str, Any]:
    """Loss, number of examples and the client's own numbers, under the names of the message API."""
    found: dict[str, Any] = {}
    for records in (reply.config_records, reply.metric_records):
        for name, record in records.items():
            if name.split(".")[0] in RES and not name.endswith(".status"):
                found.update({key: value for key, value in record.items() if type(value) in (int, float)})
    if "num_examples" in found:
        found["num-examples"] = found.pop("num_examples")
    return found
