"""Settings: frozen dataclasses read from a mapping by one strict reader.

A settings class is an ordinary frozen dataclass; each field says with `setting()` how its value is
checked. `read` turns a mapping from YAML or TOML into the class, refuses unknown keys with the
nearest known name, and reports the section the key stands in.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from .errors import SettingError

Check = Callable[[str, Any], Any]
LARGEST = sys.float_info.max
MOST_COMPARED = 200  # names, and characters of a word
TOO_LARGE = 10**18  # for money: an amount has 64 bits
S = TypeVar("S")


def setting(check: Check, default: Any = dataclasses.MISSING, *, help: str = "", secret: bool = False) -> Any:
    """A dataclass field whose value passes `check(name, value)`, which returns the value to keep. A `secret` one, such
    as an address that may hold a password, is not in the object's repr."""
    metadata = {"check": check, "help": help}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata, repr=not secret)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def read(cls: type[S], values: Mapping[str, Any], section: str) -> S:
    """The settings object for `values`; every problem is a SettingError that names `section.key`."""
    if not isinstance(values, Mapping):
        raise SettingError(f"{section} must be a mapping of settings, not {values!r}.")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise SettingError(f"{section} has no setting {shown(key)}.{nearest(key, fields)}")
    checked = {}
    for name, field in fields.items():
        if name in values:
            checked[name] = field.metadata["check"](f"{section}.{name}", values[name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SettingError(f"{section}.{name} is required. {field.metadata['help']}".strip())
    return cls(**checked)


def nearest(word: object, known: Sequence[str] | Mapping[str, Any]) -> str:
    """A sentence that points from an unknown word to the nearest known one, or lists them all.

    Of many it looks at the first: a stranger's word, compared with 10,000 long names, would keep a server for seconds.
    """
    text = word if isinstance(word, str) else shown(word)
    names = list(known)[:MOST_COMPARED]
    cutoff = 0.5 if len(text) <= 3 else 0.6  # of two or three letters one may be wrong
    match = difflib.get_close_matches(text[:MOST_COMPARED].lower(), names, n=1, cutoff=cutoff)
    if match:
        return f" Did you mean {match[0]!r}?"
    return f" Known: {', '.join(sorted(names))}{', ...' if len(names) < len(known) else ''}."


class _Shown(reprlib.Repr):
    """Few levels, few items, and numbers only where they can be written out."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 200, 200
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 8

    def repr_int(self, x: int, level: int) -> str:
        digits = int(x.bit_length() * 0.30103) + 1
        return repr(x) if digits <= 60 else f"a number of about {digits} digits"


_shown = _Shown()


def shown(value: object) -> str:
    """A value for an error message, short and at once: a few YAML aliases can hold more than could ever be written."""
    text = _shown.repr(value)
    return text if len(text) <= 400 else f"{text[:400]}..."


# Checks: each takes (name, value) and returns the value to keep, or raises SettingError.


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise SettingError(f"{name} must be a non-empty string, not {shown(value)}.")
    return value


def folder_name(name: str, value: Any) -> str:
    path(name, value)
    if any(c in value for c in "/\\") or not value.isprintable() or value in (".", "..") or len(value.encode()) > 200:
        raise SettingError(
            f"{name} is {shown(value)}: it names a folder, so give printable characters without slashes, at most 200 bytes."  # noqa: E501
        )
    return str(value)


def path(name: str, value: Any) -> str:
    """Where a file or folder is, or an address: any text that the system takes as a name."""
    text(name, value)
    try:
        named = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        named = False
    if not named:
        raise SettingError(f"{name} is {shown(value)}: it has a character that no name of a file can have.")
    return str(value)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingError(f"{name} must be true or false, not {shown(value)}.")
    return value


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{name} must be a mapping of settings, not {shown(value)}.")
    return value


def allowed(check: Check) -> str:
    """The values that a check lets pass, in words for the reference; empty where its help has to say it.

    >>> allowed(one_of("end", "start")), allowed(optional(integer(1))), allowed(real(0, 1)), allowed(text)
    ('`end`, `start`', '1 or more', '0 to 1', '')
    """
    return ALLOWED.get(check, "")


ALLOWED: dict[Check, str] = {}


def optional(check: Check) -> Check:
    def either(name: str, value: Any) -> Any:
        return None if value is None else check(name, value)

    ALLOWED[either] = allowed(check)
    return either


def one_of(*choices: str) -> Check:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise SettingError(f"{name} is {shown(value)}.{nearest(value, choices)}")
        return str(value)

    ALLOWED[check] = ", ".join(f"`{choice}`" for choice in choices)
    return check


def integer(low: int | None = None, high: int | None = None) -> Check:
    """A whole number of 64 bits, in [low, high]."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise SettingError(f"{name} must be a whole number, not {shown(value)}.")
        if value.bit_length() > 63:
            raise SettingError(f"{name} must be a whole number of 64 bits, not {shown(value)}.")
        return _in_range(name, value, low, high)

    ALLOWED[check] = _range_in_words(low, high)
    return check


def real(low: float | None = None, high: float | None = None, *, above: float | None = None) -> Check:
    """A finite number in [low, high]; `above` makes the lower bound strict."""

    def check(name: str, value: Any) -> float:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
            value = float(value)  # YAML takes 1e-06 for a text
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LARGEST <= value <= LARGEST:
            raise SettingError(f"{name} must be a finite number, not {shown(value)}.")
        if above is not None and value <= above:
            raise SettingError(f"{name} must be greater than {above}, not {shown(value)}.")
        return float(_in_range(name, value, low, high))

    ALLOWED[check] = f"above {above:g}" if above is not None else _range_in_words(low, high)
    return check


def _range_in_words(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"{low:.12g} to {high:.12g}"
    return f"{low:.12g} or more" if low is not None else f"at most {high:.12g}" if high is not None else ""


def exact(above: int | None = None, low: int | None = None) -> Check:
    """An exact number from its decimal string or an integer: money never comes from a float."""

    def check(name: str, value: Any) -> Fraction:
        if isinstance(value, bool) or not isinstance(value, (int, str, Fraction)):
            raise SettingError(f'{name} must be a quoted decimal such as "2" or "0.05", not {shown(value)}.')
        try:
            number = fraction(value)
        except (ValueError, ZeroDivisionError):
            raise SettingError(f"{name} must be a decimal number, not {shown(value)}.") from None
        if number and not 1 / TOO_LARGE < abs(number) < TOO_LARGE:
            raise SettingError(f"{name} must be 0 or between 1e-18 and 1e18 in size, not {shown(value)}.")
        if low is not None and number < low:
            raise SettingError(f"{name} must be at least {low}, not {shown(value)}.")
        if above is not None and number <= above:
            raise SettingError(f"{name} must be greater than {above}, not {shown(value)}.")
        return number

    return check


def fraction(value: Fraction | int | str) -> Fraction:
    """The exact number, unless writing it out would take forever: 1e99999999 has a hundred million digits."""
    if isinstance(value, str) and (len(value) > 1000 or re.search(r"e[+-]?\d{4}|_", value, re.IGNORECASE)):
        raise ValueError("it is too long, or has an underscore that hides how long it is")
    return Fraction(value)


def _in_range(name: str, value: Any, low: Any, high: Any) -> Any:
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = (
            f"between {low} and {high}"
            if None not in (low, high)
            else f"at least {low}"
            if high is None
            else f"at most {high}"
        )
        raise SettingError(f"{name} must be {bounds}, not {shown(value)}.")
    return value
