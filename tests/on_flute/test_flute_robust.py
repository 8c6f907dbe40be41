"""Robust rules in FLUTE's own rounds, compared with one round computed by hand in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flute_example import config
from sklearn.datasets import load_digits

from fedincentive import aggregation

RATE = 0.5


def changes() -> tuple[list[np.ndarray], list[int]]:
    """What each clinic's one full batch does to a weight matrix of zeros, and its points."""
    x, y = load_digits(return_X_y=True)
    x = x / 16
    found, counts = [], []
    for k in range(4):
        mine = [i for i in range(k, len(y), 4) if i // 4 % 6]
        residual = np.full((len(mine), 10), 0.1) - np.eye(10)[y[mine]]
        found.append(-RATE * residual.T @ x[mine] / len(mine))
        counts.append(len(mine))
    return found, counts


def after_one_round(flute: Any, strategy: str, **options: Any) -> np.ndarray:
    settings = {**config("robust", max_iteration=1, rule=options), "strategy": strategy}
    settings["client_config"]["data_config"]["train"]["batch_size"] = 1000
    folder: Path = flute(settings)
    saved = torch.load(folder / "offline-run" / "models" / "latest_model.tar", weights_only=False)
    return saved["model_state_dict"]["layer.weight"].numpy()


def test_the_trimmed_mean_is_numpys(flute: Any) -> None:
    expected = np.sort(np.stack(changes()[0]), axis=0)[1:-1].mean(axis=0)
    np.testing.assert_allclose(after_one_round(flute, "trimmed-mean", trim=1), expected, atol=1e-6)


def test_the_mean_weighs_by_points(flute: Any) -> None:
    found, counts = changes()
    expected = np.average(found, axis=0, weights=counts)
    np.testing.assert_allclose(after_one_round(flute, "mean"), expected, atol=1e-6)


def test_flutes_own_mean_in_one_process_is_another(flute: Any) -> None:
    """docs/flute.md says so; its server's model is also the last client's there."""
    found, counts = changes()
    own = after_one_round(flute, "FedAvg")
    assert np.abs(own - np.average(found, axis=0, weights=counts)).max() > 0.01


@pytest.mark.parametrize(("strategy", "options"), [("centered-clipping", {"clip": 0.05}), ("nnm+median", {"f": 1})])
def test_other_rules_run(flute: Any, strategy: str, options: dict[str, Any]) -> None:
    rule, updates = aggregation.rule(strategy), changes()[0]
    center = {"center": np.zeros_like(updates[0])} if "center" in rule.options else {}
    np.testing.assert_allclose(
        after_one_round(flute, strategy, **options), rule.use(updates, **center, **options), atol=2e-3
    )
