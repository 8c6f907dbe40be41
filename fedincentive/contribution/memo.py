"""worth/1: a memo beside a training round's payments of what each update was worth. It posts nothing.

values, spread     decimals by agent: the value, and half of its 95 % interval
by, step           how it was measured, and in which training round
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from typing import Any

from ..entry import Entry

RULE, KIND = "worth/1", "worth"


def entry(run: str, number: int, step: int, by: str, worth: Mapping[str, tuple[float, float]]) -> Entry:
    """The memo of round `number`; who did not answer has no value in it."""
    values = {agent: f"{value:.9g}" for agent, (value, _) in worth.items()}
    spread = {agent: f"{half:.9g}" for agent, (_, half) in worth.items()}
    return Entry(run, number, KIND, RULE, {"by": by, "step": step, "values": values, "spread": spread}, {})


def read(given: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """{agent: (value, half of its interval)} of a memo's inputs."""
    return {agent: (float(value), float(given["spread"][agent])) for agent, value in given["values"].items()}


def wrong(given: Mapping[str, Any], agents: Container[str] | None, last: int | None) -> Iterator[str]:
    """What is wrong with a memo of a run with these agents whose last one was of step `last`."""
    if set(given["values"]) != set(given["spread"]):
        yield "not every value has an interval, or an interval has no value"
        return
    for agent, (value, half) in sorted(read(given).items()):
        if agents is not None and agent not in agents:
            yield f"{agent!r} has a value but is not in the terms"
        if not math.isfinite(value) or not 0.0 <= half < math.inf:
            yield f"the value of {agent!r} is {value:g} +- {half:g}"
    if last is not None and given["step"] != last + 1:
        yield f"it is of training round {given['step']}, the one before it was of {last}"


def explain(given: Mapping[str, Any], account: str) -> str:
    value, half = read(given)[account]
    return f"memo, its update was worth {value:.6g} +- {half:.2g} by {given['by']}"
