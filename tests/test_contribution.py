"""What updates are worth: against all orders, and against values known without any."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fedincentive.contribution import Coalitions, agreement, cgsv, exact, gtg, labels_by_effort, loo
from fedincentive.errors import SettingError


def federation(n: int, seed: int = 0, size: int = 3):
    rng = np.random.default_rng(seed)
    w = {"a": rng.normal(size=size), "n": np.array([3])}
    updates = {f"agent-{i}": {"a": rng.normal(size=size), "n": np.array([1])} for i in range(n)}
    target = rng.normal(size=size)
    return w, updates, lambda model: -float(np.sum((model["a"] - target) ** 2))


def by_orders(coalitions, utility):
    values, orders = dict.fromkeys(coalitions.agents, 0.0), list(permutations(coalitions.agents))
    for order in orders:
        for place, agent in enumerate(order):
            values[agent] += utility(coalitions.model(order[: place + 1])) - utility(coalitions.model(order[:place]))
    return {agent: value / len(orders) for agent, value in values.items()}


@pytest.mark.parametrize("weights", [None, {f"agent-{i}": float(i) for i in range(5)}])
def test_exact_is_the_mean_over_all_orders(weights):
    w, updates, utility = federation(5)
    coalitions = Coalitions(w, updates, step=0.5, weights=weights)
    found = exact(coalitions, utility)
    assert found.values == pytest.approx(by_orders(coalitions, utility))
    assert found.evaluations == 32
    assert sum(found.values.values()) == pytest.approx(utility(coalitions.model(updates)) - utility(w))


def test_the_gray_code_visits_every_coalition_once_with_its_own_model():
    w, updates, _ = federation(6)
    coalitions = Coalitions(w, updates)
    seen = {}
    for mask, model in coalitions.walk():
        members = [agent for i, agent in enumerate(coalitions.agents) if mask >> i & 1]
        assert model["a"] == pytest.approx(coalitions.model(members)["a"])
        assert model["n"] is w["n"]  # counters are nobody's contribution
        seen[mask] = True
    assert len(seen) == 64


def test_leave_one_out_is_the_difference_without_an_agent():
    w, updates, utility = federation(4)
    coalitions = Coalitions(w, updates)
    found = loo(coalitions, utility)
    for agent in updates:
        rest = coalitions.model([a for a in updates if a != agent])
        assert found.values[agent] == pytest.approx(utility(coalitions.model(updates)) - utility(rest))
    assert found.evaluations == 5


def test_gtg_is_within_its_interval_with_fewer_evaluations():
    inside, saved = 0, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        gains = rng.uniform(0.5, 1.5, 8)
        w, updates = {"a": np.zeros(8)}, {f"{i}": {"a": 8.0 * gains[i] * np.eye(8)[i]} for i in range(8)}
        coalitions = Coalitions(w, updates)
        utility = lambda model: 1.0 - float(np.exp(-np.sum(model["a"])))  # noqa: E731
        true, found = exact(coalitions, utility), gtg(coalitions, utility, seed=seed)
        inside += sum(abs(true.values[a] - found.values[a]) <= 2 * found.spread[a] + 1e-9 for a in updates)
        saved.append(found.evaluations)
    assert inside >= 0.95 * 160 and max(saved) <= 256 and np.mean(saved) < 240


def test_gtg_is_exact_once_every_coalition_was_evaluated():
    w, updates, utility = federation(4)
    true, found = exact(Coalitions(w, updates), utility), gtg(Coalitions(w, updates), utility, skip=0.0, cut=0.0)
    assert found.values == pytest.approx(true.values, abs=1e-12)
    assert found.evaluations == 16 and set(found.spread.values()) == {0.0} and found.orders < 500


def test_gtg_skips_a_round_that_changes_nothing():
    w, updates, _ = federation(5)
    found = gtg(Coalitions(w, updates), lambda model: 1.0)
    assert found.evaluations == 2 and set(found.values.values()) == {0.0}


def test_cgsv_is_the_cosine_and_remembers():
    d = {"a": {"w": np.array([2.0, 0.0])}, "b": {"w": np.array([0.0, 0.5])}, "c": {"w": np.array([-1.0, 0.0])}}
    found, weights = cgsv(d)
    assert found.values == pytest.approx({"a": 0.0, "b": 1.0, "c": 0.0}, abs=1e-12)
    assert sum(weights.values()) == pytest.approx(1.0) and weights["b"] == max(weights.values())
    later, kept = cgsv({"a": d["a"], "b": d["b"]}, weights)
    assert later.values["b"] > later.values["a"] > 0.0
    assert kept["c"] == weights["c"]  # not asked: as before


def test_an_update_of_nothing_is_worth_nothing_and_bad_numbers_are_named():
    w, updates, utility = federation(3)
    assert cgsv({"a": {"w": np.zeros(2)}})[0].values == {"a": 0.0}
    for said, words in ((float("nan"), "nan"), (None, "None"), ("0.5", "'0.5'"), (np.ones(2), "array")):
        for method in (exact, gtg, loo):
            with pytest.raises(SettingError, match=f"utility of a model is {words}"):
                method(Coalitions(w, updates), lambda model, said=said: said)
    many = {f"{i:02d}": {"a": np.zeros(3)} for i in range(17)}
    with pytest.raises(SettingError, match="too many for 17 agents: use gtg"):
        exact(Coalitions(w, many), utility)
    with pytest.raises(SettingError, match="weight of 'agent-0' is -1.0"):
        Coalitions(w, updates, weights=dict.fromkeys(updates, -1.0))


def test_agreement_is_beyond_chance_and_halves_with_effort():
    """Two kinds, right in the part e_i and a coin's otherwise: P_ij - P_i P_j is e_i e_j / 4 on the diagonal."""
    rng, items = np.random.default_rng(0), 40_000
    truth = rng.integers(0, 2, items)
    effort = {"a": 1.0, "b": 1.0, "half": 0.5, "coin": 0.0}
    told = {
        name: np.where(rng.uniform(size=items) < part, truth, rng.integers(0, 2, items))
        for name, part in effort.items()
    }
    found = agreement({**told, "constant": np.ones(items, int), "against": 1 - truth})
    for name, part in effort.items():
        others = [e for other, e in effort.items() if other != name] + [0.0, 1.0]  # turned labels say as much
        assert found.values[name] == pytest.approx(part * np.mean(others) / 2, abs=0.01)
        assert 0.0 < found.spread[name] < 0.01
    assert found.values["constant"] == 0.0 and found.values["against"] == pytest.approx(found.values["a"], abs=0.01)


def test_agreement_of_chance_is_not_paid_for_few_items():
    """Learning S and counting it on the same items would reward noise: the mean would be far above 0."""
    rng = np.random.default_rng(1)
    scores = [agreement({a: rng.integers(0, 4, 24) for a in "abc"}).values["a"] for _ in range(300)]
    assert abs(np.mean(scores)) < 3 * np.std(scores) / 300**0.5


def test_agreement_takes_few_agents_and_names_bad_labels():
    assert agreement({"a": [0, 1, 0, 1]}).values == {"a": 0.0} and agreement({}).values == {}
    with pytest.raises(SettingError, match="numbers differ: 'a' 4, 'b' 5"):
        agreement({"a": [0, 1, 0, 1], "b": [0, 1, 0, 1, 1]})
    for bad in ([0.5, 1.0, 0.0, 1.0], [-1, 0, 0, 1], [[0, 1]]):
        with pytest.raises(SettingError, match="labels of 'b' must be whole numbers from 0"):
            agreement({"a": [0, 1, 0, 1], "b": bad})
    assert np.mean(labels_by_effort("x", 1.0) == labels_by_effort("y", 1.0)) == 1.0
    assert 0.4 < np.mean(labels_by_effort("x", 0.0) == labels_by_effort("y", 1.0)) < 0.6
