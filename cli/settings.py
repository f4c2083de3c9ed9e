"""The settings of this broker: the options that name them, and which of several wins (edge)."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from barnabas.config.parse import Setting

# Each name means the same in every command that has it.
properties_file = click.argument(
    "properties_file", metavar="[server.properties]", required=False, type=click.Path(exists=True, dir_okay=False)
)
assignments = click.option(
    "--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Set a property; overrides the file."
)


def gather_settings(
    properties_file: str | None, data_dir: str | None, listen: str | None, assignments: Iterable[str]
) -> "list[Setting]":
    """All settings, in ascending order of precedence: the file, the named options, `--set`. Raises ConfigError."""
    from barnabas.config.parse import ConfigError, Setting, parse_assignment, parse_properties

    # Later settings of one name win, so the order of these steps is the precedence.
    settings = []
    if properties_file is not None:
        with open(properties_file, encoding="latin-1") as file:  # as Java reads properties
            settings += parse_properties(file.read(), properties_file)
    if listen is not None:
        settings.append(Setting("listeners", f"PLAINTEXT://{listen}", "--listen"))
    settings += [parse_assignment(text) for text in assignments]
    if data_dir is not None:
        # A broker that starts with an empty directory beside the one that was meant seems to have lost everything.
        for setting in settings:
            if setting.name in ("log.dir", "log.dirs"):
                why = f"{setting.name} and --data-dir both say where the data are: give one of them"
                raise ConfigError([setting.problem(f"{why} (--set log.dirs=DIR overrides a file)")])
        settings.append(Setting("log.dirs", data_dir, "--data-dir"))

    if any(setting.name == "config.providers" for setting in settings):
        # Providers read files and variables. They are resolved here, after all sources were
        # gathered, because `--set` may name one too.
        from barnabas.config.providers import resolve

        settings = resolve(settings, os.environ)

    return settings
