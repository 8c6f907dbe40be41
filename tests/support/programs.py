"""Programs as users run them: real processes, their output, and the commands that a README tells people to type."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # this environment's programs come first


def run(
    *argv: object,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    ok: bool = True,
    together: bool = False,
    timeout: float = 500,
) -> subprocess.CompletedProcess[str]:
    """A program that ends; where it does not end as it should, its output is shown. `together` as in a terminal."""
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        text=True,
        timeout=timeout,
    )
    shown = f"{done.stdout[-6000:]}{(done.stderr or '')[-4000:]}"
    assert (done.returncode == 0) == ok, f"{argv[-1]}\nended with {done.returncode}:\n{shown}"
    return done


def shell(script: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Commands as a user types them; the first that fails ends them."""
    return run("bash", "-euo", "pipefail", "-c", script, **options)  # type: ignore[arg-type]


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a README in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def text_of(log: Path) -> str:
    """What a running program has written so far."""
    return log.read_text(errors="replace") if log.exists() else ""


def waited(true: Callable[[], bool], timeout: float) -> bool:
    """Whether it became true in time."""
    end = time.monotonic() + timeout
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def wait_for_words(log: Path, words: str, timeout: float, ended: Callable[[], bool] = lambda: False) -> None:
    """Until the log of a running program holds these words; one that ended without them fails at once."""
    waited(lambda: words in text_of(log) or ended(), timeout)
    found = text_of(log)
    assert words in found, f"{log.name} does not say {words!r} within {timeout:g} s:\n{found[-4000:]}"
