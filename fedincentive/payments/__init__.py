"""Payments: who owes whom, and why. One object a rule, asked by everyone who deals in it.

`get(name, settings)` makes the payment of a run; `names()` lists those there are: ours, and those that installed
packages offer in the group `fedincentive.payments`:

    [project.entry-points."fedincentive.payments"]
    my-payment = "my_package:MyPayment"

>>> contribution.amounts("0.5", {"a": 1, "b": 3}, scale=1)
{'a': -1000000, 'b': 1000000}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any

from ..entry import LIMIT, TREASURY
from ..errors import GameError, SettingError
from ..registry import Registry
from ..settings import Settings
from .base import Event, Payment, Promises
from .compared import Relative
from .contribution import Contribution
from .deposit import Deposit
from .downloads import Downloads
from .exact import MINOR, SCALE, Amounts, apportion, quantise, rate, relative, whole
from .groves_d import GrovesUpdates
from .levels import Levels
from .lump import LumpSum
from .oracles import Oracles, UpdateOracle, ValuationOracle
from .reimburse import Reimburse
from .sandwich import Sandwich
from .share import Share
from .truthful import Truthful

__all__ = [
    "LIMIT",
    "MINOR",
    "SCALE",
    "TREASURY",
    "Amounts",
    "Contribution",
    "Deposit",
    "Event",
    "LumpSum",
    "Oracles",
    "Payment",
    "Promises",
    "Truthful",
    "UpdateOracle",
    "ValuationOracle",
    "apportion",
    "by_rule",
    "chosen",
    "felt",
    "find",
    "get",
    "names",
    "quantise",
    "rate",
    "read",
    "relative",
    "whole",
]

OURS: tuple[type[Payment], ...] = (
    Contribution,
    Truthful,
    GrovesUpdates,
    Relative,
    Share,
    Reimburse,
    Sandwich,
    Levels,
    Downloads,
)
REGISTRY = Registry("fedincentive.payments", {cls.name: cls for cls in OURS}, "payment")
BESIDE: dict[str, type[Payment]] = {"deposit": Deposit, "lump": LumpSum}  # they come with other settings
TOGETHER = {"none": (), "both": ("contribution", "truthful")}

names = REGISTRY.names


def find(name: str) -> type[Payment]:
    """The class of the payment called `name`.

    >>> find("contribution").rules
    ('tranche/1', 'contribution/1', 'tranche/2', 'clawback/1')
    """
    found = BESIDE.get(name) or REGISTRY.find(name)
    if not (isinstance(found, type) and issubclass(found, Payment)):
        raise SettingError(f"{REGISTRY.whose(name)} is {found!r}: derive a class from payments.Payment.")
    return found


def get(name: str, settings: Settings) -> Payment:
    """The payment called `name`, on the terms that the settings give.

    >>> get("contribution", Settings.read({"beta": "0.5"})).price
    Fraction(1, 2)
    """
    return find(name).of(settings)


def chosen(setting: str | Sequence[str]) -> tuple[str, ...]:
    """The names that `incentive.payment` asks for: none, both, one name, or several.

    >>> chosen("both"), chosen("contribution, deposit")
    (('contribution', 'truthful'), ('contribution', 'deposit'))
    """
    listed = setting.split(",") if isinstance(setting, str) else setting
    return tuple(one for name in listed for one in TOGETHER.get(name.strip(), (name.strip(),)))


_BY_RULE: dict[str, type[Payment]] = {rule: cls for cls in (*OURS, *BESIDE.values()) for rule in cls.rules}


def by_rule(rule: str) -> type[Payment] | None:
    """The payment that can derive entries of this rule (name/version), or None where none is installed.

    >>> by_rule("tranche/1").name
    'contribution'
    """
    if rule in _BY_RULE:
        return _BY_RULE[rule]
    likely = rule.partition("/")[0]
    for name in sorted(names(), key=lambda name: name != likely):
        try:
            if rule in (found := find(name)).rules:
                return _BY_RULE.setdefault(rule, found)
        except SettingError:  # a broken package is named when it is asked for, not where others are
            continue
    return None


def read(terms: Mapping[str, Mapping[str, Any]]) -> tuple[Payment, ...]:
    """The payments whose terms a broadcast tells, by name."""
    return tuple(find(name).read(agreed) for name, agreed in terms.items())


def felt(pay: float | Fraction | Payment | Sequence[Payment]) -> tuple[Payment, ...]:
    """Payments as games take them: a number stands for the contribution payment with that price beta.

    >>> felt(0.5)[0].price, felt(0.0)
    (Fraction(1, 2), ())
    """
    if isinstance(pay, Payment):
        return (pay,)
    if not isinstance(pay, Real):
        return tuple(pay)  # type: ignore[arg-type]
    if not math.isfinite(pay):
        raise GameError(f"The price of a point is {pay!r}: it must be a finite number.")
    return (_priced(pay if isinstance(pay, Fraction) else float(pay)),) if pay else ()


@lru_cache(maxsize=64)
def _priced(beta: float | Fraction) -> Contribution:
    return Contribution(Fraction(beta))
