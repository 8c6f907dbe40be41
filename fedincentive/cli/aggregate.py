"""`fedincentive aggregate`: robust aggregation of update files, without any framework."""

from __future__ import annotations

import sys
from pathlib import Path

import click

RULES = ("mean", "trimmed-mean", "median")


@click.command()
@click.argument("updates", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rule", "name", type=click.Choice(RULES), default="trimmed-mean", show_default=True)
@click.option("--trim", type=int, help="Clients trimmed per side (trimmed-mean).")
@click.option("--alpha", type=float, help="Fraction trimmed per side, instead of --trim.")
@click.option("--weights", help="One weight for each file, separated by commas (mean, trimmed-mean).")
@click.option("--nan-policy", type=click.Choice(["raise", "drop"]), default="raise", show_default=True)
@click.option("--memory", type=click.IntRange(min=1), default=256, show_default=True, help="MiB held at a time.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the kernel; all cores when not given.")
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The safetensors file to write."
)
def aggregate(
    updates: tuple[Path, ...],
    name: str,
    trim: int | None,
    alpha: float | None,
    weights: str | None,
    nan_policy: str,
    memory: int,
    threads: int | None,
    out: Path,
) -> None:
    """Aggregate safetensors files, one for each client, coordinate by coordinate, into one.

    Files larger than memory are fine: they are read piece by piece.
    """
    from tqdm import tqdm

    from ..aggregation import StoredUpdates, rule

    options: dict[str, object] = {"nan_policy": nan_policy, "threads": threads}
    if name == "trimmed-mean":
        if (trim is None) == (alpha is None):
            raise click.UsageError("--rule trimmed-mean needs either --trim or --alpha.")
        options |= {"trim": trim, "alpha": alpha}
    elif trim is not None or alpha is not None:
        raise click.UsageError(f"--trim and --alpha belong to --rule trimmed-mean, not to {name}.")
    if weights is not None:
        if name == "median":
            raise click.UsageError("--weights does not go with --rule median.")
        options["weights"] = _numbers(weights)
    with tqdm(unit="B", unit_scale=True, desc=name, leave=False, disable=sys.stderr is None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        request = StoredUpdates(updates, out=out, memory=memory * 2**20, progress=progress)
        rule(name)(request, **options)
    click.echo(f"{out}: {name} of {len(updates) - len(request.dropped)} updates")
    for position in request.dropped:
        click.echo(f"{updates[position]} was dropped: it has a NaN or infinity.", err=True)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--weights is {text!r}: give numbers separated by commas.") from None
