"""The example as a user runs it: every command of its README, in simulation and in deployment, and nodes that die."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
from pathlib import Path
from typing import Any

import data_parity
import pytest
import yaml
from gains import contribute_rounds, gains
from keyring import folder_of
from parity import GAME, INCENTIVE, MECHANISMS, ROUNDS, RUN, head_of, in_engine, ledger_of
from ports import free_port
from programs import blocks

from fedincentive import ledger
from fedincentive.ledger.verify import verify

README = (Path(__file__).parents[2] / "examples" / "flower" / "README.md").read_text()
SUPERLINK = "flower-superlink --insecure --host 127.0.0.1"
# A quiet machine needs less than five minutes for all; on one with fifteen processes a core a run took ten.
pytestmark = pytest.mark.timeout(3600)
FAST = "incentive.join-timeout=120.0"


def commands(section: str) -> list[str]:
    """The shell commands of one section of the README, or of what stands before the first."""
    parts = re.split(r"^## (.*)$", README, flags=re.M)
    text = dict(zip(["", *parts[1::2]], [parts[0], *parts[2::2]], strict=True))[section]
    return [line for block in blocks(text, "sh") for line in block.splitlines() if line.strip()]


def write_app(folder: Path, code: str, incentive: dict[str, Any]) -> Path:
    """A Flower app in one module, which has a `server` and a `client`."""
    package = folder / "parity"
    package.mkdir(parents=True)
    table = "\n".join(f"{key} = {json.dumps(value)}" for key, value in incentive.items())
    (folder / "pyproject.toml").write_text(
        textwrap.dedent("""
        [project]
        name = "parity"
        version = "1.0.0"
        description = "what every host must play alike"
        license = "Apache-2.0"
        dependencies = []
        [tool.flwr.app]
        publisher = "fedincentive"
        [tool.flwr.app.components]
        serverapp = "parity.app:server"
        clientapp = "parity.app:client"
        [tool.flwr.app.config]
        results = ""
        [tool.flwr.app.config.incentive]
        """)
        + table
        + "\n"
    )
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text(textwrap.dedent(code))
    return package


SERVER = """
import dataclasses
from pathlib import Path
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from fedincentive.plugins.flower import IncentiveStrategy

server = ServerApp()

@server.main()
def main(grid, context):
    for name in {names!r}:
        config = {{**context.run_config, "incentive.mechanism": name, "incentive.run": {run!r}}}
        config["incentive.output"] = str(Path(context.run_config["results"]) / name)
        first = ArrayRecord({{name: Array(array) for name, array in FIRST.items()}})
        IncentiveStrategy.from_context(dataclasses.replace(context, run_config=config)).start(grid, first)
"""


def parity_app(folder: Path, game_of: dict[str, Any], incentive: dict[str, Any], names: list[str], run: str) -> None:
    """A Flower app that plays one closed-form game under several mechanisms, one after another."""
    client = f"""
import yaml
from fedincentive import game
from fedincentive.plugins.flower import play
from fedincentive.plugins.flower.client import StrategicApp

GAME = game.read(yaml.safe_load({yaml.safe_dump({"game": game_of})!r}))
FIRST = {{"w": GAME.w0}}

class ByIndex(StrategicApp):
    def __call__(self, message, context):
        context.node_config.setdefault("agent", GAME.agents[int(context.node_config["partition-id"])])
        return super().__call__(message, context)

client = play(GAME)
client.__class__ = ByIndex
"""
    write_app(folder, client + SERVER.format(names=names, run=run), incentive)


TRAINING = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from fedincentive.plugins.flower import points, strategic
from parity import data_parity as task

FIRST = task.first_model()
ordinary = ClientApp()

def own(context):
    return task.data(int(context.node_config["partition-id"]))

@ordinary.train()
def train(message, context):
    x, y, _, _ = own(context)
    mine = np.sort(points(message, len(y)))
    np.random.seed(int(message.content["config"]["seed"]))
    new = task.trained(message.content["arrays"]["prototypes"].numpy(), x[mine], y[mine])
    arrays = ArrayRecord({"prototypes": Array(new)})
    metrics = MetricRecord({"num-examples": len(mine)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

@ordinary.evaluate()
def evaluate(message, context):
    _, _, x, y = own(context)
    loss = task.loss(message.content["arrays"]["prototypes"].numpy(), x, y)
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": len(y), "loss": loss})}), reply_to=message)

client = strategic(ordinary, size=lambda context: len(own(context)[1]), classes=task.CLASSES)
"""


# Simulation


@pytest.fixture(scope="module")
def simulation(flower: Any) -> Any:
    """Flower starts this SuperLink by itself, but gives it only 15 seconds, which a busy machine does not keep."""
    flower.superlink(f"{SUPERLINK} --port {flower.port} --simulation --isolation subprocess", flower.port, "simulation")
    return flower


def simulated(flower: Any, command: str) -> str:
    """Ray gives its own parts 15 seconds to start, which a busy machine does not keep either: then once more."""
    for _ in range(3):
        said = flower.run(command)
        if "agents enrolled" in said or "ref-exit-codes/700" not in said:
            break
    return said


def test_training_gives_the_engines_ledger_and_model(simulation: Any, tmp_path: Path) -> None:
    """Real data, in Flower's simulation: the same contributions, ledger and model as everywhere, bit for bit."""
    incentive = {
        **data_parity.INCENTIVE,
        "agents": data_parity.AGENTS,
        "seed": data_parity.SEED,
        "rounds": data_parity.ROUNDS,
    }
    code = TRAINING + SERVER.format(names=data_parity.MECHANISMS, run=data_parity.RUN)
    package = write_app(tmp_path / "app", code, incentive)
    shutil.copy(data_parity.__file__, package / "data_parity.py")
    command = f"flwr run {tmp_path / 'app'} local --stream --federation-config 'num-supernodes=3'"
    said = simulated(simulation, f"{command} --run-config 'results=\"{tmp_path}\"'")
    for mechanism, expected in data_parity.EXPECTED.items():
        assert data_parity.found_in(tmp_path / mechanism / data_parity.RUN) == expected, said[-3000:]
    assert "Certificate: 3 agents" in said


def test_readme_simulation_with_ten_agents(simulation: Any) -> None:
    export, *more = commands("")
    assert export.startswith("export ") and not more
    paid, verified, unpaid = commands("Simulation: ten agents in one machine")
    said = simulated(simulation, f"{export}\n{paid}")
    assert "10 agents enrolled: agent-01, " in said
    assert "(2p-upbred) ended: complete" in said
    assert "agent-10: 244 of 244 points, balance +66.600000" in said
    run = ledger_of(simulation.app, "ten").parent
    assert min(gains(run, cost=0.5).values()) > 0.0 and contribute_rounds(run) == 2
    assert "Before the first round of ten" in said and "nobody for certain" in said
    payments = [float(x) for x in re.findall(r"agent-\d\d: .* balance (\S+)", said)]
    assert len(payments) == 10 and abs(sum(payments)) < 1e-9
    accuracy = [float(x) for x in re.findall(r"'accuracy': ([0-9.]+)", said)]
    assert accuracy[0] < 0.2 and accuracy[-1] > 0.8
    assert head_of(ledger_of(simulation.app, "ten")).split(":")[1] in said
    simulation.run(verified)
    without = simulated(simulation, f"{export}\n{unpaid}")
    assert "(fedavg-strategic) ended: complete" in without
    given = [float(x) for x in re.findall(r"agent-\d\d: (\S+) of", without)]
    assert len(given) == 10 and sum(given) < 0.7 * 1438


def test_closed_form_games_give_the_engines_ledgers_in_simulation(simulation: Any, tmp_path: Path) -> None:
    incentive = {**INCENTIVE, "agents": 3, "rounds": ROUNDS}
    parity_app(tmp_path / "app", GAME, incentive, list(MECHANISMS), RUN)
    results = tmp_path / "results"
    options = f"--federation-config num-supernodes=3 --run-config 'results=\"{results}\"'"
    simulated(simulation, f"flwr run {tmp_path / 'app'} local --stream {options}")
    heads = {}
    for mechanism in MECHANISMS:
        heads[mechanism] = head_of(results / mechanism / RUN / "ledger.sqlite")
        assert heads[mechanism] == in_engine(mechanism, tmp_path)
    assert len(set(heads.values())) >= 4  # trimming changes the model, not who gave what


# Deployment


@pytest.fixture(scope="module")
def sites(flower: Any) -> dict[str, subprocess.Popen[bytes]]:
    """The README's SuperLink and SuperNodes, on ports that are free here."""
    superlink, north, south, *_ = commands("Deployment: two sites")
    flower.ports = {port: str(free_port()) for port in ("9190", "9194", "9195")}
    flower.superlink(with_ports(superlink, flower), int(flower.ports["9190"]), "superlink")
    started = {
        name: flower.start(with_ports(line, flower), name) for name, line in (("north", north), ("south", south))
    }
    flower.run(with_ports(commands("Deployment: two sites")[3], flower))
    return started


def with_ports(command: str, flower: Any) -> str:
    for port, free in flower.ports.items():
        command = command.replace(port, free)
    return command


def test_readme_deployment_with_two_sites(flower: Any, sites: Any) -> None:
    *_, run, verified = commands("Deployment: two sites")
    begun = time.monotonic()
    said = flower.run(run)
    flower.pace = (time.monotonic() - begun) / said.count("Round ")
    assert "2 agents enrolled: north, south" in said
    assert "(2p-upbred) ended: complete" in said
    assert re.search(r"north: (\d+) of \1 points, balance -", said)
    assert head_of(ledger_of(flower.app, "two")).split(":")[1] in said
    flower.run(verified)


def test_a_site_that_is_killed_comes_back_under_its_name(flower: Any, sites: Any) -> None:
    """It misses a training round, is charged for it, and goes on with its own account at another node."""
    patience = max(20.0, 3 * getattr(flower, "pace", 20.0))  # what a round takes depends on the machine
    settings = f'incentive.run="back" {FAST} incentive.rounds=8 incentive.round-timeout={patience:.1f}'
    run = flower.start(f"flwr run . sites --stream --run-config '{settings}'", "killed")
    flower.says("killed", "(train)", 15 * patience, run)
    sites["south"].send_signal(signal.SIGKILL)
    end_children(flower, sites["south"].pid)
    flower.says("killed", "absent south", 15 * patience, run)
    again = commands("Deployment: two sites")[2]
    sites["south"] = flower.start(with_ports(again, flower), "south-again")
    flower.says("killed", "Ledger head", 15 * patience, run)
    said = flower.log("killed")
    assert "ended: complete" in said
    old, new = re.search(r"Agent south is back: node (\d+) instead of (\d+)", said).groups()
    assert old != new
    after = said[said.index("Agent south is back") :]
    assert "absent south" not in after, "it answers again"
    with ledger.read(ledger_of(flower.app, "back")) as book:
        tranches = [entry for entry in book.entries("back") if entry.kind == "tranche"]
        assert {account for entry in tranches for account in entry.postings} <= {"north", "south"}
        missed = [entry for entry in tranches if entry.inputs["delivered"]["south"] == 0]
        assert 1 <= len(missed) < 8 and all(entry.postings["south"] < 0 for entry in missed)
        assert sum(book.balances("back").values()) == 0
    flower.run("fedincentive ledger verify fedincentive-runs/back/ledger.sqlite")


def end_children(flower: Any, parent: int) -> None:
    """What a killed SuperNode leaves running: its executor, which would go on answering in its name."""
    for pid in flower.left():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--parent-pid" in words and words[words.index(b"--parent-pid") + 1] == str(parent).encode():
            os.kill(pid, signal.SIGKILL)


def test_a_closed_form_game_gives_the_engines_ledger_in_deployment(flower: Any, sites: Any, tmp_path: Path) -> None:
    two = {**GAME, "agents": [{**GAME["agents"][i], "name": name} for i, name in enumerate(("north", "south"))]}
    changes = {"gamma": 1000.0, "rounds": 1}
    parity_app(tmp_path / "app", two, {**INCENTIVE, **changes}, ["2p-upbred"], "dep")
    results = tmp_path / "results"
    flower.run(f"flwr run {tmp_path / 'app'} sites --stream --run-config 'results=\"{results}\"'")
    expected = in_engine("2p-upbred", tmp_path, two, run="dep", **changes)
    assert head_of(results / "2p-upbred" / "dep" / "ledger.sqlite") == expected


LIAR = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from fedincentive.plugins.flower import points, strategic

FIRST = {"w": np.zeros(2)}
ordinary = ClientApp()

def own(context):
    return np.linspace(0.0, 1.0 + context.node_config["partition-id"], 40)

@ordinary.train()
def train(message, context):
    mine = points(message, 40)
    if context.node_config["agent"] == "south" and "cost" in context.node_config:  # at its own node, not an auditor's
        mine = mine[:20]
    values = own(context)[mine]
    new = message.content["arrays"]["w"].numpy() + np.array([values.mean(), values.std()])
    content = {"arrays": ArrayRecord({"w": Array(new)}), "metrics": MetricRecord({"num-examples": len(mine)})}
    return Message(RecordDict(content), reply_to=message)

@ordinary.evaluate()
def evaluate(message, context):
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "loss": 0.1})}), reply_to=message)

client = strategic(ordinary, size=40, classes=2, records=lambda context: [x.tobytes() for x in own(context)])
"""


def test_a_site_that_trains_on_half_of_its_points_is_caught_in_deployment(
    flower: Any, sites: Any, tmp_path: Path
) -> None:
    """South says it trained on all it has; three auditors, at nodes of their own, make its update again."""
    auditors = ("ann", "bea", "cleo")
    keys = folder_of(tmp_path / "keys", ("north", "south", *auditors))
    for name in auditors:
        address = f"--superlink 127.0.0.1:{flower.ports['9190']} --port {free_port()}"
        config = f'auditor="{name}" sites="north=0 south=1"'
        flower.start(f"flower-supernode --insecure {address} --node-config '{config}'", name)
    paid = {"beta": "3", "steering": "1", "gamma": 400.0, "rounds": 1}
    named = {"agents": 2, "auditors": ",".join(auditors), "keys": str(keys), "start": 1.0}
    write_app(tmp_path / "app", LIAR + SERVER.format(names=["2p-upbred"], run="liar"), {**paid, **named})
    said = flower.run(f"flwr run {tmp_path / 'app'} sites --stream --run-config 'results=\"{tmp_path}\"'")
    assert "Agent south failed the audit of step 0: made again, the update is" in said, said[-3000:]
    with ledger.read(tmp_path / "2p-upbred" / "liar" / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        entries = {entry.kind: entry for entry in book.entries("liar")}
        balances = book.balances("liar")
    assert entries["audit-0"].inputs["failed"] == ["south"]
    forfeit = entries["deposit"].inputs["deposits"]["south"]
    owed = 3 * 40 * 10**6 + forfeit  # for the points it did not deliver, and its deposit
    assert forfeit > 0 and balances == {"escrow": 0, "north": owed, "south": -owed}
