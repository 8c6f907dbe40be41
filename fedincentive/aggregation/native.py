"""Loads the compiled kernels, or says why not, and decides instruction set and thread count."""

from __future__ import annotations

import operator
import os
from functools import cache
from types import ModuleType
from typing import Any

from ..compiled import in_main_interpreter
from ..errors import NativeUnavailable, SettingError
from . import cuda

ISA_VARIABLE = "FEDINCENTIVE_ISA"
THREADS_VARIABLE = "FEDINCENTIVE_THREADS"
MOST_THREADS = 4096


def load() -> ModuleType:
    """The extension module, or NativeUnavailable with the reason and the remedy."""
    if not in_main_interpreter():
        raise NativeUnavailable(
            "The compiled kernels of fedincentive cannot be used in a subinterpreter: aggregate in the main one, or in "
            "another process."
        )
    try:
        from fedincentive import _native
    except ImportError as error:
        raise NativeUnavailable(
            f"The compiled kernels of fedincentive could not be loaded ({error}). Install the package with "
            "`pip install .` (or `pip install -e .`) instead of importing it from a source tree."
        ) from error
    return _native


@cache
def isas(module: ModuleType) -> tuple[list[str], list[str]]:
    """The instruction sets this CPU has, and those of the build; they stay the same."""
    return module.supported_isas(), module.compiled_isas()


def isa() -> str:
    """The strongest instruction set of this CPU, or the one FEDINCENTIVE_ISA caps it to.

    >>> isa() in load().supported_isas()
    True
    """
    supported, compiled = isas(load())
    cap = os.environ.get(ISA_VARIABLE)
    if not cap:
        return supported[-1]
    if cap not in compiled:
        raise SettingError(f"{ISA_VARIABLE}={cap!r} is not an instruction set of this build; choose one of {compiled}.")
    allowed = compiled[: compiled.index(cap) + 1]
    return [name for name in supported if name in allowed][-1]


def thread_count(threads: int | None = None) -> int:
    """The argument, else FEDINCENTIVE_THREADS, else the cores this process may use.

    >>> thread_count(3)
    3
    """
    source, value = "threads", threads
    if value is None and os.environ.get(THREADS_VARIABLE):
        source, text = THREADS_VARIABLE, os.environ[THREADS_VARIABLE]
        value = int(text) if text.isdecimal() else -1
        if not 1 <= value <= MOST_THREADS:
            raise SettingError(f"{source}={text!r} must be a whole number from 1 to {MOST_THREADS}.")
    if value is None:
        return available_cores()
    try:
        count = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = -1
    if not 1 <= count <= MOST_THREADS:
        raise SettingError(f"{source}={value!r} must be a whole number from 1 to {MOST_THREADS}.")
    return count


def available_cores() -> int:
    """Cores this process may run on: a container or taskset may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def info() -> dict[str, Any]:
    """What `fedincentive doctor` shows of the kernels.

    >>> sorted(info())
    ['compiled', 'cuda', 'isa', 'supported', 'threads']
    """
    module = load()
    return {
        "isa": isa(),
        "supported": module.supported_isas(),
        "compiled": module.compiled_isas(),
        "threads": thread_count(),
        "cuda": cuda.info()["built"],
    }
