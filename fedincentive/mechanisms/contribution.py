"""The contribution payment p_i = beta (s_i - mean_{j != i} s_j): when it falls due, and on which points.

Settling when phase 1 ends would make the payment sunk, and every agent would gain by training on fewer points; so by
default each of the T training rounds pays a T-th of it on the points delivered in that round.
"""

from __future__ import annotations

from fractions import Fraction

from .. import ledger
from ..ledger import Entry
from .base import Run


def commitment(run: Run, beta: Fraction) -> Entry:
    """The memo that training starts from: what everyone committed, and the digests of their data."""
    inputs = {"beta": str(beta), "s": run.s, "s_max": run.s_max, "scale": run.settings.scale, "data": run.commitments}
    return Entry(run.settings.run, run.round, "commitment", "commitment/1", inputs, {})


def on_commitment(run: Run) -> Entry:
    """p(s) at once, on what was committed: the paper's literal reading."""
    s = run.settings
    return ledger.settlement(s.run, run.round, beta=s.beta, s=run.s, scale=s.scale, minor=s.minor)


def after_training(run: Run) -> Entry | None:
    """What the training round that was just closed pays: a tranche, the settlement at the end, or nothing."""
    s = run.settings
    if s.settlement == "commitment" or (s.settlement == "end" and run.trained < s.rounds):
        return None
    tranches = s.settlement == "tranches"
    return ledger.tranche(
        s.run,
        run.round,
        beta=s.beta,
        rounds=s.rounds,
        delivered=run.delivered if tranches else run.delivered_total,
        total=run.delivered_total,
        posted=run.posted,
        scale=s.scale,
        minor=s.minor,
        kind="tranche" if tranches else "settlement",
    )
