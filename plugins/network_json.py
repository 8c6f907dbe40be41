"""JSON that comes over a network, read at a cost its sender cannot raise: all hosts' wires read theirs here.

Brackets, commas and colons are counted before anything is built, so memory and time are bounded by `MOST_BYTES` and
`MOST_ITEMS`: 60 MB of `[]` would take 1.7 GB otherwise. NaN and infinities pass: what asks for a number refuses them
and can name the agent.
"""

from __future__ import annotations

import json
from typing import Any

MOST_BYTES = 8 * 2**20
MOST_ITEMS = 2**18  # 10,000 agents and a model of 5,000 arrays have 60,000
MOST_DIGITS = 40  # of one number; a float has at most 24 characters
DEEPEST = 16


def check(data: bytes) -> None:
    """A ValueError for JSON that the other side would not read."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"JSON of {len(data)} bytes, more than {MOST_BYTES}")
    items = sum(data.count(mark) for mark in b",:[{")
    if items > MOST_ITEMS:
        raise ValueError(f"JSON of {items} items, more than {MOST_ITEMS}")


def read(data: bytes) -> Any:
    """The value, or a ValueError. It must be ASCII, as json.dumps writes it, and name nothing twice.

    >>> read(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    check(data)
    try:
        value = json.loads(str(data, "ascii"), object_pairs_hook=_once, parse_int=_integer, parse_float=_float)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    level = [value]
    for _ in range(DEEPEST):
        inside = (one.values() if type(one) is dict else one for one in level if type(one) in (dict, list))
        level = [child for children in inside for child in children]
    if level:
        raise ValueError(f"JSON that is nested more than {DEEPEST} deep")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("JSON that says something twice")
    return values


def _integer(digits: str) -> int:
    return int(_short(digits))


def _float(digits: str) -> float:
    return float(_short(digits))


def _short(digits: str) -> str:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return digits
