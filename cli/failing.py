"""The end of a command that cannot do what it was asked for (edge)."""

import os
import sys
from typing import NoReturn

import click

STDOUT = 1


def discard_output() -> None:
    """Let go of what is still buffered: it cannot be written, and the interpreter would complain about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def fail(message: str, status: int) -> NoReturn:
    """Exit with one error message."""
    for line in message.splitlines():
        click.echo(f"barnabas: {line}", err=True)
    sys.exit(status)
