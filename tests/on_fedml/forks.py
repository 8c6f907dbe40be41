"""Starts FedML programs quickly: FedML is imported once, here, and every program runs in a fork of this process.

A job is one JSON line on a connection to the Unix socket in argv[1]: a program's argv, folder, environment and log.
The answer is the process id, and later, on the same connection, its exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback


def main(path: str) -> None:
    import fedml  # noqa: F401
    import sklearn.datasets  # noqa: F401

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    waiting: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    print("ready", flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    start(listener, waiting)
                else:
                    os.read(woken, 4096)
                    tell_who_ended(waiting)


def start(listener: socket.socket, waiting: dict[int, socket.socket]) -> None:
    connection, _ = listener.accept()
    job = json.loads(connection.makefile("rb").readline())
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        run(job)
    waiting[pid] = connection
    connection.sendall(f"{pid}\n".encode())


def tell_who_ended(waiting: dict[int, socket.socket]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with contextlib.suppress(OSError), waiting.pop(pid) as connection:  # a killed program may have no listener left
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def run(job: dict) -> None:
    """Become the program: as `python argv[0] argv[1:]` in its folder, with its output in its log."""
    status = 1
    try:
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(job["cwd"])
        os.environ.update(job["env"])
        sys.argv = job["argv"]
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1])
