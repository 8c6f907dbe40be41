"""`fedincentive league`: every mechanism on the same games, then every claim with what the search found."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("game", required=False, type=click.Path(exists=True, dir_okay=False), metavar="[GAME.yaml]")
@click.option("--games", type=click.IntRange(1, 100_000), default=24, show_default=True, help="How many random games.")
@click.option("--n", type=click.IntRange(2, 12), default=6, show_default=True, help="Agents in each random game.")
@click.option(
    "--family",
    type=click.Choice(["data-value", "common", "quadratic"]),
    default="data-value",
    show_default=True,
    help="Random games: own curves and ideals, one curve for all, or quadratic.",
)
@click.option(
    "--fit",
    type=click.FloatRange(0.0, 1e6),
    default=0.1,
    show_default=True,
    help="How much agents care for their own ideal model.",
)
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, show_default=True, help="Of the first game.")
@click.option("--row", "rows", multiple=True, metavar="NAME", help="Only these rows; any number of times.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Processes; one for each core when not given.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON: means, every game, verdicts.")
@click.option(
    "--figure", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Draw it (.png or .svg)."
)
@click.option("--replay", "witness", metavar="ROW:KIND:AGENT:VALUE", help="Play one lie again in the first game.")
def league(
    game: str | None,
    games: int,
    n: int,
    family: str,
    fit: float,
    seed: int,
    rows: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
    figure: Path | None,
    witness: str | None,
) -> None:
    """Play every mechanism on the same games: the table of what each achieves and what lies gain, then the claims.

    GAME.yaml plays that game instead of random ones.
    """
    from tqdm import tqdm

    from ..league import COLUMNS, ROWS
    from ..league import running as league_runs

    wanted = league_runs.Wanted(family, games, n, fit, seed, game, tuple(dict.fromkeys(rows or ROWS)))
    if witness is not None:
        click.echo(league_runs.replay(wanted, witness))
        return
    if figure is not None:
        from ..league import figure as drawing

        drawing.ready(figure)
    total = len(wanted.seeds) * len(wanted.rows)
    bar = tqdm(league_runs.play(wanted, jobs), total=total, unit=" rows", disable=None, delay=1.0, leave=False)
    played = list(bar)
    means, verdicts = league_runs.table(played), league_runs.verdicts(wanted, played)
    if figure is not None:
        drawing.draw(means, figure)
    if as_json:
        found = {
            "sources": {name: ROWS[name].source for name in wanted.rows},
            "table": means,
            "verdicts": [v.to_json() for v in verdicts],
            "games": [one.to_json() for one in played],
        }
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(league_runs.markdown(means))
    click.echo("\n" + "\n".join(f"{name}: {what}" for name, what in COLUMNS.items()))
    unsuited = {one.row: one.unsuited for one in played if one.unsuited}
    click.echo("".join(f"\n{name} is not played on some games: {why}." for name, why in unsuited.items()))
    click.echo("\nClaims\n\n" + "\n".join(str(verdict) for verdict in verdicts))
    if figure is not None:
        click.echo(f"\nDrawn: {figure}")
