"""`barnabas store scram`: credentials of users in a store (edge)."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import click

from barnabas.cli.failing import fail
from barnabas.cli.output import as_document, print_json, show
from barnabas.cli.store_place import names_a_store
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.broker.process.store_transfer import Place

MECHANISM_NAMES = ("SCRAM-SHA-256", "SCRAM-SHA-512")
scram_mechanisms = click.option(
    "--mechanism", "mechanisms", type=click.Choice(MECHANISM_NAMES), multiple=True, help="Both if it is not given."
)


@click.group()
def scram() -> None:
    """SCRAM credentials of users in a store.

    Brokers that log in to each other by SCRAM need theirs before the first start.
    """


@scram.command("add")
@names_a_store
@scram_mechanisms
@click.option("--iterations", type=click.IntRange(4096, 16384), default=4096, show_default=True)
@click.option("--password-file", type=click.File("r", encoding="utf-8"), help="Its first line; - is standard input.")
@click.option("--password-env", metavar="NAME", help="The environment variable that has the password.")
@click.argument("user")
@as_document
def add_scram(
    place: "Place",
    mechanisms: Sequence[str],
    iterations: int,
    password_file: TextIO | None,
    password_env: str | None,
    user: str,
    as_json: bool,
) -> None:
    """Set the credentials of a USER. The password is asked for unless a file or a variable has it."""
    require_user(user)
    # The arguments are checked before the imports below, which take most of the time of this
    # command.
    password = scram_password(password_file, password_env)
    import trio

    from barnabas.broker.process import scram_users
    from barnabas.controller.store.store import StoreError
    from barnabas.storage.disk import StorageError

    written = mechanisms or MECHANISM_NAMES
    try:
        trio.run(scram_users.add, place, user, written, iterations, password)
    except (StoreError, StorageError) as error:
        fail(str(error), STATUS_FAILED)

    if as_json:
        print_json({"user": user, "mechanisms": written})
    else:
        click.echo(f"{user}: {', '.join(written)} written")


@scram.command("list")
@names_a_store
@as_document
def list_scram(place: "Place", as_json: bool) -> None:
    """List the credentials of all users, without keys."""
    import trio

    from barnabas.broker.process import scram_users
    from barnabas.controller.store.store import StoreError

    try:
        listed = trio.run(scram_users.list_all, place)
    except StoreError as error:
        fail(str(error), STATUS_FAILED)
    if as_json:
        print_json([each._asdict() for each in listed])
        return
    rows = [
        {"user": each.user, "mechanism": each.mechanism, "iterations": each.iterations or "malformed"}
        for each in listed
    ]
    show(rows, ["user", "mechanism", "iterations"], as_json=False)


@scram.command("remove")
@names_a_store
@scram_mechanisms
@click.argument("user")
@as_document
def remove_scram(place: "Place", mechanisms: Sequence[str], user: str, as_json: bool) -> None:
    """Remove the credentials of a USER."""
    require_user(user)
    import trio

    from barnabas.broker.process import scram_users
    from barnabas.controller.store.store import StoreError

    asked = mechanisms or MECHANISM_NAMES
    try:
        removed = trio.run(scram_users.remove, place, user, asked)
    except StoreError as error:
        fail(str(error), STATUS_FAILED)

    if not removed:
        fail(f"{user} has no credential of {' or '.join(asked)}", STATUS_FAILED)
    if as_json:
        print_json({"user": user, "mechanisms": removed})
    else:
        click.echo(f"{user}: {', '.join(removed)} removed")


def require_user(user: str) -> None:
    """UsageError if this is no name of a user."""
    if not user:
        raise click.UsageError("The name of a user is not empty.")
    require_text(user, "name of the user")


def scram_password(file: TextIO | None, variable: str | None) -> str:
    """The password: never from the arguments, which every user of the machine can list."""
    if file is not None and variable is not None:
        # Neither source wins silently: a script that gives both has probably forgotten one of them.
        raise click.UsageError("Where is the password? Give either --password-file or --password-env.")
    if file is not None:
        try:
            # An editor ends the line with a newline, which is no part of the password. Blanks at
            # its end may be.
            password = file.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            raise click.UsageError(f"{file.name}: the password is not UTF-8.") from None
    elif variable is not None:
        password = os.environ.get(variable, "")
    # Without a terminal the prompt would show what is typed.
    elif not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask for the password: give --password-file or --password-env.")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)

    if not password:
        raise click.UsageError("The password is empty, or not there.")
    require_text(password, "password")
    return password


def require_text(value: str, name: str) -> None:
    """UsageError for bytes of the command line or of a variable that are not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"The {name} is not UTF-8.") from None
