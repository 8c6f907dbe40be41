"""What updates are worth, in FedML: the values of a round sum to what its model gained by FedML's own tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fedml_runs import MAIN, write_config

from fedincentive import ledger
from fedincentive.contribution import memo
from fedincentive.errors import SettingError
from fedincentive.ledger.verify import verify

HERE = Path(__file__).parent
NAMED = {"enable_contribution": True}


def losses(text: str) -> list[float]:
    """The server's test loss after each round, as FedML logs it."""
    return [float(loss) for loss in re.findall(r"\{'test_acc': [0-9.]+, 'test_loss': ([0-9.]+)\}", text)]


def test_values_of_sampled_clients_sum_to_what_the_round_gained(start: Any, tmp_path: Path) -> None:
    how = {"contribution": "exact", "report_values": False}
    cf = write_config(tmp_path, "sp", "upbred", rounds=4, incentive=how, train_args={"client_num_per_round": 2})
    process = start(tmp_path, MAIN, "--cf", cf.name, "--run_id", "run", log="run")
    process.ends_well()
    with ledger.open(tmp_path / "fedincentive-runs" / "run" / "ledger.sqlite") as book:
        assert verify(book, recompute=True).findings == ()
        memos = [record.entry for record in book.entries() if record.entry.rule == memo.RULE]
    found = losses(process.text())
    assert len(memos) == len(found) == 4
    for k, entry in enumerate(memos):
        assert len(entry.inputs["values"]) == 2
        if k:
            total = sum(value for value, _ in memo.read(entry.inputs).values())
            assert total == pytest.approx(found[k - 1] - found[k], abs=2e-6)
    for agent in ("agent-1", "agent-2", "agent-3"):
        own = [memo.read(entry.inputs)[agent][0] for entry in memos if agent in entry.inputs["values"]]
        assert f"{agent}: update worth {own[0]:.6g}" in process.text()
        words = f", updates worth {sum(own) / len(own):.6g} on average"
        assert words[:-14] in process.text()  # the memo has nine digits, the mean in the log may differ in the last


def test_fedmls_own_server_asks_us_by_our_names(start: Any, tmp_path: Path) -> None:
    """FedML's own server objects: who was not selected keeps its mean, and each round's values sum to what the model
    gained."""
    cf = write_config(tmp_path, "sp", "FedAvg", train_args={**NAMED, "contribution_alg": "exact"})
    cf.write_text(cf.read_text().replace("training_type: simulation", "training_type: cross_silo"))
    (tmp_path / "main.py").write_text(MAIN.read_text())
    program = tmp_path / "cross_silo_server.py"
    program.write_text((HERE / program.name).read_text())
    start(tmp_path, program, "--cf", cf.name, "--run_id", "run", "--rank", 0, "--role", "server", log="run").ends_well()
    found = json.loads((tmp_path / "found.json").read_text())
    said: dict[str, list[float]] = {}
    for k, clients in enumerate((("1", "2"), ("2", "3"), ("1", "3"))):
        values = {name: found["values"][k][name][0] for name in clients}
        assert sum(values.values()) == pytest.approx(found["losses"][k] - found["losses"][k + 1], abs=1e-6)
        for name, value in values.items():
            said.setdefault(name, []).append(value)
    assert found["final"] == pytest.approx({name: sum(values) / 2 for name, values in said.items()})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"federated_optimizer": "LSA"}, "secure aggregation \\(LSA\\) shows the server none"),
        ({"enable_fhe": True}, "secure aggregation \\(enable_fhe\\) shows the server none"),
        ({"training_type": "simulation"}, "in cross-silo runs only, not in simulation"),
        ({"contribution_alg": "gtgg"}, "contribution_alg is 'gtgg'. Did you mean 'gtg'?"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(args: dict[str, Any], words: str) -> None:
    from fedincentive.plugins.fedml import contribution

    given = {**NAMED, "contribution_alg": "gtg", "federated_optimizer": "FedAvg", "training_type": "cross_silo"}
    with pytest.raises(SettingError, match=words):
        contribution.install(SimpleNamespace(**{**given, **args}))


@pytest.mark.parametrize(
    ("args", "how"),
    [
        ({}, None),
        ({"contribution_alg": "gtg"}, None),
        ({**NAMED, "contribution_alg": "cgsv"}, "cgsv"),
        ({**NAMED, "contribution_alg": "MR"}, "exact"),
        ({**NAMED}, "name one of exact, gtg, loo, cgsv, LOO, GTG, MR"),
        ({**NAMED, "contribution_alg": "loo", "incentive": {"contribution": "gtg"}}, "'gtg', contribution_alg 'loo'"),
    ],
)
def test_fedmls_switch_says_incentive_contribution(args: dict[str, Any], how: str | None) -> None:
    from fedincentive.plugins.fedml.settings import read

    ours = {"federated_optimizer": "upbred", "comm_round": 2, "client_num_per_round": 2, "client_num_in_total": 2}
    if how is None or how in ("cgsv", "exact"):
        assert read(SimpleNamespace(**ours, **args))[0].contribution == how
        return
    with pytest.raises(SettingError, match=how):
        read(SimpleNamespace(**ours, **args))


@pytest.mark.parametrize("data", [None, []])
def test_no_validation_set_is_refused_by_name(data: Any) -> None:
    from fedincentive.plugins.fedml.contribution import utility

    with pytest.raises(SettingError, match="incentive.contribution: gtg evaluates models, but .* or use cgsv"):
        utility(None, data, "cpu", None, "incentive.contribution: gtg")


def test_a_diverged_coalition_counts_as_the_worst() -> None:
    import numpy as np
    from fedincentive.plugins.fedml.contribution import WORST, utility

    class Trainer:
        """One that tests as FedML's aggregators do: (accuracy, loss, ...)."""

        def set_model_params(self, w: Any) -> None:
            self.w = w

        def test(self, data: Any, device: Any, args: Any) -> Any:
            return 0.5, float(self.w["weight"].sum()), None, None

    value = utility(Trainer(), [1], "cpu", None, "gtg")
    for sum_, worth in ((2.5, -2.5), (1e6, -WORST), (np.inf, -WORST), (np.nan, -WORST)):
        assert value({"weight": np.array([sum_])}) == worth
    Trainer.test = lambda self, data, device, args: None  # type: ignore[method-assign]
    value = utility(Trainer(), [1], "cpu", None, "gtg")
    with pytest.raises(SettingError, match="gtg needs a loss, which Trainer.test\\(\\) does not return"):
        value({"weight": np.zeros(1)})
