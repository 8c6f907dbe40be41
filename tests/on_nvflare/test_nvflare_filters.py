"""NVFlare's own filters on an agent's update: what they leave is right, or refused by name."""

from __future__ import annotations

import re

import numpy as np
import parity
import pytest
import torch
from fedincentive.plugins.nvflare.arrays import buffers, fitted, to_arrays
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.filters.convert_weights import ConvertWeights
from nvflare.app_common.filters.dxo_blocker import DXOBlocker
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedincentive import ledger
from fedincentive.errors import ReportRefused
from fedincentive.ledger.verify import verify

W = {"w": np.float32([[1, 2, 3], [4, 5, 6]]), "b": np.float32([1, -1]), "n": np.array(3), "seen": np.array([4, 5])}
D = {"w": np.float32([[0.5, -0.25, 4], [-3, 0, 0.125]]), "b": np.float32([0.25, -2]), "n": np.array(1)}
D["seen"] = np.array([0, 0])


def filtered(one, d=D):
    """The update as it leaves the site."""
    shareable = DXO(DataKind.WEIGHT_DIFF, data={name: array.copy() for name, array in d.items()}).to_shareable()
    return FLModelUtils.from_shareable(one.process(shareable, FLContext())).params


def test_percentile_privacy_is_what_it_says_in_the_models_types() -> None:
    found = fitted(filtered(PercentilePrivacy(percentile=50, gamma=1.5)), W, "site-1")
    cutoff = np.percentile(np.abs(np.concatenate([array.ravel() for array in D.values()])), 50)
    for name in ("w", "b"):
        kept = np.where(np.abs(D[name]) < cutoff, 0, D[name])
        np.testing.assert_array_equal(found[name], np.clip(kept, -1.5, 1.5).astype(np.float32))
        assert found[name].dtype == np.float32
    assert found["n"] == 1 and found["n"].dtype == W["n"].dtype


def test_sparse_vectors_keep_names_shapes_and_types() -> None:
    np.random.seed(1)
    floats = {name: D[name] for name in ("w", "b")}
    found = fitted(filtered(SVTPrivacy(fraction=0.9, gamma=1.0), floats), {name: W[name] for name in floats}, "site-1")
    assert [(array.shape, array.dtype) for array in found.values()] == [((2, 3), np.float32), ((2,), np.float32)]
    assert all(np.isfinite(array).all() for array in found.values())


@pytest.mark.parametrize(
    "one, d, words",
    [
        (ExcludeVars(["n", "b"]), D, r"without \['b', 'n'\] and with \[\]"),
        (ExcludeVars("^w"), D, r"without \['w'\]"),
        (
            PercentilePrivacy(percentile=0, gamma=0.5),
            {**D, "seen": np.array([1, 7])},
            "'seen' as float64.*whole numbers",
        ),
    ],
)
def test_what_a_filter_takes_from_the_model_is_refused_by_name(one, d, words) -> None:
    with pytest.raises(ReportRefused, match=f"Agent 'site-1'.*{words}"):
        fitted(filtered(one, d), W, "site-1")


def played(table, one):
    """What clinic delivers in the parity game with a filter of task train at its site."""
    run = table("2p-upbred", quorum=0.5, round_limit=3, rounds=2)
    run.engine.sites["clinic"].filters["train"] = [one]
    assert run.play().panics == []
    with ledger.read(run.engine.run_dir / "fedincentive-runs" / parity.RUN / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        return [entry.inputs["delivered"]["clinic"] for entry in book.entries() if "delivered" in entry.inputs]


def test_a_filtered_update_counts(table) -> None:
    assert all(points > 0 for points in played(table, PercentilePrivacy(percentile=10, gamma=0.01)))


@pytest.mark.parametrize(
    "one, words",
    [
        (ExcludeVars(["w"]), "clinic.*update"),
        (ConvertWeights(ConvertWeights.DIFF_TO_WEIGHTS), "'clinic' sends a whole model"),
        (DXOBlocker([DataKind.WEIGHT_DIFF]), ""),
    ],
)
def test_a_filter_that_leaves_no_update_makes_its_agent_absent(table, caplog, one, words) -> None:
    assert played(table, one) == [0, 0]
    assert re.search(words, caplog.text)


def test_batch_norm_statistics_and_counters_are_no_parameters() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    w = to_arrays(net.state_dict())
    assert buffers(net, w) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert buffers(None, w) == frozenset()
