"""Randomness that nobody can choose: hash chains that are anchored before anything is known, and opened link by link.

    x_t = sha256(x_{t+1}),   anchor = sha256(x_0)

An owner shows x_t only when step t has come. Nobody can guess it before, and the owner cannot show another one. What
is drawn from the links of everybody is therefore fixed before the first round and known to nobody until they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256

from ..entry import canonical
from .keys import PrivateKey, words

OFFERS = 64  # how often terms can be proposed anew, because somebody declined


def chain(secret: bytes, length: int) -> list[str]:
    """The links x_0 .. x_{length-1}, as hexadecimal texts.

    >>> links = chain(b"secret", 3)
    >>> follows(links[1], links[2]), follows(links[2], links[1])
    (True, False)
    """
    links = [sha256(b"fedincentive/chain/1\n" + secret).digest()]
    while len(links) < length:
        links.append(sha256(links[-1]).digest())
    return [link.hex() for link in reversed(links)]


def links_of(key: PrivateKey, place: Mapping[str, str], steps: int) -> list[str]:
    """The links x_0 .. x_steps of a key's owner in a run, and some more: each time terms are proposed anew, the run
    begins one link later. They come from the key alone, so a restart has them again."""
    return chain(sha256(key.sign(words("chain", dict(place)))).digest(), steps + 1 + OFFERS)


def anchor(links: Sequence[str]) -> str:
    """What is agreed before the first link is shown."""
    return back(links[0], 1)


def follows(shown: str, link: str, steps: int = 1) -> bool:
    """Whether `link` comes this many steps after what was shown before, the anchor or an earlier link."""
    try:
        return back(link, steps) == shown
    except ValueError:
        return False


@lru_cache(maxsize=2**12)  # the same links are asked for in every step and every audit
def back(link: str, steps: int) -> str:
    """The link that came so many steps before."""
    if not re.fullmatch("[0-9a-f]{64}", link):  # one writing only: another one would be another draw
        raise ValueError("a link has 64 hexadecimal digits")
    here = bytes.fromhex(link)
    for _ in range(steps):
        here = sha256(here).digest()
    return here.hex()


def mixed(under: str, step: int, links: Mapping[str, str]) -> str:
    """One value from everybody's links of a step, under the digest of the run's terms or an earlier value."""
    return sha256(f"fedincentive/beacon/1\n{under}\n{step}\n{canonical(dict(links))}".encode()).hexdigest()


def drawn(value: str, label: str, chance: Fraction | float) -> bool:
    """A coin that lands heads with this chance.

    >>> [drawn("00", label, 0.5) for label in "efgh"]
    [True, True, False, True]
    """
    return number(value, label) < int(chance * 2**64)


def ranked(value: str, labels: Iterable[str]) -> list[str]:
    """The labels in a random order; the first k of them are a random sample."""
    return sorted(labels, key=lambda label: (number(value, label), label))


def some(value: str, label: str, count: int, wanted: int) -> list[int]:
    """Different numbers below `count`, in the order they are drawn; all of them where there are no more.

    >>> some("00", "open", 3, 5), some("00", "open", 10**6, 2)
    ([0, 2, 1], [563054, 22978])
    """
    found: dict[int, None] = {}
    draw = 0
    while len(found) < min(count, wanted):
        found.setdefault(number(value, f"{label}\n{draw}") % count)
        draw += 1
    return list(found)


def asked(link: str, agents: Iterable[str], size: int) -> tuple[str, ...]:
    """Whom the center asks in a step, by the link that it shows with its question; in name order.

    >>> asked("00" * 32, "abcdefgh", 3)
    ('a', 'c', 'e')
    """
    return tuple(sorted(ranked(link, agents)[:size]))


def number(value: str, label: str) -> int:
    """A number of 64 bits for this label."""
    return int.from_bytes(sha256(f"{value}\n{label}".encode()).digest()[:8], "big")
