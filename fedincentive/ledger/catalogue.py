"""What a store is made of, compared with what the schema file makes: name -> definition of every object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def gathered(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """By name; what a tamperer gave one name twice stands there twice."""
    found: dict[str, str] = {}
    for name, definition in sorted(rows):
        found[name] = f"{found[name]} and {definition}" if name in found else definition
    return found


def differences(found: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(found.keys() - expected.keys()):
        yield f"{name} was added: {found[name]!r}."
    for name, definition in expected.items():
        if name not in found:
            yield f"{name} is missing: it was dropped."
        elif found[name] != definition:
            yield f"{name} is not as it was made: {found[name]!r}."
