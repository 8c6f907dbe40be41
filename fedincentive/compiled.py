"""What the compiled module has beside the kernels: quicker ways to do what Python does too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def compiled(name: str) -> Callable[..., Any] | None:
    """A function of the compiled module; None in a source tree or an interpreter that cannot load it."""
    if not in_main_interpreter():  # where it would never come back
        return None
    try:
        from fedincentive import _native
    except ImportError:
        return None
    return getattr(_native, name, None)


@cache
def in_main_interpreter() -> bool:
    """Compiled modules such as NumPy's and ours are made for one interpreter in a process."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # Python 3.13, and those before
        try:
            module = import_module(name)
        except ImportError:
            continue
        return bool(module.get_current() == module.get_main())
    return True
