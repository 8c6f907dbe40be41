"""What the compiled module has beside the kernels: quicker ways to do what Python does too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def compiled(name: str) -> Callable[..., Any] | None:
    """A function of the compiled module; None in a source tree or an interpreter that cannot load it."""
    try:
        from fedincentive import _native
    except ImportError:
        return None
    return getattr(_native, name, None)
