"""Plain text in columns, as wide as a terminal shows it."""

from __future__ import annotations

import unicodedata


def width(text: str) -> int:
    """How many columns a text takes: letters of East Asia two, marks on other letters none.

    >>> width("bank"), width("\u9280\u884c"), width("e\u0301")
    (4, 4, 1)
    """
    return sum(
        2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text if not unicodedata.combining(letter)
    )


def left(text: str, columns: int) -> str:
    """The text with blanks after it."""
    return text + " " * (columns - width(text))
