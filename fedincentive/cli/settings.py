"""`fedincentive settings`: the reference of the `incentive:` mapping, as Markdown."""

from __future__ import annotations

import json

import click

HEADER = """# Settings

All settings of a run stand in one nested mapping: `incentive_args: {incentive: {...}}` in a FedML config, `incentive:`
in a `GAME.yaml`, keys `incentive.<name>` in a Flower app's run config. An unknown key is an error that names the
nearest known one. Money is exact, so prices are quoted decimals. This page is printed by `fedincentive settings`.
"""


# Money and rates, whose checks do not say what they take.
EXACT = {
    "beta": "a quoted decimal above 0",
    "most_owed": "a number above 0",
    "fine": "a quoted decimal",
    "steering": "a quoted decimal, 0 or more",
    "cost": "a number, or a number for each agent",
    "most_points": "a number, or a number for each agent",
    "need": "a number, or a number for each agent",
    "spillover": "0 to 1, or such a number for each agent",
    "lump_sums": "an exact amount for each agent",
    "auditors": "a list of names",
}

# The first setting of each topic, in the order of the schema.
TOPICS = {
    "mechanism": "The algorithm",
    "beta": "Payments",
    "auditors": "Audits of delivery",
    "slope": "Agents",
    "aggregation": "The center",
    "run": "The run",
}


def rows() -> list[dict[str, str]]:
    """Every setting with its topic, default, allowed values and meaning."""
    from .. import payments
    from ..aggregation import rules
    from ..mechanisms import Settings, registry

    names = {
        "aggregation": [rule.name for rule in rules()],
        "mechanism": [*registry.OURS],
        "payment": [*(one.name for one in payments.OURS), *payments.TOGETHER],
    }
    found, topic = [], ""
    for key, default, allowed, meaning in Settings.documentation():
        topic = TOPICS.get(key, topic)
        if key in names:
            allowed = ", ".join(f"`{name}`" for name in names[key])
        elif not allowed:
            allowed = "`true`, `false`" if default in ("True", "False") else EXACT.get(key, "")
        found.append({"setting": key, "topic": topic, "default": default, "allowed": allowed, "meaning": meaning})
    return found


def reference() -> str:
    """A table for each topic."""
    lines, topic = [HEADER.strip()], ""
    for row in rows():
        if row["topic"] != topic:
            topic = row["topic"]
            lines += [f"\n## {topic}\n", "| setting | default | allowed | meaning |", "|---|---|---|---|"]
        default = f"`{row['default']}`" if row["default"] else ""
        lines.append(f"| `{row['setting']}` | {default} | {row['allowed']} | {row['meaning']} |")
    return "\n".join(lines)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the settings as JSON.")
def settings(as_json: bool) -> None:
    """Every setting of a run, its default, its allowed values and its meaning."""
    click.echo(json.dumps(rows(), indent=2) if as_json else reference())
