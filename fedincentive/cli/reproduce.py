"""`fedincentive reproduce NAME`: the paper's experiments on real data, one command each."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--preset", default="quick", show_default=True, help="quick (minutes on a laptop) or paper (its own scale)."
)
@click.option("--data", "directory", type=click.Path(path_type=Path), metavar="DIR", help="Where the data sets are.")
@click.option("--out", "-o", type=click.Path(path_type=Path), default=Path("results"), show_default=True, metavar="DIR")
@click.option("--seeds", type=click.IntRange(1), help="Runs per setting; the preset's own when not given.")
@click.option(
    "--on",
    "places",
    multiple=True,
    metavar="DATASET|ray://HOST:PORT",
    help="Only this data set (cifar10, femnist, sent140, digits); or on the machines of this Ray cluster.",
)
@click.option(
    "--only",
    "parts",
    multiple=True,
    metavar="LIST=VALUE,...",
    help="Only these of a list of the preset, such as alphas=0.1,0.2 or economies=paper.",
)
@click.option("--points", type=click.IntRange(5), help="The most examples of an agent; the preset's when not given.")
@click.option("--resume", is_flag=True, help="Continue where an interrupted run stopped.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes, one thread each; all cores when not given.")
@click.option("--budget", metavar="TIME", help="Leave out seeds and rounds until 2h, say, are enough, and say which.")
@click.option("--redraw", is_flag=True, help="Only draw the figures again, from the results in --out.")
def reproduce(
    names: tuple[str, ...],
    preset: str,
    directory: Path | None,
    out: Path,
    seeds: int | None,
    places: tuple[str, ...],
    parts: tuple[str, ...],
    points: int | None,
    resume: bool,
    jobs: int | None,
    budget: str | None,
    redraw: bool,
) -> None:
    """Reproduce figures of the paper: raw results, figures (PNG and SVG) and a manifest in OUT/NAME.

    \b
    NAME is one of: example1, step-sizes, welfare-vs-agents, welfare-vs-beta, welfare-vs-time,
    payments-vs-contribution, non-iid, adversarial, trimming, misreport, moral-hazard, one-point; or all.
    """
    try:
        from ..experiments import runner
        from ..experiments.cluster import SCHEME
        from ..experiments.studies import STUDIES
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is needed for the experiments: pip install 'fedincentive[torch,plots]'."
        ) from error
    clusters = [place for place in places if place.startswith(SCHEME)]
    if len(clusters) > 1:
        raise click.UsageError(f"--on names two clusters, {clusters[0]} and {clusters[1]}: give one.")
    only = [place for place in places if place not in clusters]
    lists = {key: values.split(",") for key, _, values in (part.partition("=") for part in parts)}
    chosen = list(STUDIES) if names == ("all",) else list(names)
    for name in chosen:
        runner.find(name)
    for name in chosen:
        if redraw:
            files = runner.draw(out / name)
        else:
            try:
                folder = runner.run(
                    name, out, preset=preset, directory=directory, seeds=seeds, resume=resume, jobs=jobs, only=only,
                    parts=lists, points=points, budget=budget, cluster=clusters[0] if clusters else None,
                    say=lambda line: click.echo(line, err=True),
                )  # fmt: skip
            except KeyboardInterrupt:
                raise click.ClickException(
                    f"Interrupted. What is done is kept: run the same command with --resume to go on with {name}."
                ) from None
            files = sorted(folder.glob("*.png"))
        for path in files:
            click.echo(path)
