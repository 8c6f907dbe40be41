"""Exact money: integers and fractions only, so that anyone can derive every amount again.

Contributions s are integers in fixed point (data points times `SCALE`), money is an integer of minor
units (`MINOR` per unit), beta is an exact fraction per point. A float enters at one place: `quantise`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from ..checks import fraction
from ..entry import LIMIT, RESERVED
from ..errors import PaymentError

SCALE = 10**6  # fixed-point steps per data point
MINOR = 10**6  # minor units per unit of money

Amounts = dict[str, int]


def quantise(value: float, scale: int = SCALE) -> int:
    """The integer nearest to value * scale, computed exactly, half to even.

    >>> quantise(2.5, 1), quantise(0.1, 10**6)
    (2, 100000)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise PaymentError(f"Cannot quantise {value!r}: a finite Python number is needed.")
    numerator, denominator = value.as_integer_ratio()
    down, rest = divmod(numerator * whole("scale", scale, low=1), denominator)
    up = 2 * rest > denominator or (2 * rest == denominator and down % 2)
    return whole("the quantised value", down + 1 if up else down)


def whole(name: str, value: object, *, low: int = -LIMIT) -> int:
    """`value` if it is a Python int in 64 bits; floats, bools and NumPy scalars are refused by name."""
    if type(value) is not int:
        raise PaymentError(
            f"{name} must be a Python int, not {value!r} ({type(value).__name__}); see payments.quantise."
        )
    if not low <= value <= LIMIT:
        raise PaymentError(f"{name} is {value}, outside {low}..{LIMIT}.")
    return value


def written(price: Fraction | str) -> str:
    """A price as people write it: a decimal where that is exact, else the fraction it is.

    >>> written("2/25"), written(Fraction(1, 3))
    ('0.08', '1/3')
    """
    short = f"{float(Fraction(price)):.12g}"
    return short if Fraction(short) == Fraction(price) else str(price)


def rate(name: str, value: Fraction | int | str) -> Fraction:
    """An exact non-negative rate from a Fraction, an int or a string such as "2", "0.05" or "7/5"."""
    if isinstance(value, bool) or not isinstance(value, (Fraction, int, str)):
        raise PaymentError(f"{name} must be exact: a Fraction or a decimal string, not {value!r}.")
    try:
        number = fraction(value)
    except (ValueError, ZeroDivisionError):
        raise PaymentError(f"{name} must be a number, not {value!r}.") from None
    if number < 0:
        raise PaymentError(f"{name} is {number}; a negative rate would charge agents for contributing.")
    return number


def apportion(numerators: Mapping[str, int], denominator: int, rotation: int = 0) -> Amounts:
    """Whole units nearest to numerator/denominator that keep the exact sum: floors plus the largest remainders.

    The agents at the cut with equal remainders form one ring in name order; the units left for them go to
    consecutive places that move on with every rotation, so that no name is favoured for long. A larger
    numerator never gets less: at equal floors it has the larger remainder, and a unit is at most the step
    between two floors.

    >>> apportion({"a": 1, "b": 1, "c": -2}, 2), apportion({"a": 1, "b": 1, "c": -2}, 2, rotation=1)
    ({'a': 1, 'b': 0, 'c': -1}, {'a': 0, 'b': 1, 'c': -1})
    """
    if sum(numerators.values()) % denominator:
        raise PaymentError("The exact amounts do not sum to a whole number of minor units.")
    names = sorted(numerators)
    parts = [divmod(numerators[name], denominator) for name in names]
    remainders = [remainder for _, remainder in parts]
    missing = sum(remainders) // denominator
    if not missing:
        return {name: floor for name, (floor, _) in zip(names, parts, strict=True)}
    cut = sorted(remainders, reverse=True)[missing - 1]
    ring = [name for name, remainder in zip(names, remainders, strict=True) if remainder == cut]
    left = missing - sum(remainder > cut for remainder in remainders)
    start = rotation * left % len(ring)
    chosen = {ring[(start + k) % len(ring)] for k in range(left)}
    return {
        name: floor + (remainder > cut or name in chosen) for name, (floor, remainder) in zip(names, parts, strict=True)
    }


def relative(phi: Mapping[str, int], denominator: int, rotation: int = 0) -> Amounts:
    """phi_i - mean_{j != i} phi_j for phi in parts of 1/denominator: whole units that sum to exactly 0.

    >>> relative({"a": 3, "b": 5, "c": 10}, 1)
    {'a': -4, 'b': -2, 'c': 6}
    """
    n, total = len(phi), sum(phi.values())
    exact = {agent: n * score - total for agent, score in phi.items()}
    return bounded(apportion(exact, denominator * (n - 1), whole("rotation", rotation)))


def check_agents(values: Mapping[str, int], what: str, *, low: int = -LIMIT, least: int = 2) -> None:
    if len(values) < least:
        raise PaymentError(f"A payment between agents needs at least {least} of them, not {len(values)}.")
    for agent, value in values.items():
        if type(agent) is not str or not agent or agent in RESERVED:
            names = " and ".join(map(repr, RESERVED))
            raise PaymentError(f"{agent!r} cannot be an agent's name; {names} are the center's own accounts.")
        if type(value) is not int or not low <= value <= LIMIT:
            whole(f"{what} of {agent!r}", value, low=low)


def check_known(some: Mapping[str, object], agents: Mapping[str, int], what: str) -> None:
    for agent in some:
        if agent not in agents:
            raise PaymentError(f"There is a {what} for {agent!r}, who has no valuation.")


def bounded(amounts: Amounts) -> Amounts:
    if amounts and not -LIMIT <= min(amounts.values()) <= max(amounts.values()) <= LIMIT:
        agent = max(amounts, key=lambda name: abs(amounts[name]))
        raise PaymentError(f"The payment of {agent!r} is {amounts[agent]} minor units, which 64 bits do not hold.")
    return amounts
