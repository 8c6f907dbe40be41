"""One FedML program that plays several configurations in turn, each in its own folder: starting costs more than a run.

several.py CONFIG... [-- FedML's options]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fedml
import torch
from fedml import FedMLRunner

EXAMPLES = Path(__file__).parents[2] / "examples" / "fedml"
sys.path.insert(0, str(EXAMPLES))
from main import digits  # noqa: E402


def configurations():  # type: ignore[no-untyped-def]
    """FedML's arguments for each configuration in turn, from its own folder."""
    program, *words = sys.argv
    cut = words.index("--") if "--" in words else len(words)
    for configuration in words[:cut]:
        os.chdir(Path(configuration).parent)
        sys.argv = [program, "--cf", configuration, "--run_id", "run", *words[cut + 1 :]]
        yield fedml.init(check_env=False)


if __name__ == "__main__":
    for args in configurations():
        torch.manual_seed(args.random_seed)
        torch.set_num_threads(1)
        dataset = digits(args.client_num_in_total, args.batch_size, args.random_seed)
        model = torch.nn.Sequential(torch.nn.Linear(64, 10))
        FedMLRunner(args, fedml.device.get_device(args), dataset, model).run()
