"""What else happens to a process while kernels run: Ctrl-C, a fork, a subinterpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from fedincentive.aggregation import StoredUpdates, median, native, rule, store, trimmed_mean

WAIT = 0.3  # a call must be well under way
LATEST = 60.0


def interrupted(call) -> float:
    """Seconds between Ctrl-C and its answer; the call would take far longer."""
    sent: list[float] = []

    def press() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs deaf to it
    timer = threading.Timer(WAIT, press)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            while not sent or time.perf_counter() - sent[0] < LATEST:
                call()
        return time.perf_counter() - sent[0]
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["mean", "trimmed-mean", "median", "krum", "geometric-median", "norm-clipping", "mda"])
def test_control_c_is_answered_at_once(name):
    """One array of 8 MB stands for all 400 clients, so that a call takes seconds and little memory."""
    values = np.random.default_rng(0).standard_normal(2**21).astype(np.float32)
    x = [values[i : i - 400] for i in range(400)]
    options = {"trim": 40} if name == "trimmed-mean" else {"f": 3}
    assert interrupted(lambda: rule(name).use(x, **options, clip=1.0, threads=2)) < 1.0  # 0.2 on a quiet machine


def test_control_c_while_files_are_read(tmp_path):
    values = np.random.default_rng(0).standard_normal(2**19).astype(np.float32)
    paths = [store(tmp_path / f"{i}.safetensors", {"w": values[i : i - 40]}) for i in range(40)]
    assert interrupted(lambda: trimmed_mean(StoredUpdates(paths, memory=2**21), 4)) < 1.0


def test_a_fork_while_another_thread_plans():
    """The child has the kernels' state but not the thread that was changing it."""
    x = [np.float32([i]) for i in range(400)]
    stop = threading.Event()

    def plan() -> None:
        while not stop.is_set():
            for k in range(120, 140):
                native.load().plan(400, k)

    thread = threading.Thread(target=plan)
    thread.start()
    try:
        for _ in range(15):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0 if median(x, threads=2).tolist() == [199.5] else 1)
            assert os.waitpid(child, 0)[1] == 0, "the child did not come back"
    finally:
        stop.set()
        thread.join()


def test_subinterpreters_are_refused_in_words(tmp_path):
    inside = (
        "import sys, warnings; sys.path[:0] = {path!r}; warnings.simplefilter('ignore')\n"
        "from fedincentive.aggregation import native\n"
        "try: native.load()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    program = (
        "import sys, warnings\n"
        "import fedincentive.aggregation\n"
        "try: import _interpreters as sub\n"
        "except ImportError: import _xxsubinterpreters as sub\n"
        f"code = {inside!r}.format(path=sys.path)\n"
        "one = sub.create()\n"
        "(getattr(sub, 'run_string', None) or sub.exec)(one, code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "cannot be used in a subinterpreter" in done.stdout or "ImportError" in done.stderr, (
        done.stdout,
        done.stderr,
    )


def test_what_is_quicker_compiled_is_left_to_python_in_a_subinterpreter():
    """To import the module there first never came back."""
    program = (
        "try: import _interpreters as sub\n"
        "except ImportError: import _xxsubinterpreters as sub\n"
        "import sys\n"
        "code = f'import sys; sys.path[:0] = {sys.path!r}\\n'\n"
        "code += 'from fedincentive.compiled import compiled; print(compiled(\"canonical\"), flush=True)'\n"
        "(getattr(sub, 'run_string', None) or sub.exec)(sub.create(), code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["None"], (done.stdout, done.stderr)
