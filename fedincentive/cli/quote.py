"""`fedincentive quote GAME.yaml`: what the payments would mean for each agent, before anyone signs."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("game", type=click.Path(dir_okay=False, path_type=Path), metavar="GAME.yaml")
@click.option("--beta", help='Price of one point, e.g. "0.05"; otherwise incentive.beta, otherwise a proposal.')
@click.option("--json", "as_json", is_flag=True, help="Print the whole quote as JSON.")
def quote(game: Path, beta: str | None, as_json: bool) -> None:
    """Each agent's payment, worst case and utility against training alone; who loses; which beta works."""
    from ..checks import exact, real
    from ..game.quoting import quote as make
    from ..game.reading import load
    from ..mechanisms import Settings

    file = load(game)
    Settings.read({**file.incentive, **({} if beta is None else {"beta": beta})})  # nor would it be played otherwise
    price = file.incentive.get("beta") if beta is None else beta
    gamma = file.incentive.get("gamma")
    found = make(
        file.game,
        None if price is None else exact(above=0)("incentive.beta" if beta is None else "--beta", price),
        gamma=None if gamma is None else real(above=0.0)("incentive.gamma", gamma),
    )
    click.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
