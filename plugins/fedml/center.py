"""The core's Center with the hooks of FedML's ServerAggregator around its aggregation."""

from __future__ import annotations

from typing import Any

from ...center import Center
from ...mechanisms import Run
from ...messages import Update
from .aggregator import Hooks


class HostedCenter(Center):
    """`hooks` stays None in closed-form games, which have no model of FedML's."""

    hooks: Hooks | None = None

    def _aggregate(self, updates: list[Update], delivered: list[int]) -> Update:
        if self.hooks is not None:
            updates, delivered = self.hooks.before(self.w, updates, delivered)
        return super()._aggregate(updates, delivered)

    def _train(self, run: Run) -> tuple[Update, Any]:
        w, optimizer = super()._train(run)
        return (w if self.hooks is None else self.hooks.after(w)), optimizer
