"""One thread per process: small tensors gain nothing from more, and results do not depend on the machine's cores."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
