"""Names of agents, which are the names of their accounts: a person who reads one must not take it for another."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from ..entry import NAME_LENGTH, RESERVED

# Small Cyrillic, Greek, Armenian and other letters that look like Latin ones, after case folding. It is a selection
# from Unicode's confusables: the pairs that any font draws alike.
ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u043a\u043c\u0442\u0432\u043d\u04cf\u04ab"
    "\u03b1\u03bf\u03c1\u03bd\u03b9\u03ba\u03c5\u03c7\u03c4\u03b5\u03b7\u03b2\u03b6\u03bc\u03f2\u03f3"
    "\u0581\u0585\u057d\u0578\u0570\u0131\u0269\u0251\u0261\u028b",
    "aeopcyxijshdqwkmtbhlcaopvikuxtenbzmcjgounhiiagu",
)
HYPHENS = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\u02d7\u30fc\u2500"), "-")
# drawn as nothing: fillers, joiners and the selectors of a glyph's variant, as far as they count as printable
NOTHING = dict.fromkeys(
    [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
)


@lru_cache(maxsize=2**16)
def likeness(name: str) -> str:
    """The same text for names that a reader may take for each other.

    >>> likeness("Ann") == likeness("\\u0430nn") == likeness("\\uff21\\uff4e\\uff4e") != likeness("Anna")
    True
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    drawn = "".join(c for c in folded.translate(NOTHING).translate(HYPHENS) if unicodedata.category(c) != "Cf")
    return " ".join(drawn.translate(ALIKE).split())


def wrong_with_name(name: str, others: Iterable[str] = ()) -> str:
    """Why an agent cannot have this name beside `others`, or nothing."""
    if not name or not name.isprintable() or len(name) > NAME_LENGTH:
        return f"Agent {name[:40]!r} needs another name: 1 to {NAME_LENGTH} printable characters, for its account."
    if name != name.strip():
        return f"Agent {name!r} needs a name without spaces around it: {name.strip()!r}."
    if name != (composed := unicodedata.normalize("NFC", name)):
        return f"Agent {ascii(name)} needs its name in Unicode's composed form (NFC): {ascii(composed)}."
    if not likeness(name):
        return f"Agent {ascii(name)} needs another name: nothing of it can be seen."
    other = next((other for other in (*RESERVED, *others) if other != name and likeness(other) == likeness(name)), None)
    return "" if other is None else _alike(name, other)


def twins(names: Iterable[str]) -> str:
    """Which two of these names can be taken for each other, or nothing."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(likeness(name), name)) != name:
            return _alike(name, other)
    return ""


def _alike(name: str, other: str) -> str:
    whose = f"the account {other!r}" if other in RESERVED else f"agent {ascii(other)}"
    return f"Agent {ascii(name)} looks like {whose}: give one of them a name that nobody takes for the other."
