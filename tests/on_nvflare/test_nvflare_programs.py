"""NVFlare's simulator and POC as its users start them: the README's commands, parity, and processes that are killed."""

from __future__ import annotations

import json
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
from gains import contribute_rounds, gains
from keyring import folder_of
from ports import free_port
from programs import PATH, blocks, run, shell, text_of, waited

from fedincentive import ledger
from fedincentive.ledger.verify import verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"
HERE = Path(__file__).parent
PATIENCE = 1500.0  # seconds for a job: beside thirty other programs on two cores, importing torch alone takes minutes
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * PATIENCE)]  # minutes: `make test-nvflare-programs`


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

    def run(self, *argv: object) -> str:
        return run(sys.executable, *argv, cwd=self.home, env=self.env, together=True, timeout=PATIENCE).stdout

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
        return "".join(text_of(path) for path in sorted(self.poc.glob("*/prod_00/server/**/log.txt")))


@pytest.fixture
def nvflare(tmp_path: Path) -> Iterator[Nvflare]:
    nvflare = Nvflare(tmp_path)
    yield nvflare
    nvflare.kill("sub_start.sh")  # they would start the others again
    nvflare.kill("")
    assert waited(lambda: nvflare.processes() == [], 60)


def test_digits_train_to_the_same_contributions_payments_and_model(nvflare) -> None:
    """In a process of its own, with torch tensors and differences: the longest way a model can take."""
    nvflare.run(HERE / "digits_job.py", HERE / "digits_client.py")
    found = data_parity.found_in(next(nvflare.home.rglob("ledger.sqlite")).parent)
    assert found == data_parity.EXPECTED["t-upbred"]


@pytest.mark.parametrize("how", ["exact", "cgsv"])
def test_a_job_measures_what_updates_are_worth(nvflare, how) -> None:
    """In NVFlare's simulator; the exact values of a round sum to what the round gained by the server's validator."""
    nvflare.run(HERE / "digits_job.py", HERE / "digits_client.py", how)
    with ledger.open(next(nvflare.home.rglob("ledger.sqlite"))) as book:
        assert verify(book, recompute=True).findings == ()
        memos = [record.entry.inputs for record in book.entries(data_parity.RUN) if record.entry.kind == "worth"]
    assert [memo["step"] for memo in memos] == [0, 1, 2] and all(len(memo["values"]) == 3 for memo in memos)
    if how == "exact":
        tests = [data_parity.data(index)[2:] for index in range(3)]
        first = data_parity.first_model()["prototypes"]
        begun = sum(data_parity.loss(first, x, y) for x, y in tests) / 3
        gained = sum(sum(map(float, memo["values"].values())) for memo in memos)
        assert 0.0 < gained < begun


@pytest.mark.parametrize("mechanism", data_parity.OWN_MODELS)
def test_each_site_is_sent_a_model_of_its_own(nvflare, mechanism, tmp_path) -> None:
    """In NVFlare's simulator, in tasks that stand side by side: the engine's ledger and model."""
    nvflare.run(HERE / "digits_job.py", HERE / "digits_client.py", f"own:{mechanism}")
    found = data_parity.found_in(next(nvflare.home.rglob("ledger.sqlite")).parent)
    assert found == data_parity.own_models_in_engine(mechanism, tmp_path)


def test_the_readmes_simulator_runs(nvflare) -> None:
    shutil.copytree(EXAMPLE, nvflare.home / "app", ignore=shutil.ignore_patterns("workspace", "__pycache__"))
    simulator, _, _ = blocks((EXAMPLE / "README.md").read_text(), "sh")
    said = shell(simulator, cwd=nvflare.home / "app", env=nvflare.env, together=True, timeout=PATIENCE).stdout
    assert "Run digits (2p-upbred) ended: complete" in said and "Ledger: " in said and "clean" in said.lower()
    run = next((nvflare.home / "app").rglob("ledger.sqlite")).parent
    assert min(gains(run, cost=0.005).values()) > 0.0 and contribute_rounds(run) == 2
    assert "Before the first round of digits" in said


def test_a_robust_rule_reads_the_offload_files_of_a_real_job(nvflare) -> None:
    shutil.copytree(EXAMPLE, nvflare.home / "app", ignore=shutil.ignore_patterns("workspace", "__pycache__"))
    _, _, robust = blocks((EXAMPLE / "README.md").read_text(), "sh")
    shell(robust, cwd=nvflare.home / "app", env=nvflare.env, together=True, timeout=PATIENCE)
    (log,) = nvflare.poc.rglob("transfer/**/log.txt")
    assert log.read_text().count("Aggregated 3 sites by trimmed-mean, from their offload files") == 2


def game_job(nvflare: Nvflare, *argv: object) -> subprocess.Popen[bytes]:
    """The parity game in a POC, whose processes stay; its output goes to job.log."""
    (nvflare.home / "game.yaml").write_text(yaml.safe_dump({"game": parity.GAME}))
    with open(nvflare.home / "job.log", "ab") as out:
        command = [sys.executable, str(HERE / "poc_job.py"), *map(str, argv)]
        return subprocess.Popen(command, cwd=nvflare.home, env=nvflare.env, stdout=out, stderr=out)


def ended(nvflare: Nvflare, process: subprocess.Popen[bytes]) -> None:
    assert waited(lambda: process.poll() is not None, PATIENCE), text_of(nvflare.home / "job.log")[-3000:]
    assert process.returncode == 0, text_of(nvflare.home / "job.log")[-3000:]


def test_the_parity_game_in_a_poc_has_the_ledger_of_the_core(nvflare) -> None:
    ended(nvflare, game_job(nvflare, "start", parity.ROUNDS))
    (found,) = nvflare.poc.rglob("transfer/**/ledger.sqlite")  # downloaded with the job's results
    assert parity.head_of(found) == parity.in_engine("2p-upbred", nvflare.home)
    assert (found.parent / "report.html").exists()
    (lines,) = nvflare.poc.rglob("transfer/**/metrics.jsonl")
    metrics = {name for name, _, _ in map(json.loads, lines.read_text().splitlines())}
    assert {"incentive/welfare", "incentive/s/clinic", "incentive/payment/clinic"} <= metrics


def test_a_site_and_the_server_are_killed_in_a_poc_and_the_run_goes_on(nvflare) -> None:
    kept = nvflare.home / "kept"
    options = (12, "output", kept, "round_timeout", 60.0, "quorum", 0.6)
    first = game_job(nvflare, "start", *options)

    def says(words: str, times: int = 1) -> None:
        def enough() -> bool:
            return nvflare.server_log().count(words) >= times

        assert waited(lambda: enough() or first.poll() is not None, PATIENCE)
        assert enough(), text_of(nvflare.home / "job.log")[-3000:]

    says("(train)", times=2)
    nvflare.kill("prod_00/clinic ")
    says("absent clinic")
    first.kill()
    nvflare.kill("prod_00/server ")
    ended(nvflare, game_job(nvflare, "again", *options, "resume", True))
    with ledger.read(kept / parity.RUN / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        clinic = [entry.inputs["delivered"]["clinic"] for entry in book.entries() if "delivered" in entry.inputs]
    assert len(clinic) == 12 and clinic[0] > 0 and 0 in clinic and clinic[-1] > 0  # away, and back in the new job


def test_the_readmes_poc_runs(nvflare) -> None:
    shutil.copytree(EXAMPLE, nvflare.home / "app", ignore=shutil.ignore_patterns("workspace", "__pycache__"))
    _, poc, _ = blocks((EXAMPLE / "README.md").read_text(), "sh")
    said = shell(poc, cwd=nvflare.home / "app", env=nvflare.env, together=True, timeout=PATIENCE).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("Results: ")]
    assert list(Path(line.removeprefix("Results: ")).rglob("ledger.sqlite"))


def test_a_hostile_site_is_refused_in_a_poc(nvflare) -> None:
    """Clinic speaks for hospital: its reports are refused, hospital does not answer it, and the others play on."""
    ended(nvflare, game_job(nvflare, "hostile", 2, "quorum", 0.6, "round_limit", 3))
    (found,) = nvflare.poc.rglob("transfer/**/ledger.sqlite")
    with ledger.read(found) as book:
        assert verify(book, recompute=True).clean
        delivered = [entry.inputs["delivered"] for entry in book.entries() if "delivered" in entry.inputs]
    assert [(one["clinic"], one["hospital"] > 0) for one in delivered] == [(0, True)] * 2
    said = "".join(path.read_text() for path in nvflare.poc.rglob("log.txt"))
    assert "Site 'clinic' sends a report in the name of 'hospital'" in said
    assert "hospital answered ERROR" in said


def test_a_site_that_trains_on_half_of_its_points_is_caught_in_a_poc(nvflare) -> None:
    """South says it trained on all it has; three auditors, at sites of their own, make its update again."""
    keys = folder_of(nvflare.home / "keys", ("north", "south", "ann", "bea", "cleo"))
    nvflare.run(HERE / "audited_job.py", keys, nvflare.home / "kept", HERE / "audited_client.py")
    with ledger.read(nvflare.home / "kept" / "liar" / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        entries = {entry.kind: entry for entry in book.entries("liar")}
        balances = book.balances("liar")
    assert entries["audit-0"].inputs["failed"] == ["south"]
    forfeit = entries["deposit"].inputs["deposits"]["south"]
    owed = 3 * 40 * 10**6 + forfeit  # for the points it did not deliver, and its deposit
    assert forfeit > 0 and balances == {"escrow": 0, "north": owed, "south": -owed}


def test_a_provisioned_project_has_the_ledger_of_the_core(nvflare) -> None:
    """The same recipe, sent with an admin's startup kit; the agents are the sites that the project certified."""
    sites = [agent["name"] for agent in parity.GAME["agents"]]
    server = {"name": "server", "type": "server", "org": "north", "default_host": "localhost"}
    admin = {"name": "admin@north.example", "type": "admin", "org": "north", "role": "project_admin"}
    project = {
        "api_version": 3,
        "name": "trial",
        "participants": [
            {**server, "fed_learn_port": free_port()},
            admin,
            *({"name": name, "type": "client", "org": name} for name in sites),
        ],
        "builders": [
            {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder"},
            {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
        ],
    }
    (nvflare.home / "project.yml").write_text(yaml.safe_dump(project))
    (nvflare.home / "game.yaml").write_text(yaml.safe_dump({"game": parity.GAME}))
    options = {"cwd": nvflare.home, "env": nvflare.env, "together": True}
    shell(f"nvflare provision -p project.yml -w {nvflare.poc}", **options)
    kits = nvflare.poc / "trial" / "prod_00"
    for name in ("server", *sites):
        shell(f"{kits / name / 'startup' / 'start.sh'} > {name}.log 2>&1 < /dev/null", **options)
    said = nvflare.run(HERE / "prod_job.py", kits / admin["name"], parity.ROUNDS)
    (line,) = [line for line in said.splitlines() if line.startswith("Results: ")]
    (found,) = Path(line.removeprefix("Results: ")).rglob("ledger.sqlite")
    assert parity.head_of(found) == parity.in_engine("2p-upbred", nvflare.home)
