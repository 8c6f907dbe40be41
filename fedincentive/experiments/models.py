"""The paper's three architectures, parameter for parameter, and small ones for quick runs.

| name | parameters | layers |
|---|---|---|
| cifar | 1,250,858 | 4 convolutions of 32, 32, 64, 64; 512; 10 |
| femnist | 6,603,710 (62 classes), 6,497,162 (10) | 2 convolutions of 32, 64 (5 x 5); 2048 |
| tweets | 120,255,086 | embedding 400,001 x 300; 2-layer LSTM of 100; 128; 2 |
| patches | a few thousand | 2 convolutions whose windows do not overlap; one linear layer |
| words | vocabulary x 16 + a few hundred | mean embedding; 16; classes |

Windows that do not overlap make a convolution one matrix product, which trains many agents at once (`grouped`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..checks import nearest
from ..errors import SettingError
from ..messages import Update
from .data import PADDING, Dataset

TWITTER_VOCABULARY = 400_001  # GloVe's 400,000 words and one for all others


class CifarNet(nn.Module):
    """The CNN of the paper's Table "CNNModel for CIFAR"."""

    grouped = False

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 32, 3)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv4 = nn.Conv2d(64, 64, 3)
        self.hidden = nn.Linear(64 * 6 * 6, 512)
        self.out = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = _pooled(self.conv2(functional.relu(self.conv1(x), inplace=True)))
        x = _pooled(self.conv4(functional.relu(self.conv3(x), inplace=True)))
        return self.out(functional.relu(self.hidden(x.flatten(1))))


def _pooled(x: Tensor) -> Tensor:
    """max_pool(relu(x)), in the order that leaves a quarter of the numbers to cut at 0; the bytes are the same."""
    return functional.relu(functional.max_pool2d(x, 2), inplace=True)


class FemnistNet(nn.Module):
    """LEAF's CNN for FEMNIST; the paper counts it with 62 classes in the text and 10 in its table."""

    grouped = False

    def __init__(self, classes: int = 62) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.hidden = nn.Linear(64 * 7 * 7, 2048)
        self.out = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = _pooled(self.conv2(_pooled(self.conv1(x))))
        return self.out(functional.relu(self.hidden(x.flatten(1))))


class TweetNet(nn.Module):
    """The LSTM of the paper's Table "Twitter Model"; it reads the state after the last word."""

    grouped = False

    def __init__(self, classes: int = 2, vocabulary: int = TWITTER_VOCABULARY, width: int = 300) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, 100, num_layers=2, batch_first=True)
        self.hidden = nn.Linear(100, 128)
        self.out = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(x))
        return self.out(functional.relu(self.hidden(states[:, -1])))


class PatchNet(nn.Module):
    """Two convolutions with stride = window: k x k pixels to 16 channels, then 2 x 2 of those to 32; linear."""

    grouped = True

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, side, _ = shape
        self.window = next(k for k in (4, 2) if side % k == 0 and (side // k >= 4))
        self.cells = side // self.window
        self.odd = self.cells % 2  # an odd grid is padded by one row and column
        half = (self.cells + self.odd) // 2
        self.conv1 = nn.Linear(channels * self.window**2, 16)
        self.conv2 = nn.Linear(16 * 4, 32)
        self.out = nn.Linear(32 * half**2, classes)

    def prepare(self, x: Tensor) -> Tensor:
        """The windows of the first convolution: the same in every round, so they are laid out once."""
        return _windows(x, self.window)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv1(x))
        x = functional.pad(x, (0, 0, 0, self.odd, 0, self.odd))
        x = functional.relu(self.conv2(_windows(x.permute(0, 3, 1, 2), 2)))
        return self.out(x.flatten(1))


def _windows(x: Tensor, k: int) -> Tensor:
    """(N, C, H, W) -> (N, H/k, W/k, C k k): the windows of a convolution with stride k."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // k, k, w // k, k).permute(0, 2, 4, 1, 3, 5).reshape(n, h // k, w // k, c * k * k)


class WordNet(nn.Module):
    """The mean of the words' vectors, one hidden layer: the quick stand-in for the LSTM."""

    grouped = True

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 16)
        self.hidden = nn.Linear(16, 16)
        self.out = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        there = (x != PADDING).to(self.out.weight.dtype)[..., None]
        mean = (self.embedding(x) * there).sum(1) / there.sum(1).clamp(min=1.0)
        return self.out(functional.relu(self.hidden(mean)))


MODELS: dict[str, Callable[[Dataset], nn.Module]] = {
    "cifar": lambda data: CifarNet(data.classes),
    "femnist": lambda data: FemnistNet(data.classes),
    "tweets": lambda data: TweetNet(data.classes, max(TWITTER_VOCABULARY, data.vocabulary)),
    "patches": lambda data: PatchNet(data.x.shape[1:], data.classes),
    "words": lambda data: WordNet(data.vocabulary, data.classes),
}


def build(name: str, data: Dataset, seed: int = 0) -> nn.Module:
    """The model called `name` for a data set, initialised by `seed` without touching torch's global generator."""
    if name not in MODELS:
        raise SettingError(f"There is no model {name!r}.{nearest(name, MODELS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](data)


def embedding_of(model: nn.Module, rows: np.ndarray) -> nn.Embedding:
    """These rows of a model's embedding, as one of their own."""
    table = model.get_parameter("embedding.weight").detach()
    return nn.Embedding.from_pretrained(table[torch.from_numpy(rows)], freeze=False)


def weights(model: nn.Module) -> Update:
    """The model's parameters as the center keeps them: name -> array."""
    return {name: p.detach().numpy().copy() for name, p in model.named_parameters()}


def size(model: nn.Module) -> int:
    """How many parameters a model has.

    >>> size(CifarNet())
    1250858
    """
    return int(np.sum([p.numel() for p in model.parameters()]))
