"""Metrics where FedML users look: its log, mlops, and wandb where it is enabled."""

from __future__ import annotations

import logging
from typing import Any

from fedml import mlops

from ...messages import RoundResult

log = logging.getLogger("fedincentive")


def record(args: Any, result: RoundResult, minor: int, regret: float | None = None) -> None:
    """One line per round in the log; rounds with a model also go to mlops and wandb, each agent under its name."""
    if result.repeated:
        log.warning("Round %d (%s) is asked again: too few agents answered", result.round, result.phase)
        return
    total = sum(result.s.values())
    absent = f", absent {', '.join(result.absent)}" if result.absent else ""
    welfare = f", welfare {result.metrics['welfare']:.6g}" if "welfare" in result.metrics else ""
    regrets = f", regret {regret:.6g}" if regret is not None else ""
    head = f", ledger {result.head[:16]}" if result.head else ""
    rest = welfare + regrets + absent + head
    log.info("Round %d (%s): contributions %.6g%s", result.round, result.phase, total, rest)
    if result.phase == "contribute":
        return
    values: dict[str, Any] = {f"Incentive/{name}": value for name, value in result.metrics.items()}
    values |= {f"Incentive/contribution/{agent}": s for agent, s in result.s.items()}
    values |= {f"Incentive/payment/{agent}": amount / minor for agent, amount in result.payments.items()}
    values |= {"Incentive/contribution": total, "round": result.step}
    if regret is not None:
        values["Incentive/regret"] = regret
    mlops.log(values)
    if getattr(args, "enable_wandb", False):
        import wandb

        wandb.log({**values, "Incentive/ledger_head": result.head})
