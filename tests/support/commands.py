"""The `fedincentive` command in this process, where it starts at once."""

from __future__ import annotations

from click.testing import CliRunner, Result

from fedincentive.cli import main


def command(*arguments: object) -> Result:
    """How it ends when a person types these words; an error that it does not explain is raised."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="fedincentive")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done
