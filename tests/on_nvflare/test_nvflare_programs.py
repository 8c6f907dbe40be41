"""NVFlare's simulator and POC as its users start them: the README's commands, parity, and processes that are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import data_parity
import parity
import pytest
import yaml
from programs import PATH, blocks, run, shell, text_of, waited

from fedincentive import ledger
from fedincentive.ledger.verify import verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"
HERE = Path(__file__).parent
pytestmark = pytest.mark.slow  # minutes: `make test-nvflare-programs`


class Nvflare:
    """NVFlare's programs in a home of their own. What they leave behind is found by that home, and ended by id."""

    def __init__(self, home: Path) -> None:
        self.home, self.poc = home, home / "poc"
        support = os.pathsep.join([str(HERE.parent / "support"), str(HERE)])
        self.env = {
            **os.environ,
            "HOME": str(home),
            "PATH": PATH,
            "NVFLARE_POC_WORKSPACE": str(self.poc),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": support,
        }

    def run(self, *argv: object, timeout: float = 300) -> str:
        return run(sys.executable, *argv, cwd=self.home, env=self.env, together=True, timeout=timeout).stdout

    def processes(self, words: str = "") -> list[int]:
        """The processes of this home whose command has these words, our own children apart."""
        mark, found = f"NVFLARE_POC_WORKSPACE={self.poc}".encode(), []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found += [int(folder.name)] if words in command else []
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]

    def kill(self, words: str) -> None:
        for pid in self.processes(words):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def server_log(self) -> str:
        return "".join(text_of(path) for path in sorted(self.poc.rglob("log.txt")) if "/server/" in str(path))


@pytest.fixture
def nvflare(tmp_path: Path) -> Iterator[Nvflare]:
    nvflare = Nvflare(tmp_path)
    yield nvflare
    nvflare.kill("sub_start.sh")  # they would start the others again
    nvflare.kill("")
    assert waited(lambda: nvflare.processes() == [], 10)


def test_digits_train_to_the_same_contributions_payments_and_model(nvflare) -> None:
    """In a process of its own, with torch tensors and differences: the longest way a model can take."""
    nvflare.run(HERE / "digits_job.py", HERE / "digits_client.py")
    found = data_parity.found_in(next(nvflare.home.rglob("ledger.sqlite")).parent)
    assert found == data_parity.EXPECTED["t-upbred"]


def test_the_readmes_simulator_and_robust_rule_run(nvflare) -> None:
    shutil.copytree(EXAMPLE, nvflare.home / "app", ignore=shutil.ignore_patterns("workspace", "__pycache__"))
    simulator, _, robust = blocks((EXAMPLE / "README.md").read_text(), "sh")
    said = shell(simulator, cwd=nvflare.home / "app", env=nvflare.env, together=True, timeout=300).stdout
    assert "Run digits (2p-upbred) ended: complete" in said and "Ledger: " in said and "clean" in said.lower()
    said = shell(robust, cwd=nvflare.home / "app", env=nvflare.env, together=True, timeout=300).stdout
    assert said.count("Aggregated 3 sites by trimmed-mean") == 2


def game_job(nvflare: Nvflare, *argv: object) -> subprocess.Popen[bytes]:
    """The parity game in a POC, whose processes stay; its output goes to job.log."""
    (nvflare.home / "game.yaml").write_text(yaml.safe_dump({"game": parity.GAME}))
    with open(nvflare.home / "job.log", "ab") as out:
        command = [sys.executable, str(HERE / "poc_job.py"), *map(str, argv)]
        return subprocess.Popen(command, cwd=nvflare.home, env=nvflare.env, stdout=out, stderr=out)


def ended(nvflare: Nvflare, process: subprocess.Popen[bytes], timeout: float) -> None:
    assert waited(lambda: process.poll() is not None, timeout), text_of(nvflare.home / "job.log")[-3000:]
    assert process.returncode == 0, text_of(nvflare.home / "job.log")[-3000:]


def test_the_parity_game_in_a_poc_has_the_ledger_of_the_core(nvflare) -> None:
    ended(nvflare, game_job(nvflare, "start", parity.ROUNDS), 300)
    (found,) = nvflare.poc.rglob("transfer/**/ledger.sqlite")  # downloaded with the job's results
    assert parity.head_of(found) == parity.in_engine("2p-upbred", nvflare.home)
    assert (found.parent / "report.html").exists()


def test_a_site_and_the_server_are_killed_in_a_poc_and_the_run_goes_on(nvflare) -> None:
    kept = nvflare.home / "kept"
    options = (12, "output", kept, "round_timeout", 20.0, "quorum", 0.6)
    first = game_job(nvflare, "start", *options)

    def says(words: str) -> None:
        assert waited(lambda: words in nvflare.server_log() or first.poll() is not None, 300)
        assert words in nvflare.server_log(), text_of(nvflare.home / "job.log")[-3000:]

    says("Round 19 (train)")
    nvflare.kill("prod_00/clinic ")
    says("absent clinic")
    first.kill()
    nvflare.kill("prod_00/server ")
    ended(nvflare, game_job(nvflare, "again", *options, "resume", True), 400)
    with ledger.read(kept / parity.RUN / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        clinic = [entry.inputs["delivered"]["clinic"] for entry in book.entries() if "delivered" in entry.inputs]
    assert len(clinic) == 12 and clinic[0] > 0 and 0 in clinic and clinic[-1] > 0  # away, and back in the new job


def test_the_readmes_poc_runs(nvflare) -> None:
    shutil.copytree(EXAMPLE, nvflare.home / "app", ignore=shutil.ignore_patterns("workspace", "__pycache__"))
    _, poc, _ = blocks((EXAMPLE / "README.md").read_text(), "sh")
    said = shell(poc, cwd=nvflare.home / "app", env=nvflare.env, together=True, timeout=400).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("Ledger: ")]
    assert Path(line.removeprefix("Ledger: ")).exists()
