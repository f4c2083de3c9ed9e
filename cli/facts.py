"""`barnabas version | apis | config`: what this broker is, what it serves, how it is configured."""

from collections.abc import Sequence

import click

from barnabas import __version__
from barnabas.cli.failing import fail
from barnabas.cli.output import as_document, print_json, show
from barnabas.cli.settings import assignments, gather_settings, properties_file
from barnabas.form import FORM
from barnabas.status import STATUS_MISUSED


@click.command()
@as_document
def version(as_json: bool) -> None:
    """Print the version, and the form: pure Python, or compiled."""
    import platform

    if as_json:
        print_json({"barnabas": __version__, "form": FORM, "python": platform.python_version()})
    else:
        click.echo(f"barnabas {__version__} ({FORM})")


@click.command()
@click.option("--all", "every", is_flag=True, help="Also those that are not served.")
@as_document
def apis(every: bool, as_json: bool) -> None:
    """List the APIs that are served, and their versions."""
    from barnabas.wire.apis import APIS

    shown = [api for _, api in sorted(APIS.items()) if every or api.served]
    if as_json:
        print_json([api._asdict() for api in shown])
        return
    rows = [
        {
            "key": api.key,
            "name": api.name,
            "versions": f"{api.min_version}-{api.max_version}",
            "flexible_from": api.flexible_from,
            "served": api.served,
        }
        for api in shown
    ]
    show(rows, ["key", "name", "versions", "flexible_from", "served"], as_json=False)


@click.command()
@properties_file
@assignments
@click.option("--topic", is_flag=True, help="The properties of topics, with the defaults that this broker gives them.")
@click.option("--listeners", is_flag=True, help="What each listener and mechanism gets, and by which property.")
@click.option("--docs", is_flag=True, help="Also the description and the allowed values of each property.")
@as_document
def config(
    properties_file: str | None, assignments: Sequence[str], topic: bool, listeners: bool, docs: bool, as_json: bool
) -> None:
    """Show every property, its value, and where that comes from."""
    from barnabas.config.live import BrokerConfig
    from barnabas.config.parse import ConfigError
    from barnabas.config.report import broker_report, listener_report, topic_report

    try:
        config = BrokerConfig(gather_settings(properties_file, None, None, assignments))
        report = (topic_report if topic else listener_report if listeners else broker_report)(config)
    except ConfigError as error:
        fail(str(error), STATUS_MISUSED)

    if as_json:
        print_json(report)
        return
    for line in config.warnings():
        click.echo(f"barnabas: {line}", err=True)
    for entry in report:
        scope = " ".join(filter(None, (entry.get("listener"), entry.get("mechanism"))))
        name = f"{scope}: {entry['name']}" if scope else entry["name"]
        source = " ".join(filter(None, (entry["source"], entry.get("set_by"))))
        click.echo(f"{name} = {entry['value'] or ''}  ({source}, {entry['effect']})")
        if docs:
            click.echo(f"    {entry['doc']} Allowed: {entry['allowed']}. Changes: {entry['update']}.")
