"""Amounts, points and names as a report writes them: money is rounded for reading, and never goes through a float."""

from __future__ import annotations

from fractions import Fraction

from ..ledger.payout import DECIMALS
from .run_totals import RunTotals

NOTHING = "-"


def name(run: RunTotals) -> str:
    mechanism = run.manifest.mechanism
    return run.run if mechanism in ("", run.run) else f"{run.run} ({mechanism})"


def share(run: RunTotals) -> str:
    limit = sum(run.limits.values())
    return f"{float(sum(run.last.values()) / limit):.0%}" if limit and run.last else NOTHING


def rounded(amount: int, minor: int, digits: int = 2) -> str:
    """Minor units as people write money; halves go to the even digit.

    >>> rounded(-1234567890, 10**6), rounded(-1, 10**6), rounded(1999, 10, 0)
    ('-1,234.57', '0.00', '200')
    """
    units = round(Fraction(amount * 10**digits, minor))
    whole, rest = divmod(abs(units), 10**digits)
    return f"{'-' if units < 0 else ''}{whole:,}" + (f".{rest:0{digits}d}" if digits else "")


def money(amount: int | None, run: RunTotals) -> str:
    """An amount in a table whose title names the currency."""
    return NOTHING if amount is None else rounded(amount, run.minor, DECIMALS.get(run.currency, 2))


def priced(amount: int, run: RunTotals) -> str:
    """An amount in a sentence.

    >>> from fedincentive.manifest import SavedRun
    >>> priced(46170000, RunTotals("r", 10**6, SavedRun(), terms={"currency": "EUR"}))
    '46.17 EUR'
    """
    return f"{money(amount, run)} {run.currency}"


def points(points: Fraction | int) -> str:
    short = f"{float(points):,.2f}"
    return short.rstrip("0").rstrip(".")


def count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
