"""Between the core's messages and Flower's records.

    arrays      ArrayRecord     w out, d_i back; absent in contribute rounds
    config      ConfigRecord    the user's own, untouched
    metrics     MetricRecord    the user's own, untouched
    incentive   ConfigRecord    everything else of a Broadcast or Report

Nothing is pickled. What a node sends is checked before it is used; anything odd is a ReportRefused naming the agent.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from ...errors import ReportRefused
from ...messages import SCALARS, Broadcast, Enrol, Phase, Report, Update
from .. import network_json

INCENTIVE = "incentive"
METRICS = "metrics"
EVALUATED = "incentive.evaluated"  # beside a model that a node's app evaluates: the round that begins with it
MOST_CHARACTERS = 1000  # of a name or a signature
# How each phase travels: scalars as queries, the model as Flower's own train and evaluate messages
MESSAGE_TYPES = {
    **{phase: f"query.{phase}" for phase in ("enrol", "audit", "handout", *SCALARS)},
    "train": "train",
    "value": "evaluate",
}
SIGNED = ("nonce", "signature", "cosignature", "reveal", "declined")
LONGEST_HEAD = 10_000  # bytes of an array's head, as NumPy's own reader has it
R = TypeVar("R", ArrayRecord, ConfigRecord, MetricRecord)


def record_of(content: RecordDict, key: str, kind: type[R]) -> R | None:
    """The record of this name and kind. Flower's `config_records` and its like copy all of them to look up one."""
    record = content.get(key)
    return record if isinstance(record, kind) else None


def records_of(content: RecordDict, kind: type[R]) -> dict[str, R]:
    """All records of a kind, by name."""
    return {key: record for key, record in content.items() if isinstance(record, kind)}


def to_arrays(record: Mapping[str, Array]) -> dict[str, np.ndarray]:
    """The arrays of a record, as views of its bytes: nothing is copied."""
    return {name: view(array) for name, array in record.items()}


def view(array: Array) -> np.ndarray:
    """A read-only view of an array in NumPy's .npy format, which is what Flower stores; objects cannot be viewed."""
    if array.stype != "numpy.ndarray":
        raise TypeError(f"an array serialised as {array.stype!r}: only 'numpy.ndarray' is known")
    first = 10 if array.data[6:7] == b"\x01" else 12  # the length of the head stands in two bytes, or in four
    length = int.from_bytes(array.data[8:first], "little")
    shape, fortran, dtype, start = _layout(array.data[: first + min(length, LONGEST_HEAD)])
    flat = np.frombuffer(array.data, dtype, math.prod(shape), start)
    return flat.reshape(shape, order="F" if fortran else "C")


@lru_cache(maxsize=256)
def _layout(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type and the place of the first value, by an array's first bytes. NumPy parses its head as Python,
    which takes longer than a small array's aggregation, and all nodes send the same."""
    head = io.BytesIO(data)
    version = np.lib.format.read_magic(head)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(head)
    return shape, fortran, dtype, head.tell()


def to_record(w: Update) -> ArrayRecord:
    return ArrayRecord({name: stored(np.asarray(array)) for name, array in w.items()})


def stored(array: np.ndarray) -> Array:
    """An array as Flower stores it, the bytes of np.save, copied once."""
    if not array.flags.c_contiguous or array.dtype.hasobject or array.dtype.names is not None:
        return Array(array)
    data = b"".join((_head(array.dtype, array.shape), array.reshape(-1).view(np.uint8).data))
    return Array(str(array.dtype), array.shape, "numpy.ndarray", data)


@lru_cache(maxsize=256)
def _head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    head = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue()


# What the center sends


def broadcast_record(broadcast: Broadcast) -> ConfigRecord:
    """All of a Broadcast but the model."""
    signed = {} if broadcast.signature is None else {"signature": broadcast.signature}
    shown = {} if broadcast.log is None else {"log": json.dumps(dict(broadcast.log))}
    shown |= {} if broadcast.reveal is None else {"reveal": broadcast.reveal}
    shown |= {"audits": json.dumps(list(broadcast.audits))} if broadcast.audits else {}
    shown |= {} if broadcast.models is None else {"models": json.dumps(dict(broadcast.models))}
    return ConfigRecord(
        {
            **signed,
            **shown,
            "run": broadcast.run,
            "round": broadcast.round,
            "step": broadcast.step,
            "phase": broadcast.phase,
            "agents": list(broadcast.s),
            "s": [float(points) for points in broadcast.s.values()],
            "settings": json.dumps(dict(broadcast.settings)),
        }
    )


def read_broadcast(record: Mapping[str, Any], w: Update | None) -> Broadcast:
    return Broadcast(
        record["run"],
        record["round"],
        record["step"],
        record["phase"],
        w,
        dict(zip(record["agents"], record["s"], strict=True)),
        dict(_settings(record["settings"])),
        network_json.read(record["log"].encode()) if "log" in record else None,
        record.get("signature"),
        record.get("reveal"),
        network_json.read(record["audits"].encode()) if "audits" in record else (),
        network_json.read(record["models"].encode()) if "models" in record else None,
    )


@lru_cache(maxsize=4)
def _settings(text: str) -> Mapping[str, Any]:
    """What a center says of its mechanism, which is the same in every round."""
    return cast(Mapping[str, Any], network_json.read(text.encode()))


# What an agent sends


def report_content(
    report: Report | None, agent: str, arrays: ArrayRecord | None, arrays_key: str, metrics: Mapping[str, Any]
) -> RecordDict:
    """A report as the content of a reply; None (the agent stays away) is a reply that says only that."""
    if report is None:
        return RecordDict({INCENTIVE: ConfigRecord({"agent": agent, "away": True})})
    fields = {"run": report.run, "round": report.round, "phase": report.phase, "agent": report.agent}
    numbers = {"s": report.s, "delivered": report.delivered, "valuation": report.valuation}
    fields |= {name: float(value) for name, value in numbers.items() if value is not None}
    fields |= {name: text for name in SIGNED if (text := getattr(report, name)) is not None}
    fields |= {"verdicts": json.dumps(list(report.verdicts))} if report.verdicts else {}
    content = RecordDict({INCENTIVE: ConfigRecord(cast(Any, fields))})
    if arrays is not None:
        content[arrays_key] = arrays
    if metrics:
        content[METRICS] = MetricRecord(dict(metrics))
    return content


def read_report(content: RecordDict, agent: str, arrays_key: str) -> Report | None:
    """The report of the node that enrolled as `agent`; None when it stays away."""
    record = incentive(content, agent)
    if record.get("agent") != agent:
        raise ReportRefused(
            f"The node of agent {agent!r} sends a report in the name of {short(record.get('agent'))}: it may only "
            "speak for itself."
        )
    if record.get("away") is True:
        return None
    numbers = {name: _number(record, name, agent) for name in ("s", "delivered", "valuation")}
    signed = {name: _typed(record, name, str, agent) for name in SIGNED if name in record}
    update = _update(content, agent, arrays_key)
    try:
        verdicts = network_json.read(str(record["verdicts"]).encode()) if "verdicts" in record else ()
    except ValueError as error:
        raise ReportRefused(f"{agent!r} sends verdicts that cannot be read: {error}.") from None
    return Report(
        _typed(record, "run", str, agent),
        _typed(record, "round", int, agent),
        cast(Phase, _typed(record, "phase", str, agent)),
        agent,
        update=update,
        verdicts=verdicts,
        **signed,
        **numbers,
    )


def enrol_content(enrol: Enrol, signature: str | None) -> RecordDict:
    fields: dict[str, Any] = {"agent": enrol.agent, "s_max": float(enrol.s_max), "s0": float(enrol.s0)}
    names = ("commitment", "key", "anchor", "tags")
    texts = {**{name: getattr(enrol, name) for name in names}, "signature": signature}
    numbers = {name: float(v) for name in ("budget", "alone") if (v := getattr(enrol, name)) is not None}
    fields |= {**{name: text for name, text in texts.items() if text is not None}, **numbers}
    fields |= {} if enrol.seen is None else {"seen": enrol.seen}
    return RecordDict({INCENTIVE: ConfigRecord(fields)})


def read_enrol(content: RecordDict, sender: str) -> tuple[Enrol, str | None]:
    """The enrolment and its signature; `sender` names the node in errors."""
    record = incentive(content, sender)
    names = ("commitment", "key", "anchor", "tags", "signature")
    texts = {key: _typed(record, key, str, sender) for key in names if key in record}
    numbers = {key: _number(record, key, sender) for key in ("budget", "alone")}
    signature = texts.pop("signature", None)
    agent = _typed(record, "agent", str, sender)
    s_max, s0 = (_typed(record, key, float, sender) for key in ("s_max", "s0"))
    seen = _typed(record, "seen", int, sender) if "seen" in record else None
    return Enrol(agent, s_max, s0, **texts, **numbers, seen=seen), signature


def incentive(content: RecordDict, sender: str) -> Mapping[str, Any]:
    record = record_of(content, INCENTIVE, ConfigRecord)
    if record is None:
        raise ReportRefused(
            f"{sender!r} answers like an ordinary ClientApp: wrap its app with fedincentive.plugins.flower.strategic()."
        )
    return record


def _typed(record: Mapping[str, Any], key: str, kind: type, sender: str) -> Any:
    value = record.get(key)
    if type(value) is not kind:
        raise ReportRefused(f"{sender!r} sends {key} = {short(value)}: a {kind.__name__} is needed.")
    if kind is str and len(value) > MOST_CHARACTERS:
        raise ReportRefused(f"{sender!r} sends a {key} of {len(value)} characters, more than {MOST_CHARACTERS}.")
    return value


def short(value: Any) -> str:
    """A value of a sender's as it may stand in a log."""
    return repr(value)[:80]


def _number(record: Mapping[str, Any], key: str, sender: str) -> float | None:
    return _typed(record, key, float, sender) if key in record else None


def _update(content: RecordDict, agent: str, arrays_key: str) -> Update | None:
    record = record_of(content, arrays_key, ArrayRecord)
    if record is None:
        return None
    try:
        return to_arrays(record)
    except Exception as error:  # NumPy's reader of headers has many ways to fail
        raise ReportRefused(f"Agent {agent!r} sends arrays that cannot be read: {str(error)[:200]}.") from None
