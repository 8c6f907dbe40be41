"""`fedincentive doctor`: what is installed, what is active, what is missing."""

from __future__ import annotations

import click


@click.command()
def doctor() -> None:
    """What is installed, what is active, what is missing."""
    import platform

    from .. import __version__

    click.echo(f"fedincentive {__version__}, Python {platform.python_version()}")
