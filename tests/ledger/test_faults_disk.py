"""A disk that is full or fails: the error is reported and explained, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from missing import missing

from fedincentive import ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.verify import verify


def limit_file_size() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def test_a_full_disk_refuses_the_entry_and_keeps_the_rest(tmp_path, writer):
    """No file may grow beyond 300 kB: the write fails in the middle of an entry."""
    path = tmp_path / "ledger.db"
    process = writer.start(path, "run", 0, 100_000, preexec_fn=limit_file_size)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 3, output.decode()
    acks = writer.acknowledged(output)
    assert acks
    assert b"append" in output.splitlines()[-1]
    writer.check(path, {"run": acks})
    acks += writer.append(path, "run", len(acks), len(acks) + 5)
    writer.check(path, {"run": acks})


def test_a_full_file_system_refuses_the_entry_and_goes_on_when_there_is_space(tmp_path, writer):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs; the file-size limit above tests the same without it")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        missing(f"cannot mount a tmpfs here: {mounted.stderr.decode()}")
    try:
        path = place / "ledger.db"
        acks = []
        with ledger.open(path) as book:
            with pytest.raises(LedgerError, match=r"full.*free some space and append again"):
                for round in range(10**5):
                    receipt = book.append(writer.entry("run", round))
                    acks.append((round, receipt.seq, receipt.hash))
            assert acks
            assert verify(book).clean
            subprocess.run(["mount", "-o", "remount,size=4m", str(place)], check=True)
            for round in range(len(acks), len(acks) + 5):
                receipt = book.append(writer.entry("run", round))
                acks.append((round, receipt.seq, receipt.hash))
        writer.check(path, {"run": acks})
    finally:
        subprocess.run(["umount", str(place)], check=True)


SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Fails the FAIL_AT-th call of FAIL_CALL with FAIL_ERRNO, and FAIL_COUNT - 1 calls after it. */
static int failing(const char *call) {
    static int seen = 0;
    const char *name = getenv("FAIL_CALL");
    if (!name || strcmp(name, call)) return 0;
    int at = atoi(getenv("FAIL_AT")), count = atoi(getenv("FAIL_COUNT"));
    seen++;
    if (seen < at || seen >= at + count) return 0;
    errno = atoi(getenv("FAIL_ERRNO"));
    return 1;
}

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    ssize_t (*next)(int, const void *, size_t, off_t) = real("pwrite64");
    if (failing("short")) { next(fd, data, size / 2, offset); return -1; }  /* half of it reached the disk */
    if (failing("pwrite")) return -1;
    return next(fd, data, size, offset);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }
int fsync(int fd) { return failing("fsync") ? -1 : ((int (*)(int))real("fsync"))(fd); }
int fdatasync(int fd) { return failing("fsync") ? -1 : ((int (*)(int))real("fdatasync"))(fd); }
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        missing("a C compiler on Linux is needed to make disks fail; `make system-deps` installs one")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", "shim.so", "shim.c", "-ldl"], cwd=folder, check=True)
    return folder / "shim.so"


# (call, errno, how many times); 5 is EIO, 28 ENOSPC. The 4th to 40th call spread over opening and many appends.
FAULTS = [
    ("fsync", 5, 1),
    ("fsync", 5, 1000),
    ("pwrite", 5, 1),
    ("pwrite", 28, 1),
    ("short", 5, 1),
    ("short", 28, 1000),
]


@pytest.mark.parametrize(("call", "errno", "count"), FAULTS)
def test_io_errors_are_reported_and_lose_nothing(tmp_path, writer, shim, call, errno, count):
    processes = {}
    for at in (1, 2, 3, 5, 8, 13, 34):
        fault = {"FAIL_CALL": call, "FAIL_ERRNO": str(errno), "FAIL_AT": str(at), "FAIL_COUNT": str(count)}
        environment = {**os.environ, **fault, "LD_PRELOAD": str(shim)}
        processes[tmp_path / f"{at}.db"] = writer.start(tmp_path / f"{at}.db", "run", 0, 20, env=environment)
    failed = 0
    for path, process in processes.items():
        output, errors = process.communicate(timeout=120)
        acks = writer.acknowledged(output)
        # every failure is ours and explained, while appending (3) or while opening (1, with our error named)
        assert process.returncode in (0, 3) or b"LedgerError" in errors.splitlines()[-1], errors.decode()
        assert process.returncode == 0 or len(acks) < 20
        failed += process.returncode != 0
        writer.check(path, {"run": acks})
        with ledger.open(path) as book:
            again = [book.append(writer.entry("run", round)) for round in range(20)]
        writer.check(path, {"run": [(round, receipt.seq, receipt.hash) for round, receipt in enumerate(again)]})
    assert failed >= 3


def test_after_an_io_error_the_book_must_be_opened_again(tmp_path, writer, shim):
    """After a failed fsync the system may have dropped what it had: only a fresh start reads what is on the disk."""
    script = tmp_path / "again.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(writer.program.parent)!r})\n"
        "from writer import LedgerError, entry, ledger\n"
        "book = ledger.open(sys.argv[1])\n"
        "for attempt in range(2):\n"
        "    try:\n"
        "        for round in range(20):\n"
        "            book.append(entry('run', round))\n"
        "    except LedgerError as error:\n"
        "        print(error)\n"
        "book.close()\n"
        "book = ledger.open(sys.argv[1])\n"
        "print([book.append(entry('run', round)).seq for round in range(20)] == list(range(1, 21)))\n"
    )
    fault = {"FAIL_CALL": "fsync", "FAIL_ERRNO": "5", "FAIL_AT": "9", "FAIL_COUNT": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "a.db")],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **fault, "LD_PRELOAD": str(shim)}, check=True,
    )  # fmt: skip
    failure, refusal, repeated = done.stdout.splitlines()
    assert "never written twice" in failure
    assert "failed before" in refusal
    assert repeated == "True"
