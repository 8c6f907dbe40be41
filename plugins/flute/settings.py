"""`strategy:` and `server_config.incentive` of FLUTE's YAML: the core's settings, plus those of the host.

strategy: 2p-upbred               # a mechanism, or a robust rule such as trimmed-mean
server_config:
  max_iteration: 20               # training rounds
  num_clients_per_iteration: 10   # how many are asked in each; 0 asks all
  incentive:                      # with a mechanism
    beta: "0.5"
  rule:                           # with a rule: its options
    trim: 1
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import aggregation, checks, hosting, mechanisms
from ...checks import nearest, setting, shown
from ...errors import SettingError
from ...settings import Settings

THEIRS = ("dga", "fedavg", "fedprox", "fedlabels")
# What FLUTE's YAML says elsewhere: the core's key -> FLUTE's
FLUTE_HAS = {
    "mechanism": "strategy",
    "rounds": "server_config.max_iteration",
    "sampled": "server_config.num_clients_per_iteration",
    "eta": "server_config.optimizer_config.lr",
    "resume": "server_config.resume_from_checkpoint",
    "learning_rate": "server_config.initial_lr_client",
    "batch": "client_config.data_config.train.batch_size",
}
NO_PART = (
    "FLUTE's DGA strategy alone applies it, and with {strategy} it would silently do nothing: turn it off, or take "
    "`strategy: DGA`."
)


@dataclasses.dataclass(frozen=True)
class FluteSettings(hosting.HostSettings):
    """What the FLUTE host needs beside `fedincentive.Settings`. Nobody joins over a network here, and FLUTE has no
    time-outs, so `join_timeout` and `round_timeout` change nothing."""

    title = "FLUTE"

    classes: int = setting(
        checks.integer(2), 2, help="Classes of the task: a model that guesses among them is worth nothing."
    )
    held_out: bool = setting(
        checks.flag,
        True,
        help="Whether a fifth of an agent's points is kept back to value models on; if not, the validation data of the "
        "user of its name is taken.",
    )
    game: str | None = setting(
        checks.optional(checks.path), None, help="A closed-form game (YAML) that is played instead of training."
    )


def is_ours(strategy: Any) -> bool:
    """Whether `strategy:` is a name of ours: a mechanism or a rule, with something before it perhaps."""
    known = isinstance(strategy, str) and (strategy in aggregation.names() or "+" in strategy)
    return known or is_mechanism(strategy)


def is_mechanism(strategy: Any) -> bool:
    """FLUTE's own names stay FLUTE's: it takes `fedavg`, which is a mechanism of ours too, for its FedAvg."""
    return strategy in mechanisms.names() and strategy not in THEIRS


def read(config: Mapping[str, Any]) -> tuple[Settings, FluteSettings]:
    """Both parts of `server_config.incentive`, completed from FLUTE's own settings; problems are SettingErrors."""
    server = config["server_config"]
    asked = server.get("num_clients_per_iteration", 1)
    if type(asked) is not int:
        raise SettingError(f"server_config.num_clients_per_iteration is {shown(asked)}: give one whole number.")
    fixed: dict[str, Any] = {
        "mechanism": config["strategy"],
        "rounds": server.get("max_iteration", 10_000),
        "eta": _step_size(server),
        "resume": server.get("resume_from_checkpoint", False),
        "sampled": asked if asked > 0 else None,
    }
    given = server.get("incentive") or {}
    settings, host = hosting.read(given, FluteSettings, fixed, FLUTE_HAS)
    if settings.audited:
        raise SettingError("incentive.auditors are named, but FLUTE has no sites of their own: leave them out.")
    output = Path(config.get("output_path") or ".") / host.output  # beside FLUTE's own results
    return settings, dataclasses.replace(host, output=str(output))


def check(config: Any) -> None:
    """Refuse, before any process waits for another, a strategy that nobody has and what ours would not do."""
    if not isinstance(config, Mapping) or not isinstance(config.get("server_config"), Mapping):
        raise SettingError("-config names no configuration of FLUTE: it has no server_config.")
    strategy = config.get("strategy")
    if not is_ours(strategy):
        if str(strategy).lower() not in THEIRS:
            known = sorted({*mechanisms.names(), *aggregation.names(), *THEIRS})
            raise SettingError(f"strategy is {shown(strategy)}, which does not exist.{nearest(str(strategy), known)}")
        return
    server, client = config["server_config"], config.get("client_config") or {}
    privacy, leaks = config.get("dp_config") or {}, config.get("privacy_metrics_config") or {}
    refused = {
        "dp_config.enable_local_dp": privacy.get("enable_local_dp"),
        "dp_config.enable_global_dp": privacy.get("enable_global_dp"),
        "server_config.wantRL": server.get("wantRL"),
        "client_config.quant_thresh": client.get("quant_thresh"),
    }
    for name, value in refused.items():
        if value:
            raise SettingError(f"{name} is {shown(value)}. " + NO_PART.format(strategy=strategy))
    mechanism = is_mechanism(strategy)
    wrong = {
        "server_config.type is personalization": server.get("type") == "personalization",
        "server_config.send_dicts is true": server.get("send_dicts"),
        "client_config.type is not optimization": client.get("type") != "optimization",
        "privacy_metrics_config.apply_metrics is true": mechanism and leaks.get("apply_metrics"),
        "server_config.data_config.train is given": mechanism and (server.get("data_config") or {}).get("train"),
        "server_config.fall_back_to_best_model is true": mechanism and server.get("fall_back_to_best_model"),
    }
    for name, found in wrong.items():
        if found:
            raise SettingError(f"{name}: strategy {strategy} does not work with that. Leave it out, or change it back.")
    if mechanism:
        if server.get("rule"):
            raise SettingError("server_config.rule is for robust rules: with a mechanism, set incentive.aggregation.")
        read(config)
    else:
        if server.get("incentive"):
            raise SettingError(f"server_config.incentive is for mechanisms; strategy {strategy} is a robust rule.")
        rule_options(config)


def rule_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """What `server_config.rule` says for the rule that `strategy` names."""
    rule, given = aggregation.rule(config["strategy"]), config["server_config"].get("rule") or {}
    checks.mapping("server_config.rule", given)
    if "center" in given:
        raise SettingError("server_config.rule.center is not needed: clients send changes, clipped around none.")
    rule.check([*given, *(["center"] if "center" in rule.options else [])])
    return dict(given)


def _step_size(server: Mapping[str, Any]) -> Any:
    """The server's step is the center's: plain SGD at one rate, which is `eta`."""
    optimizer, annealing = dict(server.get("optimizer_config") or {}), server.get("annealing_config") or {}
    rate, kind = optimizer.pop("lr", 1.0), optimizer.pop("type", "sgd")
    if kind != "sgd" or any(optimizer.values()) or annealing.get("gamma", 1.0) != 1.0:
        raise SettingError(
            "With a mechanism the center makes the step: server_config.optimizer_config must be sgd with an lr alone, "
            "and annealing_config.gamma 1.0. incentive.server_optimizer has others."
        )
    return rate
