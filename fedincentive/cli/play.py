"""`fedincentive play GAME.yaml`: play a closed-form game to its end and certify the outcome."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..plain import left, width

if TYPE_CHECKING:
    from ..center import Outcome
    from ..game import Game
    from ..messages import RoundResult

SHOWN = 25  # agents in the table; --json has them all


def pairs(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """AGENT=NAME, given any number of times."""
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not of the form AGENT=NAME.")
    return dict(value.rsplit("=", 1) for value in values)


def note_costs(incentive: Mapping[str, Any]) -> None:
    """`incentive.cost` looks like the agents' costs, which a game has in another place; and what stops a federation
    does not stop a game."""
    from ..errors import SettingError

    if "accept_losses" in incentive:
        raise SettingError(
            "incentive.accept_losses is for federations: a game is played in any case, and `fedincentive quote` says "
            "who loses. Leave it out here."
        )
    if "cost" in incentive:
        click.echo(
            "Note: incentive.cost only informs payments that need to know costs. The costs that agents bear are `cost` "
            "in the game's `each` or `agents`.",
            err=True,
        )


@click.command()
@click.argument("game", type=click.Path(dir_okay=False, path_type=Path), metavar="GAME.yaml")
@click.option("--mechanism", help="Play this mechanism instead of the file's.")
@click.option("--beta", help='Price of one point, e.g. "0.05", instead of the file\'s.')
@click.option("--strategy", callback=pairs, multiple=True, metavar="AGENT=NAME", help="An agent's strategy.")
@click.option("--lies", callback=pairs, multiple=True, metavar="AGENT=NAME", help="An agent's misreport or attack.")
@click.option("--ledger", "target", metavar="PATH", help="Write payments to this ledger (a path or postgresql://).")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Keep the run's state in this directory. With --ledger it is kept in LEDGER.runs/RUN, or for postgresql:// in "
    "fedincentive-runs/RUN/state, unless given.",
)
@click.option("--resume", is_flag=True, help="Continue the run that --state (or --ledger) holds.")
@click.option("--plot", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Draw PNG and SVG here.")
@click.option("--json", "as_json", is_flag=True, help="Print outcome and certificate as JSON.")
def play(
    game: Path,
    mechanism: str | None,
    beta: str | None,
    strategy: dict[str, str],
    lies: dict[str, str],
    target: str | None,
    state: Path | None,
    resume: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Play a closed-form game: contributions, payments, utilities, and the certificate of what was achieved."""
    from .. import engine, plots
    from ..game import load
    from ..settings import Settings

    file = load(game)
    given = {"mechanism": mechanism, "beta": beta, "resume": resume or None}
    values = {**file.incentive, **{key: value for key, value in given.items() if value is not None}}
    note_costs(file.incentive)
    settings = Settings.read(values)
    if plot is not None:
        plots.ready()
    history: list[RoundResult] = []
    with _Progress(settings.rounds, keep=history if plot is not None else None) as progress:
        outcome = engine.play(
            file.game,
            strategies=strategy,
            lies=lies,
            ledger=target or settings.ledger,
            state=state or settings.state,
            progress=progress,
            **{key: value for key, value in values.items() if key not in ("ledger", "state")},
        )
    rows = _rows(file.game, outcome, settings.minor)
    drawn = [] if plot is None else plots.save(plot, history, outcome, settings.minor)
    if as_json:
        certified = outcome.certificate.to_json() if outcome.certificate else None
        found = {"outcome": outcome.to_json(), "agents": rows, "certificate": certified}
        click.echo(json.dumps({**found, "plots": [str(path) for path in drawn]}, indent=2))
    else:
        _print(outcome, rows)
        if outcome.certificate and 2 * len(outcome.certificate.losers or ()) > len(rows):
            click.echo(
                f"\nMost agents would be better off training alone. `fedincentive quote {shlex.quote(str(game))}` says "
                "which prices and lump sums would change that."
            )
        if outcome.checkpoint:
            click.echo(f"\nLedger head {outcome.checkpoint}")
        for path in drawn:
            click.echo(f"Drawn: {path}")


class _Progress:
    """A bar on long runs, on a terminal only; keeps the rounds where they are drawn later."""

    def __init__(self, rounds: int, keep: list[RoundResult] | None) -> None:
        from tqdm import tqdm

        self.kept = keep
        self.bar = tqdm(total=rounds, unit=" rounds", desc="contributions", disable=None, delay=1.0, leave=False)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def __call__(self, result: RoundResult) -> None:
        if self.kept is not None:
            self.kept.append(result)
        if result.phase == "train":
            self.bar.set_description("training", refresh=False)
            self.bar.update()
        elif result.phase == "contribute":
            share = result.metrics.get("contribution_share", 0.0)
            self.bar.set_postfix_str(f"round {result.round + 1}, {share:.0%} of the data", refresh=False)
            self.bar.update(0)


def _rows(game: Game, outcome: Outcome, minor: int) -> list[dict[str, Any]]:
    """One row per agent that took part: u_i = v_i - c_i + payments, at what was really given; where agents lie, both
    are shown. Where models are degraded, v_i is that of the model it was given."""
    import numpy as np

    real = outcome.given if outcome.worked is None else outcome.worked
    given = np.array([real.get(agent, 0.0) for agent in game.agents])  # who declined gives nothing
    values = game.values(outcome.w["w"], given)
    costs = game.costs(given) if outcome.trained else np.zeros(len(given))  # promises cost nothing
    values = values - np.array([outcome.withheld.get(agent, 0.0) for agent in game.agents])
    rows = []
    for i, agent in enumerate(game.agents):
        if agent not in real:
            continue
        paid = outcome.payments[agent] / minor
        rows.append(
            {
                "agent": agent,
                "s0": float(game.s0[i]),
                "s": outcome.s[agent],
                "s_max": float(game.s_max[i]),
                **_delivered(outcome, agent),
                "value": float(values[i]),
                "cost": float(costs[i]),
                "payment": paid,
                **({"worth": outcome.worth.get(agent, 0.0)} if outcome.worth else {}),
                "utility": float(values[i] - costs[i]) + paid,
            }
        )
    return rows


def _delivered(outcome: Outcome, agent: str) -> dict[str, float]:
    said = outcome.delivered[agent] if outcome.trained else 0.0
    return {"delivered": said} if outcome.worked is None else {"said": said, "true": outcome.worked[agent]}


def _print(outcome: Outcome, rows: list[dict[str, Any]]) -> None:
    steps = f"{outcome.contributed} contribution and {outcome.trained} training rounds"
    click.echo(f"{outcome.mechanism}, run {outcome.run}: {outcome.status} after {steps}\n")
    columns = list(rows[0])
    cells = [[row[c] if c == "agent" else f"{row[c]:.6g}" for c in columns] for row in rows[:SHOWN]]
    widths = [max(width(line[k]) for line in [columns, *cells]) for k in range(len(columns))]
    for line in [columns, *cells]:
        first, *others = (
            left(text, w) if k == 0 else text.rjust(w) for k, (text, w) in enumerate(zip(line, widths, strict=True))
        )
        click.echo("  ".join([first, *others]))
    if len(rows) > SHOWN:
        click.echo(f"... and {len(rows) - SHOWN} more agents (--json shows all)")
    for agent, why in outcome.declined.items() if outcome.status != "declined" else ():  # else the advice says it
        click.echo(f"{agent} declined: {why}")
    if outcome.worked is not None:
        click.echo(
            "\nsaid: points per training round as reported and paid for; true: what it trained on in the last round."
        )
        click.echo("Value, cost and utility are at the truth.")
    if outcome.advice:
        click.echo(f"\n{outcome.advice}")
    refused = {why: count for why, count in outcome.counts.items() if count}
    if refused:
        click.echo("\nReports not counted: " + ", ".join(f"{count} {why}" for why, count in sorted(refused.items())))
    click.echo(f"\n{outcome.certificate}")
