"""Loaded by fedincentive.pth at every interpreter start: when a program imports FedML, the plugin joins it.

It costs next to nothing (no import beyond sys and os, both loaded already), never imports FedML itself, and never
breaks the program: an error of its own becomes one line on stderr. FEDINCENTIVE_FEDML=0 turns it off.
"""

import os
import sys

WAITS_FOR = "fedml.runner"  # imported by every FedML program, before any of the user's objects exist


class Finder:
    """A meta-path finder that finds nothing; it only notices the import of `fedml.runner`, once."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != WAITS_FOR:
            return None
        sys.meta_path.remove(cls)
        try:
            return spec_with_activation(name, path, target)
        except Exception as error:
            complain(error)
            return None


def spec_with_activation(name, path, target):
    for finder in sys.meta_path:
        spec = getattr(finder, "find_spec", lambda *_: None)(name, path, target)
        if spec is not None:
            break
    else:
        return None
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        activate()

    spec.loader.exec_module = exec_module
    return spec


def activate():
    try:
        from fedincentive.plugins.fedml import activate as join

        join()
    except Exception as error:
        complain(error)


def complain(error):
    sys.stderr.write(f"fedincentive: the FedML plugin is not active ({type(error).__name__}: {error}).\n")


def wait():
    """Install the finder, unless it is turned off, waits already, or FedML is imported already."""
    off = os.environ.get("FEDINCENTIVE_FEDML", "").strip().lower() in ("0", "off", "false", "no")
    if not off and Finder not in sys.meta_path and WAITS_FOR not in sys.modules:
        sys.meta_path.insert(0, Finder)


wait()
