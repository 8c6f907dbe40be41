"""Metrics where FedML users look: mlops, and wandb where it is enabled."""

from __future__ import annotations

from typing import Any

from fedml import mlops

from ...messages import SCALARS, RoundResult


def record(args: Any, result: RoundResult, minor: int, regret: float | None = None) -> None:
    """Rounds with a model go to mlops and wandb, each agent under its name; the log has a line for every round."""
    if result.repeated or result.phase in SCALARS:
        return
    values: dict[str, Any] = {f"Incentive/{name}": value for name, value in result.metrics.items()}
    values |= {f"Incentive/contribution/{agent}": s for agent, s in result.s.items()}
    values |= {f"Incentive/payment/{agent}": amount / minor for agent, amount in result.payments.items()}
    for agent, (worth, half) in result.worth.items():
        values |= {f"Incentive/worth/{agent}": worth, f"Incentive/worth_interval/{agent}": half}
    values |= {"Incentive/contribution": sum(result.s.values()), "round": result.step}
    if regret is not None:
        values["Incentive/regret"] = regret
    mlops.log(values)
    if getattr(args, "enable_wandb", False):
        import wandb

        wandb.log({**values, "Incentive/ledger_head": result.head})
