"""`fedincentive audit RUN`: a person does again, at the site, what an agent says it did in a round."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import click

from .. import ledger as books
from ..agent import ClosedFormSite
from ..aggregation import StoredUpdate
from ..audit import examine
from ..audit.from_ledger import delivery, is_model
from ..errors import AggregationError
from ..game import read as read_game
from ..manifest import DEFAULT, SavedRun, find
from ..provenance.records import Commitment

file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path), metavar="RUN")
@click.option("--round", "number", type=int, required=True, help="The training round, as the ledger counts.")
@click.option("--agent", required=True, help="Whose delivery is audited.")
@click.option("--game", type=file, metavar="GAME.yaml", help="The closed-form game that was played.")
@click.option(
    "--site",
    metavar="MODULE:FUNCTION",
    help="Gives the site for an agent's name: an object with s_max, whole, update(w, points, step, s), and for data "
    "records() and reorder(seed).",
)
@click.option("--kept", type=file, metavar="FILE", help="What the site keeps of its commitment to its records.")
@click.option(
    "--model", type=file, metavar="FILE", help="The model of the round, where the run's state has it no more."
)
@click.option("--ledger", "address", metavar="LEDGER", help="The run's ledger, where it is not beside its state.")
def audit(
    run: Path,
    number: int,
    agent: str,
    game: Path | None,
    site: str | None,
    kept: Path | None,
    model: Path | None,
    address: str | None,
) -> None:
    """Check what an agent of RUN delivered in a round: its points, its records, and its update made again.

    RUN is the run's folder or its state folder. Exits 1 where the audit fails.
    """
    manifest = find(run)
    name = SavedRun.read(manifest).run
    with books.read(address or _beside(manifest)) as book:
        said, wanted = delivery((record.entry for record in book.entries(name)), number, agent)
    said = dataclasses.replace(said, w=_model(manifest.parent, model, wanted))
    found = examine(said, _site(agent, game, site), None if kept is None else Commitment.read(kept))
    click.echo(f"Audit of agent {agent!r} in round {number} (step {said.step}) of run {name!r}:")
    click.echo(f"  the agent signed {said.delivered / said.scale:g} points and the update {said.update[:16]}...")
    for line in found.checked:
        click.echo(f"  {line}")
    click.echo("passed" if found.passed else f"FAILED: {found.why}")
    sys.exit(0 if found.passed else 1)


def _beside(manifest: Path) -> Path:
    """The ledger of a run that FedML, Flower or `play` kept."""
    state = manifest.parent
    for place in (state.parent / DEFAULT, Path(str(state.parent).removesuffix(".runs"))):
        if place.is_file():
            return place
    raise click.ClickException(f"There is no ledger beside {state}: name it with --ledger.")


def _model(state: Path, given: Path | None, wanted: str) -> dict[str, Any]:
    """The model that the agent answered to, by its digest."""
    for path in [given] if given is not None else sorted(state.glob("model-*.safetensors")):
        try:
            with StoredUpdate(path) as stored:
                names = {
                    label: label.removeprefix("w:") for label in stored if ":" not in label or label.startswith("w:")
                }
                w = {name: stored[label] for label, name in names.items()}
        except AggregationError as error:
            raise click.ClickException(str(error)) from error
        if is_model(w, wanted):
            return w
    where = (
        f"{given} is another one" if given is not None else f"{state} has it no more (it keeps those of open audits)"
    )
    raise click.ClickException(f"The audit needs the model with the digest {wanted}: {where}; give it with --model.")


def _site(agent: str, game: Path | None, site: str | None) -> Any:
    if (game is None) == (site is None):
        raise click.UsageError("Name the game that was played with --game, or the agent's site with --site.")
    if game is not None:
        found = read_game(game)
        if agent not in found.agents:
            raise click.ClickException(f"{game} has no agent {agent!r}; it has {', '.join(found.agents)}.")
        return ClosedFormSite(found, found.agents.index(agent))
    module, _, function = str(site).partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), function)(agent)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.ClickException(f"--site {site}: {error}") from error
