"""`fedincentive settings`: the reference of the `incentive:` mapping, as Markdown."""

from __future__ import annotations

import click

HEADER = """# Settings

All settings of a run stand in one nested mapping: `incentive_args: {incentive: {...}}` in a FedML config, `incentive:`
in a `GAME.yaml`, keys `incentive.<name>` in a Flower app's run config. An unknown key is an error that names the
nearest known one. Money is exact, so prices are quoted decimals. This page is printed by `fedincentive settings`.
"""


def reference() -> str:
    """One row for each setting, in the order of the schema."""
    from ..mechanisms import Settings

    rows = [
        f"| `{key}` | {f'`{default}`' if default else ''} | {text} |" for key, default, text in Settings.documentation()
    ]
    return "\n".join([HEADER, "| setting | default | meaning |", "|---|---|---|", *rows])


@click.command()
def settings() -> None:
    """Every setting of a run, its default and its meaning."""
    click.echo(reference())
