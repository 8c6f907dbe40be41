"""`fedincentive aggregate`: robust aggregation of update files, without any framework."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import AggregationError, SettingError

if TYPE_CHECKING:
    from ..aggregation import Rule

FILE = click.Path(dir_okay=False, path_type=Path)


def spelt(option: str) -> str:
    return f"--{option.replace('_', '-')}"


class WithRules(click.Command):
    """Its help ends with all rules, those of other packages too: what each needs and takes, and its conventions."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..aggregation import rules
        from ..aggregation.rules import BEFORE

        offered = [option for parameter in self.params for option in parameter.opts]
        with formatter.section("Rules"):
            formatter.write_dl([(rule.name, described(rule, offered)) for rule in rules()], col_max=20)
        with formatter.section("Before a rule, joined by + (such as nnm+median)"):
            formatter.write_dl([(each.name, each.conventions) for each in BEFORE.values()], col_max=20)


def described(rule: Rule, offered: Collection[str]) -> str:
    needed = " and ".join(" or ".join(map(spelt, group)) for group in rule.needs)
    others = [spelt(option) for option in rule.takes if not any(option in group for group in rule.needs)]
    taken = ", ".join(option for option in others if option in offered)
    memory = "Reads files piece by piece." if rule.works_on_files else "Holds all files in memory."
    parts = (rule.conventions, needed and f"Needs {needed}.", taken and f"Takes {taken}.", memory)
    return " ".join(filter(None, parts))


@click.command(cls=WithRules)
@click.argument("updates", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--rule", "name", default="trimmed-mean", show_default=True, help="One of the rules below.")
@click.option("--trim", type=int, help="Clients trimmed per side.")
@click.option("--alpha", type=float, help="The part of the clients to trim per side, or to withstand.")
@click.option("--share", type=float, help="The part of the weight to trim per side.")
@click.option("--cap", type=float, help="With --share: the largest part of the weight one file may have.")
@click.option("--f", type=int, help="Clients to withstand.")
@click.option("--m", type=int, help="Updates to average.")
@click.option("--clip", type=float, help="The longest update, or difference from the center.")
@click.option("--center", type=FILE, help="The file to clip around, such as the last result.")
@click.option("--trusted", type=int, help="The number of the file that is trusted, from 0.")
@click.option("--bucket", type=int, help="Files in a bucket; 2 when not given.")
@click.option("--seed", type=int, help="Of random buckets; 0 when not given.")
@click.option("--convention", type=click.Choice(["paper", "byzfl"]), help="Krum's neighbours; paper when not given.")
@click.option("--weights", help="One weight for each file, separated by commas.")
@click.option("--nan-policy", type=click.Choice(["raise", "drop"]), help="Of NaN and infinity; raise when not given.")
@click.option("--memory", type=click.IntRange(min=1), default=256, show_default=True, help="MiB of pieces at a time.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the kernel; all cores when not given.")
@click.option("--evidence/--no-evidence", default=True, help="Read the files again to say which look adversarial.")
@click.option("--out", "-o", required=True, type=FILE, help="The safetensors file to write.")
def aggregate(updates: tuple[Path, ...], name: str, memory: int, evidence: bool, out: Path, **common: Any) -> None:
    """Aggregate update files, one for each client, into one, by a robust rule.

    Files are safetensors, torch.save's (.pt, .pth, .bin; weights only, nothing in them is executed), .npz or .npy; a
    folder with an index.json or a model file is one client's, any other stands for the files in it. Safetensors files
    larger than memory are fine where the rule reads them piece by piece.
    """
    from tqdm import tqdm

    from ..aggregation import StoredUpdates, rule
    from ..aggregation.formats import NUMPY, TORCH, expanded, open_update

    if out.suffix.lower() in (*TORCH, *NUMPY):
        raise click.UsageError(
            f"--out {out}: the result is a safetensors file. Name it {out.with_suffix('.safetensors').name}."
        )
    updates = tuple(expanded(updates))
    given = {option: value for option, value in common.items() if value is not None}
    try:
        chosen = rule(name)
        chosen.check(given, spelt)
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    if "weights" in given:
        given["weights"] = _numbers(given["weights"])
    if "center" in given:
        given["center"] = dict(open_update(given["center"], "the center"))
    with tqdm(
        unit="B", unit_scale=True, desc=name, leave=False, disable=sys.stderr is None or not sys.stderr.isatty()
    ) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        request = StoredUpdates(updates, out=out, memory=memory * 2**20, progress=progress)
        chosen.use(request, **given)
    click.echo(f"{out}: {name} of {len(updates) - len(request.dropped)} updates")
    certified(chosen, updates, given, out, evidence)
    for position in request.dropped:
        click.echo(f"{updates[position]} was dropped: it has a NaN or infinity.", err=True)


def certified(rule: Rule, updates: tuple[Path, ...], given: Mapping[str, Any], out: Path, look: bool) -> None:
    """What the rule promises with the f it was set to, and what the updates look like."""
    from .. import aggregation

    n = len(updates)
    f = given.get("f", given.get("trim"))
    if f is None:
        f = aggregation.trim_count(given["alpha"], n) if "alpha" in given else (n - 1) // 2
    if rule.robust and "share" not in given:
        click.echo(f"Certified: {aggregation.robustness(rule.name, n, f)}")
    if "share" in given:
        click.echo(
            f"Certified: files with at most {100 * given['share']:.4g} % of the weight together cannot move the result "
            "outside the range of the others."
        )
    if rule.robust and look:
        try:
            seen = aggregation.evidence(updates, out)
        except AggregationError:
            return  # a rule of others, whose result has another form than the updates
        click.echo(f"Evidence: {seen}")
        for position in seen.suspects:
            click.echo(f"  {updates[position]}: at distance {seen.distances[position]:.4g}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--weights is {text!r}: give numbers separated by commas.") from None
