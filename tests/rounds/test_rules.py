"""Runs that aggregate by a rule of another package."""

from __future__ import annotations

import pytest
from packages import install_shrunk_mean
from table import played

from fedincentive.game import repaired_example


def test_a_run_by_a_rule_of_another_package(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(install_shrunk_mean(tmp_path)))
    shrunk = played(repaired_example(), "fedavg", rounds=3, aggregation="shrunk-mean", clip=0.5, eta=0.02)
    plain = played(repaired_example(), "fedavg", rounds=3, eta=0.01)
    assert shrunk.outcome.status == "complete"
    assert shrunk.outcome.w["w"] == pytest.approx(plain.outcome.w["w"])
