"""Who holds which examples: partitions of a data set into agents, in NumPy, reproducible by seed.

Every function returns one index array per agent. `dirichlet` and `pathological` draw in the same order as Flower's
DirichletPartitioner and PathologicalPartitioner, so that equal seeds give equal partitions.
"""

from __future__ import annotations

import numpy as np

from ..errors import SettingError

Parts = list[np.ndarray]
TRIES = 10


def iid(size: int, agents: int, seed: int = 0) -> Parts:
    """Equal random shares (sizes differ by at most one).

    >>> [len(part) for part in iid(10, 4)]
    [3, 3, 2, 2]
    """
    if not 1 <= agents <= size:
        raise SettingError(f"{size} examples cannot be shared among {agents} agents: use between 1 and {size}.")
    return np.array_split(np.random.default_rng(seed).permutation(size), agents)


def by_user(users: np.ndarray, agents: int, seed: int = 0, least: int = 1) -> Parts:
    """One agent per user (a writer, an account): `agents` users with at least `least` examples, drawn at random."""
    who, counts = np.unique(users, return_counts=True)
    enough = who[counts >= least]
    if len(enough) < agents:
        raise SettingError(
            f"{agents} agents need {agents} users with at least {least} examples, but there are {len(enough)}: ask for "
            "fewer agents or fewer points, or use grouped_users."
        )
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(enough, size=agents, replace=False))
    return [rng.permutation(np.flatnonzero(users == user)) for user in chosen]


def grouped_users(users: np.ndarray, agents: int, group: int | None = None, seed: int = 0) -> Parts:
    """Whole users in random order, `group` of them per agent (all users, shared out evenly, when not given)."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.unique(users))
    group = group or len(who) // agents
    if group < 1 or group * agents > len(who):
        raise SettingError(
            f"{agents} agents of {group} users each need {group * agents} users, but only {len(who)} are there."
        )
    order = np.argsort(users, kind="stable")
    starts = np.searchsorted(users[order], who)
    ends = np.searchsorted(users[order], who, side="right")
    members = [order[a:b] for a, b in zip(starts, ends, strict=True)]
    return [rng.permutation(np.concatenate(members[a * group : (a + 1) * group])) for a in range(agents)]


def dirichlet(
    labels: np.ndarray, agents: int, alpha: float = 0.1, *, balance: bool = True, least: int = 10, seed: int = 0
) -> Parts:
    """Each class is shared out by proportions ~ Dirichlet(alpha); with `balance`, agents above average get no more.

    Repeated (at most 10 times) until every agent has at least `least` examples.
    """
    if alpha <= 0.0:
        raise SettingError(f"alpha must be greater than 0, not {alpha!r}.")
    rng = np.random.default_rng(seed)
    for _ in range(TRIES):
        parts = _dirichlet_once(labels, agents, alpha, balance, rng)
        if min(map(len, parts)) >= least:
            for part in parts:
                rng.shuffle(part)
            return [np.array(part, dtype=np.int64) for part in parts]
    raise SettingError(
        f"No Dirichlet({alpha:g}) partition of {len(labels)} examples into {agents} agents gave everyone {least} "
        f"examples in {TRIES} tries: use fewer agents, a larger alpha or another seed."
    )


def _dirichlet_once(
    labels: np.ndarray, agents: int, alpha: float, balance: bool, rng: np.random.Generator
) -> list[list[int]]:
    parts: list[list[int]] = [[] for _ in range(agents)]
    average = len(labels) / agents
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        shares = rng.dirichlet(np.full(agents, alpha))
        if balance:
            shares = np.where([len(part) > average for part in parts], 0.0, shares)
            shares = shares / sum(shares)  # in order, as Flower sums: another rounding moves a cut now and then
        cuts = (np.cumsum(shares) * len(members)).astype(int)[:-1]
        for part, piece in zip(parts, np.split(members, cuts), strict=True):
            part.extend(piece.tolist())
    return parts


def pathological(labels: np.ndarray, agents: int, classes: int = 3, *, seed: int = 0) -> Parts:
    """`classes` classes per agent, drawn at random; a class is shared evenly among those that drew it.

    Examples of a class that nobody drew are left out.
    """
    known = np.unique(labels)
    if not 1 <= classes <= len(known):
        raise SettingError(f"classes per agent must be between 1 and {len(known)}, not {classes}.")
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(known, size=classes, replace=False) for _ in range(agents)]
    parts: list[list[int]] = [[] for _ in range(agents)]
    for label in known:
        owners = [a for a in range(agents) if label in drawn[a]]
        if not owners:
            continue
        for owner, piece in zip(owners, np.array_split(np.flatnonzero(labels == label), len(owners)), strict=True):
            parts[owner].extend(piece.tolist())
    for part in parts:
        rng.shuffle(part)
    return [np.array(part, dtype=np.int64) for part in parts]


def counts(labels: np.ndarray, parts: Parts, classes: int) -> np.ndarray:
    """(agents, classes): how many examples of each class every agent holds."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
