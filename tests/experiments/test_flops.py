"""Arithmetic is counted as torch itself counts it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from fedincentive.experiments import models
from fedincentive.experiments.flops import convolutions, per_example


@pytest.mark.parametrize(("make", "shape"), [(models.CifarNet, (1, 3, 32, 32)), (models.FemnistNet, (1, 1, 28, 28))])
def test_training_on_an_image_takes_what_torch_counts(make, shape: tuple[int, ...]) -> None:
    model, x = make(), torch.zeros(shape)
    with FlopCounterMode(display=False) as counted:
        functional.cross_entropy(model(x), torch.zeros(1, dtype=torch.int64)).backward()
    assert per_example(model, x) == counted.get_total_flops()
    assert 0 < per_example(model, x, only=torch.nn.Conv2d) < per_example(model, x)
    assert [tuple(inside.shape) for _, inside in convolutions(model, x)][0] == shape


def test_an_lstm_is_counted_word_by_word() -> None:
    model = models.TweetNet(vocabulary=10)
    short, long = (per_example(model, torch.zeros((1, words), dtype=torch.int64)) for words in (5, 10))
    cells = 2 * sum(p.numel() for p in model.lstm.parameters() if p.dim() == 2)
    assert long - short == 5 * 2 * cells  # it is the first layer: once forward, once backward
