"""`fedincentive quote GAME.yaml`: what the payments would mean for each agent, before anyone signs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import click

from .play import note_costs


def _refuse_names(agents: Sequence[str]) -> None:
    """Refuse names that no run would take: a quote prints them on a terminal."""
    from ..center.names import twins, wrong_with_name
    from ..entry import RESERVED
    from ..errors import SettingError

    wrong = next(filter(None, map(wrong_with_name, agents)), "") or twins(agents)
    if taken := [agent for agent in agents if agent in RESERVED]:
        wrong = f"Agent {taken[0]!r} needs another name: that is one of the center's accounts."
    if wrong:
        raise SettingError(wrong)


@click.command()
@click.argument("game", type=click.Path(dir_okay=False, path_type=Path), metavar="GAME.yaml")
@click.option("--mechanism", help="Quote this mechanism instead of the file's.")
@click.option("--beta", help='Price of one point, e.g. "0.05"; otherwise incentive.beta, otherwise a proposal.')
@click.option(
    "--margin",
    type=click.FloatRange(-1e12, 1e12),
    default=0.0,
    help="What lump sums should leave everyone above training alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole quote as JSON.")
def quote(game: Path, mechanism: str | None, beta: str | None, margin: float, as_json: bool) -> None:
    """Each agent's payment, worst case, deposit and utility against training alone; who loses; which beta and which
    lump sums work."""
    from .. import mechanisms
    from ..errors import SettingError
    from ..game import load
    from ..game import quote as make
    from ..settings import Settings

    if math.isnan(margin):
        raise SettingError("--margin must be a number, not nan.")
    file = load(game)
    _refuse_names(file.game.agents)
    given = {"mechanism": mechanism, "beta": beta}
    values = {**file.incentive, **{key: value for key, value in given.items() if value is not None}}
    note_costs(file.incentive)
    settings = mechanisms.prepared(Settings.read(values), file.game)
    played = mechanisms.get(settings.mechanism, settings)
    found = make(
        file.game,
        settings.beta if "beta" in values else None,
        payments=played.payments,
        mechanism=played.name,
        full_contribution=played.gives_all,
        phase_one=played.two_phases,
        gamma=settings.gamma if "gamma" in values else None,
        margin=margin,
        most_owed=settings.most_owed,
        minor=settings.minor,
        currency=settings.currency,
    )
    click.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
