"""What a study will take, measured before it starts, and what it is cut to where that is more than a budget of time."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .. import checks
from ..errors import SettingError
from .federation import Federation, Layout
from .studies import Bench, Case
from .training import EMBEDDING, Local, keep_memory

PROBED = 96  # points that one agent trains on for a measurement
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@dataclass(frozen=True)
class Forecast:
    """Seconds if every agent trained on all its points in every round, which is the most, and bytes of memory."""

    seconds: float
    memory: float
    rounds: int  # training rounds of all cases
    examples: float  # that agents train on, in all of them
    fixed: float = 0.0  # of the seconds, those of first phases in which agents train: fewer rounds do not save them

    def __str__(self) -> str:
        return (
            f"{duration(self.seconds)} at most ({self.rounds:,} training rounds, {self.examples / 1e6:,.1f} M examples)"
            f", {self.memory / 2**30:.1f} GiB of memory"
        )


def seconds_of(text: str) -> float:
    """A time such as 2h, 90m or 1h30m, in seconds.

    >>> seconds_of("1h30m")
    5400.0
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise SettingError(f"--budget {text!r} is not a time: write 2h, 90m or 1h30m.")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def duration(seconds: float) -> str:
    """A time to read.

    >>> duration(5400), duration(90)
    ('1.5 h', '1.5 min')
    """
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def forecast(cases: Sequence[Case], given: Mapping[str, Any], bench: Bench, cores: int) -> Forecast | None:
    """Measured on one agent of each data set; None for studies without training."""
    trained = [case for case in cases if "data" in case and "economy" in case]
    if not trained:
        return None
    speed: dict[str, tuple[float, int]] = {}
    seconds = fixed = examples = memory = 0.0
    total = 0
    for case in trained:
        name, layout = case["data"], _layout(case, given)
        if name not in speed:
            speed[name] = probe(bench, name, layout, given)
        per_example, size = speed[name]
        data = bench.dataset(name)
        # Who holds out a fifth trains on four; by writer or account, agents have what they have: the mean is taken.
        own = layout.points or (len(data) / layout.agents if layout.split not in ("writers", "grouped") else None)
        if own is None:
            groups = len(np.unique(data.users)) if data.users is not None else layout.agents
            own = len(data) * (layout.users or 1) / groups
        incentive, points = bench.incentive(case)[0], layout.agents * own * (1.0 - layout.held_out)
        rounds, before = trainings(incentive)
        total += rounds + before
        examples += (rounds + before) * points
        seconds += (rounds + before) * points * per_example / cores
        fixed += before * points * per_example / cores
        # Every agent's update of a round, the model with the optimizer's two arrays, and the data twice.
        memory = max(memory, (layout.agents + 6) * size + 2 * data.x.nbytes)
    return Forecast(seconds, memory, total, examples, fixed)


def trainings(incentive: Mapping[str, Any]) -> tuple[int, int]:
    """How often all agents train in a run's training rounds, and at most in a first phase before them.

    Agents that look at counterfactual slopes train twice for each: on what they give, and on more.
    """
    rounds, mechanism = int(incentive["rounds"]), incentive.get("mechanism")
    if incentive["slope"] != "counterfactual" or mechanism == "fedavg":
        return rounds, 0
    return (2 * rounds, 0) if mechanism == "upbred" else (rounds, 2 * int(incentive["round_limit"]))


def rounds_of(given: Mapping[str, Any], data: str) -> int:
    study = given["study"].get("incentive", {}).get(data, {})
    return int(study.get("rounds", given["data"][data]["incentive"]["rounds"]))


def _layout(case: Case, given: Mapping[str, Any]) -> Layout:
    name = case["data"]
    values = {**given["data"][name]["layout"], **given["study"].get("layout", {}).get(name, {})}
    values.update({key: case[key] for key in ("agents", "split") if key in case})
    return checks.read(Layout, values, f"data.{name}")


def probe(bench: Bench, name: str, layout: Layout, given: Mapping[str, Any]) -> tuple[float, int]:
    """Seconds of training on one example on one core, as fast as the machine is now, and bytes of an update."""
    torch.set_num_threads(1)  # as in the study itself
    keep_memory()
    held = max(layout.held_out, 0.2)
    points = min(layout.points or len(bench.dataset(name)), int(PROBED / (1.0 - held)) + 1)
    small = Federation(bench.dataset(name), replace(layout, agents=2, points=points, split="iid", users=None), 0)
    incentive = given["data"][name]["incentive"]
    trainer = small.group(Local(batch=incentive["batch"], learning_rate=incentive["learning_rate"])).trainer
    agent = small.names[0]
    request = [(agent, np.arange(len(small.shards[agent].y)))]
    trainer.updates(small.w0, request, 0)
    start = time.perf_counter()
    trainer.updates(small.w0, request, 0)
    taken = (time.perf_counter() - start) / len(request[0][1])
    size = sum(array.nbytes for array in small.w0.values())
    if small.rows is not None:  # all agents have more words than two of them
        more = len(np.unique(bench.dataset(name).x)) - len(small.rows)
        size += more * small.w0[EMBEDDING][0].nbytes
    return taken, size


def fitted(given: Mapping[str, Any], whole: Forecast, budget: float) -> tuple[dict[str, Any], list[str]]:
    """The settings that fit the budget, and what they are cut to: seeds first, then rounds, the same part of all."""
    found = copy.deepcopy(dict(given))
    cut_to: list[str] = []
    if budget >= whole.seconds:
        return found, cut_to
    seeds = int(found["study"].get("seeds", 1))
    kept = max(1, int(seeds * budget / whole.seconds))
    if kept < seeds:
        found["study"]["seeds"] = kept
        cut_to.append(f"seeds: {kept} of {seeds}")
    seconds, fixed = whole.seconds * kept / seeds, whole.fixed * kept / seeds
    part = (budget - fixed) / (seconds - fixed)
    for name in found["data"] if part < 1.0 else ():
        rounds = rounds_of(found, name)
        if int(rounds * part) < 1:
            least = duration(fixed + (seconds - fixed) / rounds)
            raise SettingError(
                f"--budget is too short: one seed and one round of each run take {least} here. Give more time, or "
                "fewer data sets or settings with --on and --only."
            )
        own = found["study"].setdefault("incentive", {}).setdefault(name, {})
        own["rounds"] = int(rounds * part)
        cut_to.append(f"{name}: {own['rounds']} of {rounds} rounds")
    return found, cut_to
