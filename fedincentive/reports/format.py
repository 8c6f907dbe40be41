"""Amounts, points and names as a report writes them: money exactly as the ledger does, never through a float."""

from __future__ import annotations

from fractions import Fraction

from ..ledger.export import decimal
from .run_totals import RunTotals

NOTHING = "-"


def name(run: RunTotals) -> str:
    mechanism = run.manifest.mechanism
    return run.run if mechanism in ("", run.run) else f"{run.run} ({mechanism})"


def share(run: RunTotals) -> str:
    limit = sum(run.limits.values())
    return f"{float(sum(run.last.values()) / limit):.0%}" if limit and run.last else NOTHING


def money(amount: int | None, run: RunTotals) -> str:
    return NOTHING if amount is None else decimal(amount, run.minor)


def rate(beta: str) -> str:
    """As a decimal where that is exact, else as the fraction it is."""
    short = f"{float(Fraction(beta)):.12g}"
    return short if Fraction(short) == Fraction(beta) else beta


def points(points: Fraction | int) -> str:
    short = f"{float(points):,.2f}"
    return short.rstrip("0").rstrip(".")


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
