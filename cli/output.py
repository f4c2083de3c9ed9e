"""Tables for a person, JSON for programs, one object a line, and messages on standard error."""

import json
from collections.abc import Iterable, Mapping, Sequence

import click

Row = Mapping[str, object]

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
# Of the commands about this broker, each of which prints one document.
as_document = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def show(rows: Iterable[Row], columns: Sequence[str], *, as_json: bool, err: bool = False) -> None:
    """Print rows: these columns as a table, or everything as JSON; on standard output, or on standard error."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False), err=err)
        return
    # A header is one word in capitals, so that `cut` and `awk` count columns as a person does.
    table = [[column.upper() for column in columns], *([cell(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    for cells in table:
        click.echo("  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip(), err=err)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2))


def cell(value: object) -> str:
    """A value as a cell of a table: never empty, and without blanks where that can be."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    # Clients choose group names and client ids: a control character in one would command the terminal.
    return printable(str(value))


def printable(text: str) -> str:
    """The text on one line, with escapes for what a terminal would take for a command."""
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def warn(message: str) -> None:
    """Print a message on standard error. Parts of it may come from a broker: a line break would forge another one."""
    click.echo(f"barnabas: {printable(message)}", err=True)
