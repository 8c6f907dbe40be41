"""A study: a list of cases, how one is played, and the figures drawn from what came out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ... import checks, ledger
from .. import data
from ..federation import Federation, Layout, Played

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Case = dict[str, Any]  # plain JSON values: what distinguishes one run of a study from the others
Record = dict[str, Any]  # {"case": ..., "result": ...}, plain JSON values; the same for the same seed
MECHANISMS = ("fedavg", "2p-upbred", "upbred", "fedavg-strategic")


class Bench:
    """What the cases of one process share: the data read, the last federation, and the ledger of the job."""

    def __init__(
        self,
        given: Mapping[str, Any],
        directory: str | Path | None,
        book: ledger.Ledger | None = None,
        states: Path | None = None,
        workers: int = 1,
    ) -> None:
        self.given, self.directory, self.book, self.states, self.workers = given, directory, book, states, workers
        self._data: dict[str, data.Dataset] = {}
        self._kept: tuple[Any, Federation] | None = None
        self.seconds: list[float] = []  # of the last run; kept apart from results, which repeat exactly

    def dataset(self, name: str) -> data.Dataset:
        if name not in self._data:
            self._data[name] = data.read(name, self.directory, **self.given["data"].get(name, {}).get("read", {}))
        return self._data[name]

    def federation(self, case: Case, **layout: Any) -> Federation:
        """The federation of a case; cases that differ in the mechanism alone share it, and what was trained on it."""
        name, study = case["data"], self.given["study"]
        values = {**self.given["data"][name]["layout"], **study.get("layout", {}).get(name, {}), **layout}
        values.update({key: case[key] for key in ("agents", "split") if key in case})
        key = (name, sorted(values.items(), key=str), case["seed"])
        if self._kept is None or self._kept[0] != key:
            layout_of = checks.read(Layout, values, f"data.{name}")
            self._kept = (key, Federation(self.dataset(name), layout_of, case["seed"], workers=self.workers))
        return self._kept[1]

    def state(self, case: Case) -> Path | None:
        """Where the rounds of a case are kept while it is played; None where runs are too short for that."""
        return None if self.states is None else self.states / re.sub(r"[^\w.=-]", "_", label(case))

    def shared(self, case: Case) -> dict[str, list[int]]:
        """The training rounds that a case just played had from others, by the case that trained for it."""
        return {} if self._kept is None else self._kept[1].shared(label(case))

    def forget(self) -> None:
        """Let the next case train for itself, as if nothing had been trained before."""
        self._kept = None

    def incentive(self, case: Case, **more: Any) -> tuple[dict[str, Any], float]:
        """The `incentive:` mapping of a case and the factor of its costs: data, economy, study, case, in this order."""
        own, economy = self.given["data"][case["data"]], self.given["economies"][case["economy"]]
        study = self.given["study"]
        merged = {**own["incentive"], **economy["incentive"], **own.get(case["economy"], {})}
        merged.update(study.get("incentive", {}).get(case["data"], {}))
        merged.update({key: study[key] for key in ("gamma",) if key in study})
        merged.update({key: case[key] for key in ("mechanism", "beta") if key in case})
        return {**merged, "run": label(case), **more}, float(economy["cost"])


class Study:
    """Subclasses say their name, cases, how to play one, and how to draw all. Files are rebuilt from records alone."""

    name: ClassVar[str]
    title: ClassVar[str]

    def cases(self, given: Mapping[str, Any]) -> list[Case]:
        raise NotImplementedError

    def job(self, case: Case) -> str:
        """Cases of one job run in one process, one after the other, and share a federation and a ledger."""
        return "-".join(str(case[key]) for key in ("data", "split", "agents", "seed") if key in case) or "all"

    def follows(self, case: Case) -> bool:
        """Whether a case is played beside the one before, which trains for both, where the preset keeps rounds."""
        return False

    def play(self, case: Case, bench: Bench) -> dict[str, Any]:
        raise NotImplementedError

    def draw(self, records: Sequence[Record], timings: Sequence[Record]) -> dict[str, Figure]:
        raise NotImplementedError


def label(case: Case) -> str:
    """A case in one line, such as data=cifar10 agents=4 mechanism=upbred."""
    return " ".join(f"{key}={value}" for key, value in case.items())


def summary(played: Played, *, table: bool = True) -> dict[str, Any]:
    """What is kept of a run: rounded to what a figure can show, with a table of the agents where asked for."""
    outcome, minor = played.outcome, played.settings.minor
    found: dict[str, Any] = {
        "status": outcome.status,
        "contribute_rounds": outcome.contributed,
        "training_rounds": outcome.trained,
        "share": rounded(played.share),
        "welfare": rounded(played.welfare),
        "net_welfare": rounded(played.net_welfare),
        "curve": [[step, rounded(value)] for step, value in played.curve()],
        "head": outcome.head,
        "model": outcome.digest,
    }
    if table:
        utilities = played.utilities()
        found["agents"] = {
            name: {
                "s_max": rounded(outcome.s_max[name]),
                "s": rounded(outcome.s[name]),
                "delivered": rounded(outcome.delivered[name]),
                "value": rounded(played.settings.value_per_nat * played.nats[name]),
                "cost": rounded(played.costs[name]),
                "payment": outcome.payments[name] / minor,
                "utility": rounded(utilities[name]),
            }
            for name in outcome.s
        }
        found["certificate"] = str(outcome.certificate)  # the center knows neither costs nor valuations, and says so
    return found


def rounded(value: float, digits: int = 6) -> float:
    """To significant digits, so that files stay small.

    >>> rounded(123.4567891)
    123.457
    """
    return float(f"{value:.{digits}g}")
