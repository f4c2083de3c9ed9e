"""The end of a command that cannot do what it was asked for."""

import sys
from typing import NoReturn

import click


def fail(message: str, status: int) -> NoReturn:
    """Exit with one error message."""
    for line in message.splitlines():
        click.echo(f"barnabas: {line}", err=True)
    sys.exit(status)
