"""`fedincentive audit RUN`: a person does again, at the site, what an agent says it did in a round."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator, Mapping
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
from ..identity import digest
from ..manifest import DEFAULT, SavedRun, find
from ..provenance.keys import name_in_files
from ..provenance.records import Commitment, tag_key

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
@click.option(
    "--kept", type=file, metavar="FILE", help="What the site keeps of its commitment, where that is not with the run."
)
@click.option("--tags", type=file, metavar="FILE", help="The key of the sites' tags, to check those it enrolled.")
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
    tags: Path | None,
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
        models = {entry.inputs["model"]: entry.round for entry in trained(book, name)}
    at_site = _site(agent, game, site)
    said = dataclasses.replace(said, w=_model(manifest.parent, model, wanted, models))
    kept = kept or _kept(manifest, agent)
    own, key = None if kept is None else Commitment.read(kept), None if tags is None else tag_key(tags)
    found = examine(said, at_site, own, tag_key=key)
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


def trained(book: books.Ledger, run: str) -> Iterator[books.Entry]:
    """The reports of the training rounds."""
    return (record.entry for record in book.entries(run) if record.entry.kind == "reports-train")


def _kept(manifest: Path, agent: str) -> Path | None:
    """What the site keeps of its commitment, where it is kept with the run."""
    path = manifest.parent.parent / "agents" / f"{name_in_files(agent)}.records"
    return path if path.is_file() else None


def _model(state: Path, given: Path | None, wanted: str, rounds: Mapping[str, int]) -> dict[str, Any]:
    """The model that the agent answered to, by its digest; `rounds` says which round began with which."""
    here = []
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
        here += [f"round {rounds[digest(w)]}"] if digest(w) in rounds else []
    has = f"it has those of {', '.join(here)}" if here else "it has none of a training round"
    where = f"{given} is another one" if given is not None else f"{state} has it no more ({has})"
    raise click.ClickException(f"The audit needs the model with the digest {wanted}: {where}; give it with --model.")


def _site(agent: str, game: Path | None, site: str | None) -> Any:
    if (game is None) == (site is None):
        raise click.UsageError(
            "Name the game that was played with --game, or with --site MODULE:FUNCTION a function that makes the "
            "agent's site from its name, as the agent's own program does."
        )
    if game is not None:
        found = read_game(game)
        if agent not in found.agents:
            raise click.ClickException(f"{game} has no agent {agent!r}; it has {', '.join(found.agents)}.")
        return ClosedFormSite(found, found.agents.index(agent))
    module, _, function = str(site).partition(":")
    if not module or not function:
        raise click.UsageError(f"--site {site}: write MODULE:FUNCTION.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(importlib.import_module(module), function)(agent)
    except Exception as error:  # it is the person's own program
        raise click.ClickException(f"--site {site}: {type(error).__name__}: {error}") from error
    if lacks := [what for what in ("s_max", "whole", "update") if not hasattr(made, what)]:
        raise click.ClickException(f"--site {site} gives a {type(made).__name__} without {', '.join(lacks)}: no site.")
    return made
