"""Aggregates large models from NVFlare's own tensor offload files, beside NVFlare's own mean.

    python benchmarks/nvflare_offload.py --clients 24 --parameters 120000000 --folder DIR

writes every client's model with NVFlare's own producer and consumer of offloaded tensors (481 MB a client), then takes
passes in processes of their own, and prints for each its time, as a multiple of reading the files once (just before and
just after it, the faster of both), and its peak memory above an idle process with NVFlare and torch. No file is in the
system's cache when a pass begins.
Two more passes draw the orders in which clients arrive, ours and NVFlare's, and compare the digests of the results.
It can be run in parts: `--files DIR` writes the files there if it has none and keeps them, `--passes` says which passes
to take (`--passes` alone: none, only write), so that a part is `--files DIR --passes median orders`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

LAYERS, INDEX = 12, "index.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--parameters", type=int, default=120_000_000)
    parser.add_argument("--orders", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where the files go; a temporary folder when not given")
    parser.add_argument("--files", type=Path, help="a folder for the files, which keeps them")
    parser.add_argument("--passes", nargs="*", default=list(PASSES), choices=PASSES)
    parser.add_argument("--pass", dest="role", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        found = (
            digests(given.role, given.folder, given.orders)
            if given.role in ORDERS
            else measured(given.role, given.folder)
        )
        print(json.dumps(found))
        return
    if given.files:
        compare(given.files, given)
        return
    folder = Path(tempfile.mkdtemp(prefix="offload-", dir=given.folder))
    try:
        compare(folder, given)
    finally:
        shutil.rmtree(folder)


def compare(folder: Path, given: argparse.Namespace) -> None:
    """All passes, one line for each."""
    if not (folder / INDEX).exists():
        write(folder, given.clients, given.parameters)
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    print(f"{len(list(folder.glob('site-*')))} clients: {size / 1e9:.1f} GB of offload files", flush=True)
    for role in given.passes:
        if role in ORDERS:
            different = len(set(run(folder, role, given.orders)))
            print(f"{PASSES[role]:<44}{given.orders} orders of arrival: {different} different results", flush=True)
            continue
        if role == "stock-memory" and available() < 1.3 * size:
            print(f"{PASSES[role]:<44}left out: it needs {size / 1e9:.0f} GB of memory")
            continue
        before, found, after = (run(folder, part) for part in ("read", role, "read"))
        read = min(before["seconds"], after["seconds"])
        seconds, above = found["seconds"], found["above"] / 1e9
        times = f"{seconds:8.1f} s{seconds / read:7.2f} x reading ({read:.1f} s)"
        print(f"{PASSES[role]:<44}{times}{above:8.2f} GB above idle", flush=True)


PASSES = {
    "mean": "mean, from the files",
    "trimmed-mean": "trimmed mean, from the files",
    "median": "median, from the files",
    "stock-offload": "NVFlare's mean, with offload",
    "stock-memory": "NVFlare's mean, all results in memory",
    "orders": "trimmed mean, from the files",
    "stock-orders": "NVFlare's mean, with offload",
}
ORDERS = {"orders": "trimmed-mean", "stock-orders": "stock-offload"}  # which pass they take in many orders


def write(folder: Path, clients: int, parameters: int) -> None:
    """The clients' models as NVFlare offloads them; values differ in size, so that sums depend on their order."""
    import torch
    from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer, TensorDownloadable

    index: dict[str, Any] = {}
    for client in range(clients):
        draw = torch.Generator().manual_seed(client)
        place = folder / f"site-{client:03d}"
        place.mkdir(parents=True)
        consumer, result = DiskTensorConsumer(str(place)), {}
        for layer in range(LAYERS):
            tensor = torch.randn(parameters // LAYERS, generator=draw) * 10.0 ** (client % 5)
            producer = TensorDownloadable({f"T{layer}": tensor}, 2**20)
            for item in range(producer.get_item_count()):
                result = consumer.consume_items([producer.produce_item(item)], result)
        consumer.release()
        index[place.name] = {f"layer-{layer}": result[f"T{layer}"] for layer in range(LAYERS)}
    (folder / INDEX).write_text(json.dumps(index))


def run(folder: Path, role: str, orders: int = 0) -> Any:
    """A pass in a process of its own, on files that are not in the system's cache."""
    for path in folder.rglob("*.safetensors"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    argv = [sys.executable, __file__, "--pass", role, "--orders", str(orders), "--folder", str(folder)]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def measured(role: str, folder: Path) -> dict[str, float]:
    if role == "read":
        begun = time.perf_counter()
        block = bytearray(4 * 2**20)
        for path in sorted(folder.rglob("*.safetensors")):
            with open(path, "rb", buffering=0) as file:
                while file.readinto(block):
                    pass
        return {"seconds": time.perf_counter() - begun}
    results = arriving(folder, 0)
    warm_up()
    idle = peak()
    begun = time.perf_counter()
    aggregate(role, results)
    return {"seconds": time.perf_counter() - begun, "above": peak() - idle}


def digests(role: str, folder: Path, orders: int) -> list[str]:
    """Of the results for so many orders of arrival."""
    found = []
    for order in range(orders):
        params, digest = aggregate(ORDERS[role], arriving(folder, order)), sha256()
        for name in sorted(params):
            digest.update(params[name].numpy().data)
        found.append(digest.hexdigest())
    return found


def aggregate(role: str, results: list[Any]) -> Any:
    return PASS_OF[role](results) if role in PASS_OF else ours(role, results)


def arriving(folder: Path, order: int) -> list[Any]:
    """Lazy references as NVFlare's controller hands them over, in a drawn order."""
    from nvflare.app_common.abstract.fl_model import FLModel
    from nvflare.app_opt.pt.lazy_tensor_dict import _LazyRef

    models = [
        FLModel(
            params={name: _LazyRef(path, key, None) for name, (path, key) in places.items()},
            meta={"client_name": site},
        )
        for site, places in json.loads((folder / INDEX).read_text()).items()
    ]
    random.Random(order).shuffle(models)
    return models


def warm_up() -> None:
    """Load what either side loads at its first use."""
    import numpy as np
    import torch
    from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper  # noqa: F401

    from fedincentive import trimmed_mean

    trimmed_mean([np.ones(8, "f4")] * 3, trim=1)
    torch.ones(8).add_(1)


def ours(rule: str, results: list[Any]) -> Any:
    from fedincentive.plugins.nvflare import RobustAggregator

    aggregator = RobustAggregator(rule, trim=2) if rule == "trimmed-mean" else RobustAggregator(rule)
    for result in results:
        aggregator.accept_model(result)
    return aggregator.aggregate_model().params


def stock(results: list[Any]) -> Any:
    """FedAvg's own steps with what it calls lazy references."""
    from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

    helper = WeightedAggregationHelper()
    for result in results:
        helper.add(result.params, 1.0, result.meta["client_name"], 0)
    return helper.get_result()


def stock_in_memory(results: list[Any]) -> Any:
    """The same without offload: results have arrived in memory before they are added."""
    for result in results:
        result.params = {name: ref.materialize() for name, ref in result.params.items()}
    return stock(results)


PASS_OF = {"stock-offload": stock, "stock-memory": stock_in_memory}


def peak() -> int:
    """The most memory this process has held, in bytes."""
    return kilobytes("/proc/self/status", "VmHWM") * 1024


def available() -> int:
    return kilobytes("/proc/meminfo", "MemAvailable") * 1024


def kilobytes(path: str, name: str) -> int:
    return next(int(line.split()[1]) for line in Path(path).read_text().splitlines() if line.startswith(name))


if __name__ == "__main__":
    main()
