"""The strategy and the strategic app over a grid in this process: rounds, refusals, absence, names, keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedincentive.plugins.flower import IncentiveStrategy, play, strategic
from fedincentive.plugins.flower.records import enrol_content, read_enrol
from fedincentive.plugins.flower.settings import read
from flower_task import FAST, deployed, first, size, started, task
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from keyring import folder_of

from fedincentive import ledger
from fedincentive.errors import RunError, SettingError
from fedincentive.game import repaired_example
from fedincentive.identity import read_keys
from fedincentive.ledger.verify import verify
from fedincentive.messages import Enrol
from fedincentive.provenance import receipts


def test_two_phases_end_to_end(grid: Any, tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = []
    grid = deployed(grid, 4, calls)
    strategy, result = started(grid, tmp_path)
    outcome = strategy.outcome
    assert outcome.status == "complete"
    assert outcome.s == outcome.s_max == {"agent-1": 10.0, "agent-2": 20.0, "agent-3": 30.0, "agent-4": 40.0}
    assert sum(outcome.payments.values()) == 0 and outcome.payments["agent-4"] > 0 > outcome.payments["agent-1"]
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    assert result.train_metrics_clientapp[1]["incentive.s"] == [10.0, 20.0, 30.0, 40.0]
    assert "mean" in result.train_metrics_clientapp[2] and "incentive.welfare" in result.train_metrics_clientapp[2]
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2] and "loss" in result.evaluate_metrics_clientapp[2]
    assert np.array_equal(result.arrays["w"].numpy(), strategy.center.w["w"])
    with ledger.read(tmp_path / "r" / "ledger.sqlite") as book:
        assert book.head().hash == outcome.head
        assert [entry.kind for entry in book.entries("r")].count("tranche") == 2


def test_phase_one_carries_no_arrays_and_calls_nobodys_app(grid: Any, tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = []
    grid = deployed(grid, 3, calls, gamma=5.0)
    seen: list[int] = []
    grid.before_send = lambda message: seen.append(len(calls))
    started(grid, tmp_path)
    scalar = [k for k, message in enumerate(grid.sent) if message.metadata.message_type.startswith("query.")]
    assert len(scalar) >= 3 * 3  # enrolment, then some rounds
    for k in scalar:
        assert not grid.sent[k].content.array_records
        assert seen[k] == 0
    assert calls


def test_scalar_rounds_do_not_import_torch(tmp_path: Path) -> None:
    """A torch that breaks whoever imports it stands first on the path; enrolment and phase 1 do not notice."""
    import subprocess

    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    program = """
import sys
import fedincentive.plugins.flower as f
from flwr.clientapp import ClientApp
app = f.strategic(ClientApp(), size=10, classes=10)
f.IncentiveStrategy, f.FedTrimmedAvg
print('torch' in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"], done.stderr


@pytest.mark.parametrize("mechanism", ["fedavg", "upbred", "t-upbred", "2p-upbred", "trim-2p-upbred"])
def test_every_mechanism_runs_by_name(mechanism: str, grid: Any, tmp_path: Path) -> None:
    grid = deployed(grid, 4, [], mechanism=mechanism, gamma=2.0, alpha=0.25)
    strategy, result = started(grid, tmp_path)
    assert strategy.outcome.mechanism == mechanism and strategy.outcome.trained == 2
    valued = [record for record in result.evaluate_metrics_clientapp.values() if "incentive.s" in record]
    assert len(result.evaluate_metrics_clientapp) == 2 and (len(valued) == 2) == (mechanism == "t-upbred")


def test_fedavg_strategic_needs_the_first_model(grid: Any, tmp_path: Path) -> None:
    config = {
        **FAST,
        "incentive.mechanism": "fedavg-strategic",
        "incentive.round-limit": 4,
        "incentive.when-short": "train",
    }
    config |= {"incentive.gamma": 3.0, "incentive.agents": 3}
    with_model = grid(config)
    with_model.join_all(strategic(task([]), size=size, classes=10, model=lambda context: first()), 3)
    strategy, _ = started(with_model, tmp_path)
    assert strategy.outcome.trained == 2 and sum(strategy.outcome.s.values()) < 30
    without = grid({**config, "incentive.run": "again", "incentive.repeats": 0})
    without.join_all(strategic(task([]), size=size, classes=10), 3)
    with pytest.raises(Exception, match="0 of 3 agents"):
        started(without, tmp_path)


def test_the_agent_trains_on_what_it_contributes(grid: Any, tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = []
    grid = deployed(grid, 2, calls, strategy="fixed", start=0.3, when_short="train")
    strategy, _ = started(grid, tmp_path)
    assert sorted({len(mine) for kind, mine in calls if kind == "train"}) == [3, 6]
    assert strategy.outcome.short == ("agent-1", "agent-2")


def test_the_same_app_is_ordinary_under_fedavg(grid: Any) -> None:
    calls: list[tuple[str, Any]] = []
    nodes = grid()
    nodes.join_all(strategic(task(calls), size=size, classes=10), 3)
    FedAvg(min_available_nodes=3).start(nodes, first(), num_rounds=1)
    assert sorted(len(mine) for kind, mine in calls if kind == "train") == [10, 20, 30]


def test_node_config_names_costs_and_strategies(grid: Any, tmp_path: Path) -> None:
    nodes = grid({**FAST, "incentive.agents": 2, "incentive.when-short": "train"})
    app = strategic(task([]), size=size, classes=10)
    nodes.join(app, agent="rich", partition_id=0, num_partitions=2, cost=0.1)
    nodes.join(app, agent="dear", partition_id=1, num_partitions=2, cost=9.0)
    strategy, _ = started(nodes, tmp_path)
    assert strategy.outcome.s == {"dear": 0.0, "rich": 10.0}  # 9 a point is more than beta = 2
    assert strategy.outcome.short == ("dear",)


def test_a_node_without_a_name_is_told_so(grid: Any, tmp_path: Path) -> None:
    nodes = grid({**FAST, "incentive.join-timeout": 0.2})
    nodes.join(strategic(task([]), size=10, classes=10), colour="red")
    with pytest.raises(RunError, match="no stable name: start it with --node-config"):
        started(nodes, tmp_path)


def test_an_ordinary_app_is_told_to_be_wrapped(grid: Any, tmp_path: Path) -> None:
    nodes = grid({**FAST, "incentive.join-timeout": 0.2})
    app = ClientApp()
    app.query("enrol")(lambda message, context: Message(RecordDict(), reply_to=message))
    nodes.join_all(app, 2)
    with pytest.raises(RunError, match="wrap its app with fedincentive"):
        started(nodes, tmp_path)


def test_too_few_agents_are_named(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 2, [], agents=5, join_timeout=0.3)
    with pytest.raises(RunError, match=r"2 of 5 agents enrolled \(agent-1, agent-2\).*join-timeout"):
        started(nodes, tmp_path)


# Absence


def test_a_mute_node_is_absent_and_charged(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 4, [], round_timeout=0.3)
    mute = list(nodes.nodes)[3]

    def silence(message: Message) -> None:
        if message.metadata.message_type == "train":
            nodes.mute.add(mute)

    nodes.before_send = silence
    strategy, _ = started(nodes, tmp_path)
    assert strategy.outcome.s["agent-4"] == 40.0, "in phase 1 it was there"
    assert all(result.absent == ("agent-4",) for result in strategy.rounds if result.phase == "train")
    assert strategy.outcome.payments["agent-4"] < 0
    assert sum(strategy.outcome.payments.values()) == 0


def test_a_node_that_is_mute_in_phase_one_costs_three_time_outs(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 4, [], round_timeout=0.3, gamma=2.0)
    mute = list(nodes.nodes)[3]

    def silence(message: Message) -> None:
        if "incentive" in message.content.config_records and message.metadata.message_type.startswith("query."):
            phase = message.content.config_records["incentive"].get("phase")
            (nodes.mute.add if phase == "contribute" else nodes.mute.discard)(mute)
        elif message.metadata.message_type == "train":
            nodes.mute.discard(mute)

    nodes.before_send = silence
    strategy, _ = started(nodes, tmp_path)
    scalar = [result for result in strategy.rounds if result.phase == "contribute"]
    assert [result.absent for result in scalar][:3] == [("agent-4",)] * 3 and len(scalar) > 4
    assert not any(result.absent for result in [*scalar[3:], *(r for r in strategy.rounds if r.phase == "train")])
    assert strategy.outcome.status == "complete" and strategy.outcome.lost == ("agent-4",)


def test_an_agent_may_stay_away(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 3, [], **{"strategy.agent-2": "away"})
    strategy, _ = started(nodes, tmp_path)
    assert {result.absent for result in strategy.rounds if result.phase == "train"} == {("agent-2",)}


def test_partial_participation(grid: Any, tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = []
    nodes = deployed(grid, 6, calls, sampled=2, rounds=5)
    strategy, _ = started(nodes, tmp_path)
    trained = [message for message in nodes.sent if message.metadata.message_type == "train"]
    assert len(trained) == 10
    assert len({message.metadata.dst_node_id for message in trained}) > 2
    assert sum(strategy.outcome.payments.values()) == 0


def centrally(step: int, arrays: ArrayRecord) -> MetricRecord:
    """A user's evaluate_fn: the loss at 3, and an accuracy that is not one."""
    w = float(arrays["w"].numpy()[0])
    return MetricRecord({"loss": (w - 3.0) ** 2, "accuracy": w})


def test_values_come_from_the_users_evaluation_and_sum_to_what_it_gained(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 4, [], sampled=2, rounds=4, contribution="exact", mechanism="upbred")
    strategy = IncentiveStrategy(*read({**nodes.run_config, "incentive.output": str(tmp_path)}))
    result = strategy.start(nodes, first(), evaluate_fn=centrally)
    gained: dict[str, list[float]] = {}
    for step, metrics in result.train_metrics_clientapp.items():
        own = {name[16:]: metrics[name] for name in metrics if name.startswith("incentive.worth.")}
        before, after = (result.evaluate_metrics_serverapp[k]["loss"] for k in (step - 1, step))
        assert len(own) == 2 and sum(own.values()) == pytest.approx(before - after, abs=1e-5)
        assert all(metrics[f"incentive.worth-interval.{agent}"] == 0.0 for agent in own)
        for agent, value in own.items():
            gained.setdefault(agent, []).append(value)
    assert strategy.outcome.worth == pytest.approx({agent: np.mean(values) for agent, values in gained.items()})
    with ledger.read(tmp_path / "r" / "ledger.sqlite") as book:
        assert [entry.kind for entry in book.entries("r")].count("worth") == 4
        assert verify(book, recompute=True).findings == ()


@pytest.mark.parametrize(("key", "sign"), [("accuracy", 1.0), ("-accuracy", -1.0)])
def test_the_metric_of_values_can_be_chosen(key: str, sign: float, grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 2, [], rounds=1, contribution="loo", mechanism="fedavg")
    strategy = IncentiveStrategy(*read({**nodes.run_config, "incentive.output": str(tmp_path)}), utility_by_key=key)
    strategy.start(nodes, first(), evaluate_fn=centrally)
    trained = next(result for result in strategy.rounds if result.phase == "train")
    ends = [0.5 * index for index in (0.0, 1.0)]  # each moves w halfway to its mean
    both = sum(ends) / 2
    expected = {"agent-1": sign * (both - ends[1]), "agent-2": sign * (both - ends[0])}
    assert {agent: value for agent, (value, _) in trained.worth.items()} == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("evaluate_fn", "words"),
    [
        (None, "'gtg', which evaluates models at the server: give start\\(\\) an evaluate_fn that returns 'loss'"),
        (lambda step, arrays: None, "evaluate_fn returned nothing"),
        (
            lambda step, arrays: MetricRecord({"acc": 0.5}),
            "evaluate_fn returned 'acc': return it, or .* utility_by_key",
        ),
    ],
)
def test_values_without_an_evaluation_are_refused_by_name(
    evaluate_fn: Any, words: str, grid: Any, tmp_path: Path
) -> None:
    nodes = deployed(grid, 2, [], contribution="gtg", mechanism="fedavg")
    strategy = IncentiveStrategy(*read({**nodes.run_config, "incentive.output": str(tmp_path)}))
    with pytest.raises(SettingError, match=words):
        strategy.start(nodes, first(), evaluate_fn=evaluate_fn)


def test_an_infinite_loss_counts_as_the_cap(grid: Any, tmp_path: Path) -> None:
    """Whoever sends an update that ruins the model must not end the run."""
    nodes = deployed(grid, 3, [], rounds=1, contribution="exact", mechanism="fedavg", loss_cap=7.0, accept_losses=True)
    worst = lambda step, arrays: MetricRecord({"loss": float("inf") if arrays["w"].numpy()[0] > 0.6 else 1.0})  # noqa: E731
    strategy = IncentiveStrategy(*read({**nodes.run_config, "incentive.output": str(tmp_path)}))
    strategy.start(nodes, first(), evaluate_fn=worst)
    trained = next(result for result in strategy.rounds if result.phase == "train")
    values = {agent: value for agent, (value, _) in trained.worth.items()}  # agent-3, alone or with agent-2, ruins it
    assert values == pytest.approx({"agent-1": 3.0, "agent-2": 0.0, "agent-3": -3.0})


def test_partial_participation_is_drawn_and_can_be_checked_in_a_signed_run(grid: Any, tmp_path: Path) -> None:
    keys = str(folder_of(tmp_path / "keys", "abcd"))
    nodes = grid({**FAST, "incentive.agents": 4, "incentive.keys": keys, "incentive.sampled": 2, "incentive.rounds": 4})
    app = strategic(task([]), size=size, classes=10)
    for index, agent in enumerate("abcd"):
        nodes.join(app, agent=agent, keys=keys, partition_id=index, num_partitions=4)
    strategy, _ = started(nodes, tmp_path)
    assert strategy.outcome.status == "complete" and not any(result.absent for result in strategy.rounds)
    with ledger.read(tmp_path / "r" / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        links = [e.inputs["reveal"] for e in book.entries("r") if e.kind == "reports-train"]
    assert len(set(links)) == 4


def test_below_quorum_the_round_is_asked_again(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 3, [], round_timeout=0.2, quorum=0.9)
    mute = list(nodes.nodes)[0]
    asked = []

    def shy(message: Message) -> None:
        if message.metadata.message_type == "train" and message.metadata.dst_node_id == mute:
            asked.append(message)
            (nodes.mute.add if len(asked) == 1 else nodes.mute.discard)(mute)

    nodes.before_send = shy
    strategy, result = started(nodes, tmp_path)
    assert [r.repeated for r in strategy.rounds].count(True) == 1
    assert strategy.outcome.status == "complete" and sorted(result.train_metrics_clientapp) == [1, 2]


# Names and keys


def replaced(nodes: Any, app: ClientApp, old: int, *, when: str, offline: bool, **node_config: Any) -> list[int]:
    """At the first message of this type the old node falls silent and a new one starts under the same name."""
    started_: list[int] = []

    def swap(message: Message) -> None:
        if message.metadata.message_type == when and not started_:
            (nodes.offline if offline else nodes.mute).add(old)
            started_.append(nodes.join(app, **node_config))

    nodes.before_send = swap
    return started_


@pytest.mark.parametrize("offline", [True, False], ids=["gone", "missed a round"])
def test_an_agent_comes_back_at_another_node(offline: bool, grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 3, [], round_timeout=2.5, rounds=3)
    app = strategic(task([]), size=size, classes=10)
    old = list(nodes.nodes)[2]
    new = replaced(nodes, app, old, when="train", offline=offline, partition_id=2, num_partitions=3)
    strategy, _ = started(nodes, tmp_path)
    assert strategy.nodes.by_agent["agent-3"] == new[0] != old
    absences = [result.absent for result in strategy.rounds if result.phase == "train"]
    assert absences[-1] == () and ("agent-3",) in absences
    assert set(strategy.outcome.payments) == {"agent-1", "agent-2", "agent-3"}


def test_a_name_in_use_cannot_be_taken(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 2, [], gamma=5.0, rounds=4)
    thief_calls: list[Any] = []
    thief = strategic(task(thief_calls), size=size, classes=10)
    holder = dict(zip(("agent-1", "agent-2"), nodes.nodes, strict=True))
    nodes.before_send = lambda message: (
        nodes.join(thief, partition_id=1, num_partitions=2) if len(nodes.nodes) == 2 else None
    )
    strategy, _ = started(nodes, tmp_path)
    assert strategy.nodes.by_agent == holder and not thief_calls


def test_an_enrolment_says_how_much_of_the_log_was_seen() -> None:
    for seen in (None, 12):
        enrol = Enrol("a", 10.0, 5.0, key="k", seen=seen)
        assert read_enrol(enrol_content(enrol, "s"), "node 1") == (enrol, "s")


def test_with_keys_reports_and_enrolments_are_proved(grid: Any, tmp_path: Path) -> None:
    keys, stolen = str(folder_of(tmp_path / "keys", "ab")), str(folder_of(tmp_path / "stolen", "ab"))
    nodes = grid({**FAST, "incentive.agents": 2, "incentive.keys": keys, "incentive.round-timeout": 60.0})
    app = strategic(task([]), size=size, classes=10)
    for index, agent in enumerate("ab"):
        nodes.join(app, agent=agent, keys=keys, partition_id=index, num_partitions=2)
    thief = nodes.join(app, agent="b", keys=stolen, partition_id=1, num_partitions=2)
    new = replaced(
        nodes, app, list(nodes.nodes)[1], when="train", offline=False,
        agent="b", keys=keys, partition_id=1, num_partitions=2,
    )  # fmt: skip
    strategy, _ = started(nodes, tmp_path)
    assert strategy.outcome.basis == "signed"
    assert strategy.nodes.by_agent["b"] == new[0] != thief
    assert all(result.absent == () for result in strategy.rounds), "the proof moves the name within the open round"
    log_key = read_keys(keys).public["center"]
    for agent in "ab":
        proofs = list((tmp_path / "keys.receipts" / strategy.settings.run / agent).glob("receipt-*.json"))
        assert list((tmp_path / "keys.receipts" / "logs").glob(f"{agent}-*.json"))
        proven = [receipts.verify(path.read_text(), log_key) for path in proofs]
        posted = sum(found.entry.postings.get(agent, 0) for found, _ in proven)
        assert posted == strategy.outcome.payments[agent]


# What a hostile or broken node sends


def hostile(change: Any) -> Any:
    """The third node's training replies are changed on their way."""

    def wrap(reply: Message) -> None:
        record = reply.content.config_records.get("incentive", {})
        if record.get("agent") == "agent-3" and record.get("phase") == "train":
            change(reply.content)

    return wrap


def with_arrays(**arrays: Any) -> Any:
    return lambda content: content.__setitem__("arrays", ArrayRecord({k: v for k, v in arrays.items()}))


def raw(data: bytes, stype: str = "numpy.ndarray") -> Array:
    return Array("float32", (1,), stype, data)


def npy(header: str) -> Array:
    """An array whose .npy header says this, and no data."""
    text = header.encode().ljust(117) + b"\n"
    return raw(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["incentive"].__setitem__("delivered", 31.0),
        lambda content: content["incentive"].__setitem__("delivered", float("nan")),
        lambda content: content["incentive"].__setitem__("delivered", "all"),
        lambda content: content["incentive"].__setitem__("round", "one"),
        lambda content: content["incentive"].__setitem__("agent", "agent-1"),
        lambda content: content.__delitem__("incentive"),
        lambda content: content.__delitem__("arrays"),
        with_arrays(w=Array(np.float32([np.nan]))),
        with_arrays(w=Array(np.zeros(2, np.float32))),
        with_arrays(w=Array(np.zeros(1, np.float64))),
        with_arrays(other=Array(np.zeros(1, np.float32))),
        with_arrays(w=raw(b"")),
        with_arrays(w=raw(b"\x93NUMPY\x01\x00\xff\xff{")),
        with_arrays(w=raw(b"pickled", "pickle")),
        with_arrays(w=npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")),
        with_arrays(w=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (900000000,), }")),
        with_arrays(w=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }")),
        with_arrays(w=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1), }")),
        with_arrays(w=npy("(" * 100)),
        lambda content: content["incentive"].__setitem__("run", "r" * 10**6),
        lambda content: content["incentive"].__setitem__("signature", "s" * 10**6),
    ],
)  # fmt: skip
def test_bad_reports_are_refused_and_the_round_goes_on(change: Any, grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 4, [])
    nodes.before_answer = hostile(change)
    strategy, _ = started(nodes, tmp_path)
    assert strategy.outcome.status == "complete"
    assert {result.absent for result in strategy.rounds if result.phase == "train"} == {("agent-3",)}
    assert np.isfinite(strategy.center.w["w"]).all()


def test_a_node_whose_reply_is_refused_is_asked_once_more(grid: Any, tmp_path: Path) -> None:
    """A reply that was spoilt once does not cost its agent the round; one that stays bad ends the waiting."""
    expected, _ = started(deployed(grid, 4, []), tmp_path / "calm")
    nodes, spoilt = deployed(grid, 4, []), []

    def once(content: RecordDict) -> None:
        spoilt.append(content["incentive"]["round"])
        if spoilt.count(spoilt[-1]) == 1:
            content["incentive"]["delivered"] = float("nan")

    nodes.before_answer = hostile(once)
    strategy, _ = started(nodes, tmp_path / "spoilt")
    assert len(spoilt) == 4 and not any(result.absent for result in strategy.rounds)
    assert strategy.outcome.head == expected.outcome.head


@pytest.mark.parametrize("metrics", [{"num-examples": -30, "mean": 1.0}, {"num-examples": 30, "mean": [1.0, 2.0]}])
def test_metrics_without_an_average_do_not_end_the_run(metrics: Any, grid: Any, tmp_path: Path) -> None:
    """Weights that sum to zero; a list where the others send a number."""
    nodes = deployed(grid, 3, [], rounds=1, strategy="fixed", start=1.0)
    nodes.before_answer = hostile(lambda content: content.__setitem__("metrics", MetricRecord(metrics)))
    strategy, result = started(nodes, tmp_path)
    assert strategy.outcome.status == "complete" and not strategy.rounds[-1].absent
    assert "mean" not in result.train_metrics_clientapp[1]


def test_a_client_that_raises_is_absent(grid: Any, tmp_path: Path) -> None:
    broken = ClientApp()

    @broken.train()
    def train(message: Message, context: Context) -> Message:
        raise RuntimeError("out of memory")

    nodes = deployed(grid, 3, [], agents=4, report_values=False)
    nodes.join(strategic(broken, size=20, classes=10), agent="broken", partition_id=0, num_partitions=1)
    strategy, _ = started(nodes, tmp_path)
    assert {result.absent for result in strategy.rounds if result.phase == "train"} == {("broken",)}


# Runs


def test_an_existing_run_is_refused_and_resume_continues_it(grid: Any, tmp_path: Path) -> None:
    whole = deployed(grid, 3, [], rounds=4)
    expected, _ = started(whole, tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(message: Message) -> None:
        if message.metadata.message_type == "train" and message.content["config"]["server-round"] == 3:
            raise Stop

    first_part = deployed(grid, 3, [], rounds=4)
    first_part.before_send = stop
    with pytest.raises(Stop):
        started(first_part, tmp_path / "parts")
    again = deployed(grid, 3, [], rounds=4)
    with pytest.raises(RunError, match="resume"):
        started(again, tmp_path / "parts")
    resumed = deployed(grid, 3, [], rounds=4, resume=True)
    strategy, _ = started(resumed, tmp_path / "parts")
    assert strategy.outcome.head == expected.outcome.head
    assert strategy.outcome.digest == expected.outcome.digest


def test_num_rounds_replaces_the_setting_and_the_ledger_may_be_given(grid: Any, tmp_path: Path) -> None:
    nodes = deployed(grid, 2, [])
    with ledger.open(tmp_path / "mine.sqlite") as book:
        settings = read({**nodes.run_config, "incentive.output": str(tmp_path / "out")})
        strategy = IncentiveStrategy(*settings, ledger=book)
        strategy.start(nodes, first(), num_rounds=3, timeout=9.0)
        assert strategy.outcome.trained == 3 and book.head().hash == strategy.outcome.head
    assert not (tmp_path / "out" / "r" / "ledger.sqlite").exists()


def test_from_context_names_the_run_after_flowers(grid: Any) -> None:
    strategy = IncentiveStrategy.from_context(Context(77, 0, {}, RecordDict(), {"incentive.mechanism": "upbred"}))
    assert (strategy.settings.run, strategy.settings.mechanism) == ("flower-77", "upbred")
    with pytest.raises(RunError, match=r"start\(\)"):
        _ = strategy.center


def test_a_game_knows_its_agents(grid: Any, tmp_path: Path) -> None:
    nodes = grid({"incentive.join-timeout": 0.2, "incentive.agents": 1})
    nodes.join(play(repaired_example()), agent="stranger")
    with pytest.raises(RunError, match="has no agent 'stranger'"):
        started(nodes, tmp_path)
    with pytest.raises(SettingError, match="only plays"):
        play(repaired_example())(Message(RecordDict(), dst_node_id=1, message_type="train"), None)
