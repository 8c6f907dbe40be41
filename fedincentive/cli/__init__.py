"""The `fedincentive` command. Each subcommand lives in its own module and is imported when called."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import warnings

import click

from .. import __version__
from ..checks import nearest
from ..errors import FedIncentiveError

# subcommand -> (module, one line of help shown without importing it)
COMMANDS = {
    "aggregate": ("aggregate", "Aggregate update files robustly, larger than memory, without any framework."),
    "attest": ("attest", "Commit to a site's records, open some of them, find what others have too."),
    "audit": ("delivery", "Do again, at the site, what an agent says it did in a round."),
    "certify": ("certify", "Show the certificate of a finished run: what held, what was broken, on what basis."),
    "doctor": ("doctor", "What is installed, what is active, what is missing."),
    "keys": ("keys", "Make, show, rotate and revoke the keys by which agents and center sign."),
    "league": ("league", "Play every mechanism on the same games and search every claim."),
    "ledger": ("ledger", "Read, check, export, correct and pay out a payment ledger."),
    "new": ("new", "Write a first game, mechanism, payment, FedML or Flower project that runs at once."),
    "names": ("names", "Make, show and erase the names behind a ledger's pseudonyms."),
    "play": ("play", "Play a closed-form game to its end and certify the outcome."),
    "quote": ("quote", "What the payments of a game would mean for each agent, before anyone signs."),
    "receipt": ("receipt", "Check the file that proves an entry to be in a ledger."),
    "report": ("report", "Write a run as one self-contained HTML page."),
    "reproduce": ("reproduce", "Reproduce the paper's experiments on real data: results, figures, manifest."),
    "settings": ("settings", "Every setting of a run, its default and its meaning."),
    "watch": ("watch", "Follow a running federation on a local page."),
}


class LazyGroup(click.Group):
    """Loads a subcommand's module only when it is used: `--help` stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__name__}.{COMMANDS[name][0]}")
        return getattr(module, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(self, ctx: click.Context, args: list[str]):  # type: ignore[no-untyped-def]
        for word in args:
            if not _can_be_named(word):
                ctx.fail(f"{word!r} has a character that no name of a file or an agent can have.")
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No command {args[0]!r}.{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context):  # type: ignore[no-untyped-def]
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a name that this screen cannot show
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's; what overflows is refused in words
                return super().invoke(ctx)
        except FedIncentiveError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read has enough; click ends quietly
            what = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{what}{error.strerror or error}.") from error


def _can_be_named(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="fedincentive")
def main() -> None:
    """Incentives, payments and robust aggregation for federated learning."""
