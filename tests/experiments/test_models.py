"""Models: the paper's parameter counts, exactly; initialised by seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedincentive.errors import SettingError
from fedincentive.experiments import models
from fedincentive.experiments.data import Dataset, read

IMAGE = Dataset("images", np.zeros((2, 3, 32, 32), np.float32), np.zeros(2, np.int64), 10)


@pytest.mark.parametrize(
    ("make", "parameters", "example", "classes"),
    [
        (models.CifarNet, 1_250_858, (2, 3, 32, 32), 10),
        (models.FemnistNet, 6_603_710, (2, 1, 28, 28), 62),
        (lambda: models.FemnistNet(10), 6_497_162, (2, 1, 28, 28), 10),
    ],
)
def test_image_models_have_the_papers_parameters(make, parameters: int, example, classes: int) -> None:
    model = make()
    assert models.size(model) == parameters
    assert model(torch.zeros(example)).shape == (2, classes)


def test_tweet_model_has_the_papers_parameters_and_reads_tweets() -> None:
    with torch.device("meta"):
        assert models.size(models.TweetNet()) == 120_255_086
    small = models.TweetNet(vocabulary=50)
    assert small(torch.zeros((3, 25), dtype=torch.int64)).shape == (3, 2)
    assert models.size(small) == 120_255_086 - (400_001 - 50) * 300


@pytest.mark.parametrize("side", [8, 28, 32])
def test_patch_net_is_a_convolution_with_stride_equal_to_its_window(side: int) -> None:
    torch.manual_seed(0)
    model = models.PatchNet((2, side, side), 10)
    x = torch.randn(3, 2, side, side)
    k = model.window
    by_hand = torch.nn.functional.conv2d(x, model.conv1.weight.view(16, 2, k, k), model.conv1.bias, stride=k)
    ours = model.conv1(model.prepare(x)).permute(0, 3, 1, 2)
    assert torch.allclose(ours, by_hand, atol=1e-5)
    assert model(model.prepare(x)).shape == (3, 10)


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = (models.weights(models.build("cifar", IMAGE, seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not np.array_equal(a["conv1.weight"], c["conv1.weight"])


def test_padding_does_not_count_in_the_mean_of_words() -> None:
    model = models.WordNet(10, 2)
    short, padded = torch.tensor([[3, 4]]), torch.tensor([[0, 0, 3, 4]])
    assert torch.allclose(model(short), model(padded))
    assert torch.isfinite(model(torch.zeros((1, 4), dtype=torch.int64))).all()


def test_unknown_model_is_named() -> None:
    with pytest.raises(SettingError, match="'patch'"):
        models.build("patch", read("digits"))
