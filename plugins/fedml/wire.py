"""Messages as bytes, without pickle: a JSON head and raw arrays, so that decoding can never run a sender's code.

    b"FINC" | version | length of the head | head (JSON) | array bytes, in the order the head names them

FedML's own gRPC unpickles what the network sends. Here the kinds, their fields and the array types are closed lists;
all else is a WireError, which the receiver logs with its sender and survives.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ...errors import FedIncentiveError
from ...messages import PHASES, Broadcast, Enrol, Report
from .. import network_json

PREFIX = struct.Struct("<4sBI")
MAGIC, VERSION = b"FINC", 5
MOST_CHARACTERS = 1000  # of a name, a signature, or what is said about a message that is refused
LONG = ("tags",)  # texts that only the length of a message bounds
MOST_DIMENSIONS, LARGEST = 64, 2**40  # of an array: bounds that are checked before their product is taken
DTYPES = frozenset(("<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"))


class WireError(FedIncentiveError, ValueError):
    """Bytes that are no message of ours."""

    def __init__(self, words: str) -> None:
        super().__init__(words[:MOST_CHARACTERS])


@dataclass(frozen=True)
class Hello:
    """A client joins, or shows that it is alive and waiting: which run it plays, who it is and what it offers."""

    run: str
    enrol: Enrol
    signature: str | None = None


@dataclass(frozen=True)
class Notice:
    """What the server says to the people at a client: why something was refused, how the run ended. Nothing follows
    from it but a line in their log."""

    run: str
    words: str


Message = Hello | Notice | Broadcast | Report
Buffer = bytes | np.ndarray  # of uint8
_KINDS: dict[str, type] = {"hello": Hello, "notice": Notice, "broadcast": Broadcast, "report": Report}
_ARRAYS = {"broadcast": "w", "report": "update"}  # the one field of each kind that holds arrays


def encode(message: Message) -> bytes:
    """The message as bytes.

    >>> decode(encode(Report("run", 3, "contribute", "a", s=0.1))).s
    0.1
    """
    kind = next(name for name, cls in _KINDS.items() if type(message) is cls)
    body = {field.name: getattr(message, field.name) for field in fields(message)}
    if kind == "hello":
        body["enrol"] = {field.name: getattr(message.enrol, field.name) for field in fields(Enrol)}  # type: ignore[union-attr]
    arrays = body.pop(_ARRAYS[kind], None) if kind in _ARRAYS else None
    parts, listed = [], None
    if arrays is not None:
        listed = []
        for name, value in arrays.items():
            array = np.ascontiguousarray(value)
            if array.dtype.str not in DTYPES:
                raise WireError(
                    f"Array {name!r} has type {array.dtype}, which does not travel; use a float or integer type."
                )
            listed.append([name, array.dtype.str, list(np.shape(value))])
            parts.append(array.data.cast("B") if array.size else b"")
    head = json.dumps({"kind": kind, "body": body, "arrays": listed}, default=_plain).encode()
    head += b" " * (-(PREFIX.size + len(head)) % 16)  # so that arrays begin where the processor likes them to
    try:
        network_json.check(head)
    except ValueError as error:
        raise WireError(f"A {kind} of this run does not travel: it would need {error}.") from None
    return b"".join([PREFIX.pack(MAGIC, VERSION, len(head)), head, *parts])


def decode(data: Buffer) -> Message:
    """The message in these bytes, or a WireError; arrays are read-only views of `data`."""
    try:
        return _decode(memoryview(data).toreadonly())
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, struct.error) as error:
        raise WireError(f"not a fedincentive message ({type(error).__name__}: {error})") from None


def _decode(data: memoryview) -> Message:
    magic, version, length = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"not a fedincentive message (it begins with {bytes(data[:4])!r})")
    if version != VERSION:
        raise WireError(f"version {version} of the message format; this side speaks version {VERSION}")
    if length > min(network_json.MOST_BYTES, len(data) - PREFIX.size):
        raise WireError(f"a head of {length} bytes in a message of {len(data)}")
    start = PREFIX.size + length
    head = network_json.read(bytes(data[PREFIX.size : start]))
    kind, body = head["kind"], dict(head["body"])
    if kind not in _KINDS:
        raise WireError(f"unknown kind {kind!r}")
    if kind in _ARRAYS:
        body[_ARRAYS[kind]] = _arrays(head["arrays"], data[start:])
    elif head["arrays"] is not None or len(data) != start:
        raise WireError(f"a {kind} with arrays")
    if kind == "hello":
        body["enrol"] = _checked(Enrol, dict(body["enrol"]))
    return _checked(_KINDS[kind], body)


def _arrays(listed: Any, data: memoryview) -> dict[str, np.ndarray] | None:
    if listed is None:
        if len(data):
            raise WireError(f"{len(data)} bytes that no array names")
        return None
    arrays, start = {}, 0
    for name, dtype, shape in listed:
        if not isinstance(name, str) or name in arrays or dtype not in DTYPES:
            raise WireError(f"array {str(name)[:80]!r} of type {str(dtype)[:80]!r}")
        if len(shape) > MOST_DIMENSIONS or any(type(n) is not int or not 0 <= n <= LARGEST for n in shape):
            raise WireError(f"array {name[:80]!r} of shape {str(shape[:MOST_DIMENSIONS])[:80]}")
        stop = start + math.prod(shape) * np.dtype(dtype).itemsize
        if stop > len(data):
            raise WireError(f"array {name[:80]!r} of shape {str(shape)[:80]} in {len(data)} bytes")
        arrays[name] = np.frombuffer(data[start:stop], dtype).reshape(shape)
        start = stop
    if start != len(data):
        raise WireError(f"{len(data) - start} bytes that no array names")
    return arrays


# The plain types each field may have; a float field takes an int, never a bool.
_NUMBER, _TEXT = (int, float), (str,)
_FIELDS: dict[type, dict[str, tuple[type, ...]]] = {
    Enrol: {
        "agent": _TEXT,
        "s_max": _NUMBER,
        "s0": _NUMBER,
        "commitment": (str, type(None)),
        "key": (str, type(None)),
        "anchor": (str, type(None)),
        "budget": (*_NUMBER, type(None)),
        "alone": (*_NUMBER, type(None)),
        "tags": (str, type(None)),
        "seen": (int, type(None)),
    },
    Hello: {"run": _TEXT, "enrol": (Enrol,), "signature": (str, type(None))},
    Notice: {"run": _TEXT, "words": _TEXT},
    Broadcast: {
        "run": _TEXT,
        "round": (int,),
        "step": (int,),
        "phase": _TEXT,
        "w": (dict, type(None)),
        "s": (dict,),
        "settings": (dict,),
        "log": (dict, type(None)),
        "signature": (str, type(None)),
        "reveal": (str, type(None)),
        "audits": (list,),
        "models": (dict, type(None)),
    },
    Report: {
        "run": _TEXT,
        "round": (int,),
        "phase": _TEXT,
        "agent": _TEXT,
        "s": (*_NUMBER, type(None)),
        "delivered": (*_NUMBER, type(None)),
        "update": (dict, type(None)),
        "valuation": (*_NUMBER, type(None)),
        "nonce": (str, type(None)),
        "signature": (str, type(None)),
        "cosignature": (str, type(None)),
        "reveal": (str, type(None)),
        "declined": (str, type(None)),
        "verdicts": (list,),
    },
}


def _checked(cls: type, body: dict[str, Any]) -> Any:
    wanted = _FIELDS[cls]
    if set(body) != set(wanted):
        raise WireError(f"a {cls.__name__} with the fields {sorted(body)}")
    for name, types in wanted.items():
        if type(body[name]) not in types:
            raise WireError(f"{cls.__name__}.{name} is a {type(body[name]).__name__}")
        if type(body[name]) is str and len(body[name]) > MOST_CHARACTERS and name not in LONG:
            raise WireError(f"{cls.__name__}.{name} has {len(body[name])} characters, more than {MOST_CHARACTERS}")
        if types == (list,):
            body[name] = tuple(body[name])
        elif float in types and body[name] is not None:
            body[name] = float(body[name])  # an int that no float holds is refused here, and nowhere later
        elif type(body[name]) is int and not 0 <= body[name] < 2**63:
            raise WireError(f"{cls.__name__}.{name} is outside 64 bits")
    if body.get("phase", "done") not in PHASES:
        raise WireError(f"{cls.__name__}.phase is {body['phase'][:80]!r}")
    return cls(**body)


def _plain(value: Any) -> Any:
    """JSON for the NumPy scalars and read-only mappings that the core may put in a message."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise WireError(f"{value!r} does not travel.")
