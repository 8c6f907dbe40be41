"""A short search for lies that pay; `benchmarks/deposits.py` is the long one. And audited runs with real auditors."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SEARCH = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "deposits.py"))


@pytest.mark.parametrize("name", SEARCH["TERMS"])
def test_no_lie_pays_at_the_computed_deposit_and_one_pays_just_below(name: str) -> None:
    made = [SEARCH["random_federation"](seed, **SEARCH["TERMS"][name]) for seed in range(2)]
    assert SEARCH["judge"](name, made, pairs="pairs" in name, withdrawing="open" in name)


def test_where_a_verdict_comes_late_no_lie_of_a_pair_pays() -> None:
    made = SEARCH["random_federation"](0, colluding=2, steering=0.3)
    assert made.search(pairs=True).gain <= SEARCH["NOTHING"]


def test_a_larger_deposit_than_for_one_is_needed_against_two() -> None:
    """With the deposit for agents that act alone, a liar with a partner gains by steering."""
    made = SEARCH["random_federation"](3, colluding=2, steering=1e4, lag=0)
    alone = type(made)(made.points, made.costs, SEARCH["random_federation"](3, colluding=1, steering=1e4, lag=0).terms)
    assert alone.search(pairs=True).gain > 0 > made.search(pairs=True).gain - 1e-6
    assert alone.search(pairs=False).gain <= 1e-6


def test_the_digits_federation() -> None:
    assert SEARCH["judge"]("digits", [SEARCH["digits"](1)], pairs=False)


def test_balances_of_audited_runs_are_those_of_the_search(capsys: Any) -> None:
    assert SEARCH["engine_runs"](3, audit=0.95)  # a liar is missed once in a million runs
    assert "3 caught" in capsys.readouterr().out
