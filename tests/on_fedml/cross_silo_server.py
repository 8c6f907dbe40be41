"""The server's side of FedML's own cross-silo FedAvg, round by round in one process; two of three clients each time."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import fedml
import torch
from fedincentive.plugins.fedml import contribution
from fedml.core import Context
from fedml.cross_silo.server.fedml_aggregator import FedMLAggregator
from fedml.ml.aggregator.default_aggregator import DefaultServerAggregator
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS
from main import digits

SELECTED = ([1, 2], [2, 3], [1, 3])


def run(args: Any) -> None:
    torch.manual_seed(0)
    dataset = digits(3, args.batch_size)
    model, device = torch.nn.Sequential(torch.nn.Linear(64, 10)), torch.device("cpu")
    trainer = ModelTrainerCLS(torch.nn.Sequential(torch.nn.Linear(64, 10)), args)
    aggregator = DefaultServerAggregator(model, args)
    server = FedMLAggregator(dataset[2], dataset[3], dataset[0], *dataset[5:7], dataset[4], 2, device, args, aggregator)
    found: dict[str, Any] = {"losses": [], "values": []}
    for args.round_idx, clients in enumerate(SELECTED):
        w = {name: tensor.clone() for name, tensor in server.get_global_model_params().items()}
        found["losses"].append(aggregator.test(dataset[3], device, args)[1])
        for place, client in enumerate(clients):
            trainer.set_model_params(w)
            trainer.train(dataset[5][client - 1], device, args)
            local = OrderedDict((name, tensor.clone()) for name, tensor in trainer.get_model_params().items())
            server.add_local_trained_result(place, local, dataset[4][client - 1])
        server.aggregate()
        Context().add(Context.KEY_CLIENT_ID_LIST_IN_THIS_ROUND, clients)
        server.test_on_server_for_all_clients(args.round_idx)
        after = {name: tensor.clone() for name, tensor in server.get_global_model_params().items()}
        server.assess_contribution()
        assert all(torch.equal(after[name], tensor) for name, tensor in server.get_global_model_params().items())
        found["values"].append({name: values[-1] for name, values in server.assessor.worth.items()})
    found["losses"].append(aggregator.test(dataset[3], device, args)[1])
    found["final"] = aggregator.final_contribution_assigment_dict
    Path("found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    given = fedml.init()
    contribution.install(given)
    if "contribution_alg" in vars(given):
        run(given)
    sys.exit(0)
