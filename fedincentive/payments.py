"""The exact payment rules: integers and fractions only, so that anyone can derive every amount again.

Contributions s are integers in fixed point (data points times `SCALE`), money is an integer of minor
units (`MINOR` per unit), beta is an exact fraction per point. A float enters at one place: `quantise`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from .errors import PaymentError
from .checks import fraction

SCALE = 10**6  # fixed-point steps per data point
MINOR = 10**6  # minor units per unit of money
LIMIT = 2**63 - 1  # every amount fits a signed 64-bit column in every store
TREASURY = "treasury"  # the account that takes the other side where a rule does not balance

Amounts = dict[str, int]


def quantise(value: float, scale: int = SCALE) -> int:
    """The integer nearest to value * scale, computed exactly, half to even.

    >>> quantise(2.5, 1), quantise(0.1, 10**6)
    (2, 100000)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise PaymentError(f"Cannot quantise {value!r}: a finite Python number is needed.")
    return whole("the quantised value", round(Fraction(value) * whole("scale", scale, low=1)))


def whole(name: str, value: object, *, low: int = -LIMIT) -> int:
    """`value` if it is a Python int in 64 bits; floats, bools and NumPy scalars are refused by name."""
    if type(value) is not int:
        raise PaymentError(
            f"{name} must be a Python int, not {value!r} ({type(value).__name__}); see payments.quantise."
        )
    if not low <= value <= LIMIT:
        raise PaymentError(f"{name} is {value}, outside {low}..{LIMIT}.")
    return value


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


def contribution(
    beta: Fraction | int | str, s: Mapping[str, int], *, scale: int = SCALE, minor: int = MINOR, rotation: int = 0
) -> Amounts:
    """The budget-balanced payment p_i = beta (s_i - mean_{j != i} s_j) = beta (n s_i - S)/(n - 1), in minor units.

    For every input: the sum is exactly 0, each amount is less than one unit from exact, s_i < s_j implies
    p_i <= p_j, and the order of `s` does not matter.

    >>> contribution(2, {"a": 3, "b": 5, "c": 10}, scale=1, minor=1)
    {'a': -9, 'b': -3, 'c': 12}
    """
    beta = rate("beta", beta)
    _agents(s, "s", low=0)
    n, total = len(s), sum(s.values())
    factor = beta.numerator * whole("minor", minor, low=1)
    denominator = beta.denominator * whole("scale", scale, low=1) * (n - 1)
    exact = {agent: factor * (n * points - total) for agent, points in s.items()}
    return _bounded(apportion(exact, denominator, whole("rotation", rotation)))


def tranche(
    beta: Fraction | int | str,
    rounds: int,
    delivered_total: Mapping[str, int],
    posted: Mapping[str, int],
    *,
    scale: int = SCALE,
    minor: int = MINOR,
    rotation: int = 0,
) -> Amounts:
    """What a training round posts: the rounded payment on all points delivered so far, minus what was posted.

    With D_i the points delivered in the training rounds so far, of `rounds` in all, the exact cumulative
    amount is (beta/rounds) (n D_i - sum D)/(n - 1). A fully delivered run ends at exactly p(s).

    >>> first = tranche(1, 3, {"a": 1, "b": 0}, {}, scale=1, minor=1)
    >>> first, tranche(1, 3, {"a": 2, "b": 0}, first, scale=1, minor=1)
    ({'a': 0, 'b': 0}, {'a': 1, 'b': -1})
    """
    per_round = rate("beta", beta) / whole("rounds", rounds, low=1)
    _agents(posted, "the amount posted", least=0)
    if unknown := sorted(posted.keys() - delivered_total.keys()):
        raise PaymentError(f"Agent {unknown[0]!r} was paid before but has no delivered total; give 0 if it is absent.")
    due = contribution(per_round, delivered_total, scale=scale, minor=minor, rotation=rotation)
    return _bounded({agent: amount - posted.get(agent, 0) for agent, amount in due.items()})


def fines(
    phi: str,
    gamma: int,
    valuations: Mapping[str, int],
    references: Mapping[str, int],
    *,
    tolerance: int = 0,
    failed: Mapping[str, str] | None = None,
    minor: int = MINOR,
) -> Amounts:
    """phi_i of the truthful payment, in minor units; an agent without a reference is not judged on its value.

    `none`: 0. `paper`: 0 if v^_i equals the reference r_i, else gamma + (v^_i - r_i)^2 (half to even).
    `audited`: gamma unless |v^_i - r_i| <= tolerance and the agent is not in `failed`, which names the
    audits (of its points or its update) that it did not pass.

    >>> fines("paper", 5, {"a": 3, "b": 7}, {"a": 3, "b": 4}, minor=1)
    {'a': 0, 'b': 14}
    """
    if phi not in ("none", "paper", "audited"):
        raise PaymentError(f"phi is {phi!r}; known: none, paper, audited.")
    for name, value, low in (("gamma", gamma, 0), ("tolerance", tolerance, 0), ("minor", minor, 1)):
        whole(name, value, low=low)
    failed = failed or {}
    _agents(valuations, "the valuation", least=0)
    _known(references, valuations, "reference")
    _known(failed, valuations, "failed audit")

    def fine(agent: str, value: int) -> int:
        gap = abs(value - whole(f"the reference of {agent!r}", references.get(agent, value)))
        if phi == "paper" and gap:
            return gamma + round(Fraction(gap * gap, minor))
        return gamma if phi == "audited" and (gap > tolerance or agent in failed) else 0

    return _bounded({agent: fine(agent, valuations[agent]) for agent in sorted(valuations)})


def truthful(
    valuations: Mapping[str, int],
    previous: Mapping[str, int] | None,
    fines: Mapping[str, int],
    h: str,
    *,
    pivots: Mapping[str, int] | None = None,
) -> Amounts:
    """p*_i = sum_{j != i} v^_j - phi_i - h_i in minor units, and the treasury that pays or takes their sum.

    h `previous`: the others' valuations of the last round (0 before the first), so that the payments
    telescope to the others' improvement. `zero`: 0. `clarke`: pivots[i], the others' value without i.

    >>> truthful({"a": 5, "b": 7}, {"a": 4, "b": 4}, {"a": 2}, "previous")
    {'a': 1, 'b': 1, 'treasury': -2}
    """
    _agents(valuations, "the valuation", least=0)
    _agents(fines, "the fine", low=0, least=0)
    _known(fines, valuations, "fine")
    if h not in ("previous", "zero", "clarke"):
        raise PaymentError(f"h is {h!r}; known: previous, zero, clarke.")
    before = dict(previous or {}) if h == "previous" else {}
    _agents(before, "the previous valuation", least=0)
    if h == "clarke" and set(pivots or {}) != set(valuations):
        raise PaymentError("h 'clarke' needs one pivot (the others' value without the agent) for every valued agent.")
    total, total_before = sum(valuations.values()), sum(before.values())
    amounts = {}
    for agent in sorted(valuations):
        others = total - valuations[agent]
        base = pivots[agent] if h == "clarke" and pivots else total_before - before.get(agent, 0)
        amounts[agent] = others - fines.get(agent, 0) - whole(f"h of {agent!r}", base)
    amounts[TREASURY] = -sum(amounts.values())
    return _bounded(amounts)


def _agents(values: Mapping[str, int], what: str, *, low: int = -LIMIT, least: int = 2) -> None:
    if len(values) < least:
        raise PaymentError(f"A payment between agents needs at least {least} of them, not {len(values)}.")
    for agent, value in values.items():
        if type(agent) is not str or not agent or agent == TREASURY:
            raise PaymentError(f"{agent!r} cannot be an agent's name; {TREASURY!r} is the center's own account.")
        if type(value) is not int or not low <= value <= LIMIT:
            whole(f"{what} of {agent!r}", value, low=low)


def _known(some: Mapping[str, object], agents: Mapping[str, int], what: str) -> None:
    for agent in some:
        if agent not in agents:
            raise PaymentError(f"There is a {what} for {agent!r}, who has no valuation.")


def _bounded(amounts: Amounts) -> Amounts:
    if amounts and not -LIMIT <= min(amounts.values()) <= max(amounts.values()) <= LIMIT:
        agent = max(amounts, key=lambda name: abs(amounts[name]))
        raise PaymentError(f"The payment of {agent!r} is {amounts[agent]} minor units, which 64 bits do not hold.")
    return amounts
