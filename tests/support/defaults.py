"""Defaults as the tables of host settings write them."""

from __future__ import annotations


def written(value: object) -> object:
    """
    >>> written(False), written(300.0), written(None), written("gradient")
    ('false', '300', 'none', 'gradient')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, (int, float)) else value or "none"
