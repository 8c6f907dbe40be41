"""Real data: scikit-learn's digits, softmax regression, agents with real held-out losses."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from table import opened, play

from fedincentive.adversary import Misreport, attack, flip_labels
from fedincentive.agent import Agent, SoftmaxSite, digest
from fedincentive.agent.softmax import accuracy, first_model
from fedincentive.settings import Settings

N, BAD = 20, 4  # 20 % adversaries
TERMS = {"rounds": 25, "beta": "2", "gamma": 5.0, "learning_rate": 0.5, "alpha": 0.2, "cost": 0.5, "batch": 16}


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order] / 16.0, y[order]
    return SimpleNamespace(
        x=x[360:], y=y[360:], test=(x[:360], y[:360]), parts=np.array_split(np.arange(len(y) - 360), N)
    )


def train(digits, mechanism, bad=(), *, note=None, flipped=False, **values):
    settings = Settings.read({**TERMS, **values})
    agents = []
    for i, part in enumerate(digits.parts):
        name, lies, y = f"agent-{i:02d}", None, digits.y[part]
        if i < BAD and flipped:
            y = flip_labels(y, 10)
        elif i < BAD and bad:
            lies = Misreport(update=attack(bad[0], bad[1], seed=i))
        agents.append(Agent(name, SoftmaxSite(name, digits.x[part], y, 10, settings), s0=20.0, lies=lies))
    center = opened(settings, mechanism, agents, first_model(64, 10))
    outcome = play(center, agents, progress=note and (lambda result: note(center, result)))
    honest = sum(outcome.valuations[f"agent-{i:02d}"] for i in range(BAD, N))
    return SimpleNamespace(outcome=outcome, honest=honest, accuracy=accuracy(outcome.w, *digits.test), center=center)


@pytest.fixture(scope="module")
def clean(digits):
    return train(digits, "2p-upbred")


def test_two_phase_learns_digits_on_everyones_data(clean) -> None:
    assert clean.outcome.status == "complete" and clean.outcome.s == clean.outcome.s_max
    assert clean.accuracy > 0.93
    assert sum(clean.outcome.payments.values()) == 0


@pytest.mark.parametrize("bad", [("sign-flip", 10.0), ("sign-flip", 4.0), ("scaled", -50.0), ("ipm", 5.0)])
def test_trimming_keeps_the_honest_welfare_where_the_mean_collapses(digits, clean, bad) -> None:
    """The welfare ratio of the honest agents: with 4 of 20 adversaries against without any."""
    mean = train(digits, "2p-upbred", bad)
    trimmed = train(digits, "trim-2p-upbred", bad)
    assert trimmed.honest / clean.honest > 0.9, bad
    assert mean.honest / clean.honest < 0.3, bad
    assert trimmed.accuracy > 0.9 > 0.5 > mean.accuracy


@pytest.mark.parametrize("bad", [("gaussian", None), ("alie", None), ("zero", None)])
def test_milder_attacks_do_not_hurt_a_trimmed_run(digits, clean, bad) -> None:
    assert train(digits, "trim-2p-upbred", bad).honest / clean.honest > 0.93


def test_flipped_labels_in_the_data(digits, clean) -> None:
    trimmed = train(digits, "trim-2p-upbred", flipped=True)
    assert trimmed.honest / clean.honest > 0.9


@pytest.mark.parametrize("bad", [("nan", None), ("inf", None)])
def test_updates_that_are_not_finite_are_refused_and_charged_as_absent(digits, bad) -> None:
    run = train(digits, "2p-upbred", bad, rounds=4)
    assert run.outcome.counts["refused"] == 4 * BAD
    assert all(run.outcome.delivered[f"agent-{i:02d}"] == 0.0 for i in range(BAD))
    assert all(run.outcome.payments[f"agent-{i:02d}"] < 0 for i in range(BAD))
    assert run.accuracy > 0.7


@pytest.mark.parametrize(
    "values",
    [{}, {"sampled": 7, "audit_seed": 1}, {"local": "gradient", "eta": 1.0}, {"server_optimizer": "adam", "eta": 0.02}],
)
def test_the_second_phase_is_fedavg_to_the_byte_in_real_training(digits, values) -> None:
    seen = {}
    for name in ("fedavg", "2p-upbred"):
        seen[name] = []

        def note(center, result, name=name):
            if result.phase == "train":
                seen[name].append((result.step, digest(center.w)))

        train(digits, name, note=note, rounds=5, **values)
    assert len(seen["fedavg"]) == 5
    assert seen["fedavg"] == seen["2p-upbred"]


def test_unpaid_agents_end_with_little(digits, clean) -> None:
    """One point changes the loss far less than it costs: without payment everyone withdraws."""
    run = train(digits, "fedavg-strategic", when_short="train", round_limit=60, rounds=5)
    assert sum(run.outcome.s.values()) < 0.05 * sum(run.outcome.s_max.values())
    assert run.honest < 0.5 * clean.honest


def test_the_worth_of_the_first_model_is_nothing(digits) -> None:
    values = []
    train(digits, "fedavg", rounds=1, note=lambda center, result: values.append(result.metrics["welfare"]))
    assert values[0] == pytest.approx(0.0, abs=1e-4)  # r = ln 10 and w0 = 0 has exactly that loss
    assert 0.0 < values[-1] < N * math.log(10)
