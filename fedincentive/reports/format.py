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
    >>> run = RunTotals("r", 10**6, SavedRun(), terms={"currency": "EUR"})
    >>> priced(46170000, run), priced(4000, run)
    ('46.17 EUR', 'less than 0.01 EUR')
    """
    return sum_of(amount, run.minor, run.currency)


def sum_of(amount: int, minor: int, currency: str) -> str:
    """An amount with its currency, in the currency's own digits; a small one is not called nothing.

    >>> sum_of(1, 1000, "JPY"), sum_of(0, 10**6, "BHD"), sum_of(-5, 10**6, "EUR")
    ('less than 1 JPY', '0.000 BHD', '0.00 EUR')
    """
    digits = DECIMALS.get(currency, 2)
    if amount > 0 and round(Fraction(amount * 10**digits, minor)) == 0:
        return f"less than {rounded(1, 10**digits, digits)} {currency}"
    return f"{rounded(amount, minor, digits)} {currency}"


def points(points: Fraction | int) -> str:
    short = f"{float(points):,.2f}"
    return short.rstrip("0").rstrip(".")


def count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
