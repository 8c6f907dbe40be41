"""Between the core's messages and what NVFlare carries: texts for numbers and names, FLModel parameters for arrays.

Every field of a message but its arrays is in one JSON text, whatever fields the message has; the dataclass itself says
which types they may have. What a site sends is checked before it is used: anything odd is a ReportRefused.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from ...errors import ReportRefused
from ...messages import Broadcast, Enrol, Report, Update
from .. import network_json

INCENTIVE = "fedincentive"  # our entry in an FLModel's meta, and the task and the topic of scalar rounds
ARRAYS = {Broadcast: "w", Report: "update"}  # the field of each message that travels as parameters
MOST_CHARACTERS = 1000  # of a name or a signature
M = TypeVar("M", Broadcast, Report, Enrol)


def write(message: Broadcast | Report | Enrol, **beside: Any) -> str:
    """All of a message but its arrays, and what is said `beside` it.

    >>> read(Report, write(Report("run", 3, "contribute", "a", s=0.1)), "a").s
    0.1
    """
    names = [field.name for field in dataclasses.fields(message) if field.name != ARRAYS.get(type(message))]
    text = json.dumps({**{name: getattr(message, name) for name in names}, **beside}, default=_plain)
    network_json.check(text.encode())
    return text


def read(kind: type[M], text: Any, sender: str, arrays: Update | None = None) -> M:
    """The message in a text that `sender` sent, with the arrays that came beside it."""
    values = fields(text, sender)
    apart = ARRAYS.get(kind)
    allowed = {name: types for name, types in _types(kind).items() if name != apart}
    if odd := set(values) - set(allowed):
        raise ReportRefused(f"{sender!r} sends a {kind.__name__} with {short(sorted(odd))}, which it does not have.")
    for name, value in values.items():
        long = type(value) is str and len(value) > MOST_CHARACTERS and name != "tags"  # one for each record
        if type(value) not in allowed[name] or long:
            raise ReportRefused(f"{sender!r} sends {name} = {short(value)}, which does not fit a {kind.__name__}.")
        if type(value) is list and any(type(part) is not dict for part in value):
            raise ReportRefused(f"{sender!r} sends {name} = {short(value)}: a list of objects is needed.")
        if type(value) is int and float in allowed[name]:
            values[name] = float(value)
    try:
        return kind(**values, **({} if apart is None else {apart: arrays}))
    except (TypeError, OverflowError) as error:
        raise ReportRefused(f"{sender!r} sends a {kind.__name__} that lacks something: {error}.") from None


def fields(text: Any, sender: str) -> dict[str, Any]:
    """The JSON object in a text that came over the network."""
    try:
        values = network_json.read(text.encode("ascii")) if type(text) is str else None
    except ValueError as error:
        raise ReportRefused(f"{sender!r} sends what cannot be read: {str(error)[:200]}.") from None
    if type(values) is not dict:
        raise ReportRefused(f"{sender!r} sends {short(text)} where a message of fedincentive is needed.")
    return values


def short(value: Any) -> str:
    """A value of a sender's as it may stand in a log."""
    return repr(value)[:80]


@cache
def _types(kind: type) -> dict[str, frozenset[type]]:
    """The types that JSON has for each field; where a float may stand, an int may too."""
    return {name: frozenset(_plain_types(hint)) for name, hint in get_type_hints(kind).items()}


def _plain_types(hint: Any) -> set[type]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return set().union(*map(_plain_types, get_args(hint)))
    if origin is Literal:
        return {type(value) for value in get_args(hint)}
    if hint is float:
        return {float, int}
    known = origin or hint
    if isinstance(known, type) and issubclass(known, Mapping):
        return {dict}
    return {list} if known in (list, tuple, Sequence) else {known}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} does not travel")
