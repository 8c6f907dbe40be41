"""What hosts log after every round: plain numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..entry import RESERVED, TREASURY
from ..mechanisms import Mechanism
from ..messages import Update
from ..run import Answer, Run


def metrics(
    run: Run,
    mechanism: Mechanism,
    reports: Mapping[str, Answer],
    absent: Collection[str],
    paid: Mapping[str, int],
    d: Update | None,
) -> dict[str, float]:
    """Contributions, payments and the welfare of the reported valuations, once every agent has reported one."""
    settings = run.settings
    total = sum(run.s.values()) / settings.scale
    found = {
        "answered": float(len(reports)),
        "absent": float(len(absent)),
        "contribution": total,
        "contribution_share": total * settings.scale / sum(run.s_max.values()),
        "paid": sum(a for account, a in paid.items() if a > 0 and account not in RESERVED) / settings.minor,
        "treasury": run.balances.get(TREASURY, 0) / settings.minor,
    }
    if run.n == len(run.valuations):
        found["welfare"] = sum(run.valuations.values()) / settings.minor
    for payment in mechanism.payments if d is not None and mechanism.values else ():
        found |= payment.metrics(run, d or {})
    return found
