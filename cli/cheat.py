"""`barnabas cheat`: what Kafka's scripts, kcat, rpk and kcl are called here."""

import click

from barnabas.cli.cheat_sheet import SHEETS
from barnabas.cli.output import as_json, show


@click.command()
@click.argument("tool", type=click.Choice(sorted(SHEETS)), required=False)
@as_json
def cheat(tool: str | None, as_json: bool) -> None:
    """Show our commands beside Kafka's scripts, kcat, rpk and kcl."""
    shown = [tool] if tool else list(SHEETS)
    rows = [{"tool": name, "theirs": theirs, "ours": ours} for name in shown for theirs, ours in SHEETS[name]]
    if as_json:
        show(rows, [], as_json=True)
        return

    for name in shown:
        click.echo(f"{name}\n")
        # Two lines for each: side by side they do not fit a terminal.
        for theirs, ours in SHEETS[name]:
            click.echo(f"  {theirs}\n    {ours}")
        click.echo()
