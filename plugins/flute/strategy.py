"""FLUTE's strategies of ours: what clients send, and robust rules in place of FLUTE's weighted sum.

Clients count in the order of their numbers, so that the result has the same bits whatever the number of workers. The
server's optimizer and its schedule are FLUTE's own. A NaN or an infinity that would enter the model is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from core.strategies import BaseStrategy

from ... import aggregation
from .settings import rule_options


class FluteStrategy(BaseStrategy):
    """A client's change as it is; FLUTE's own strategies multiply it by a weight before anyone can look at it."""

    def __init__(self, mode: str, config: Any, model_path: str | None = None) -> None:
        super().__init__(mode, config, model_path)
        self.config = config

    def generate_client_payload(self, trainer: Any) -> dict[str, Any]:
        frozen = self.config["model_config"].get("freeze_layer", None)
        changes = [p.grad * 0 if name == frozen else p.grad for name, p in trainer.model.named_parameters()]
        return {"weight": trainer.num_samples, "gradients": [change.to("cpu") for change in changes]}


class FluteRobustStrategy(FluteStrategy):
    """The rule that `strategy:` names; its options are in `server_config.rule`."""

    def __init__(self, mode: str, config: Any, model_path: str | None = None) -> None:
        super().__init__(mode, config, model_path)
        self.rule, self.options = aggregation.rule(config["strategy"]), rule_options(config)
        self.received: dict[int, tuple[float, list[torch.Tensor]]] = {}  # client -> (weight, change)

    def process_individual_payload(self, worker_trainer: Any, payload: dict[str, Any]) -> bool:
        *gradients, client = payload["gradients"]
        if payload["weight"] == 0.0:
            return False
        self.received[int(client)] = float(payload["weight"]), gradients
        return True

    def combine_payloads(self, worker_trainer: Any, *_: Any, **__: Any) -> Any:
        received = [self.received[client] for client in sorted(self.received)]
        self.received = {}
        parameters = dict(worker_trainer.model.named_parameters())
        updates = [changes_of(parameters, gradients) for _, gradients in received]
        weighted = not self.rule.robust or "share" in self.options
        common: dict[str, Any] = {"weights": [weight for weight, _ in received] if weighted else None}
        if "center" in self.rule.options:
            common["center"] = {name: np.zeros_like(change) for name, change in updates[0].items()}
        found = self.rule.use(updates, **common, **self.options)
        for name, p in parameters.items():
            p.grad = -torch.as_tensor(found[name]).to(p.device)
        worker_trainer.update_model()
        return worker_trainer.run_lr_scheduler(force_run_val=False)


def changes_of(parameters: Any, gradients: list[torch.Tensor]) -> dict[str, np.ndarray]:
    """d = w_local - w by name; FLUTE's clients send w - w_local as a list."""
    return {name: -gradient.numpy() for name, gradient in zip(parameters, gradients, strict=True)}
