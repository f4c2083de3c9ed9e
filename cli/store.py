"""`barnabas store`: transfer a cluster's metadata, and prepare it for a first start (edge)."""

import os
import stat
from functools import partial
from typing import TYPE_CHECKING, TextIO

import click

from barnabas.cli.failing import fail
from barnabas.cli.output import as_document, print_json
from barnabas.cli.scram import scram
from barnabas.cli.store_place import names_a_store
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.broker.process.store_transfer import Place


@click.group()
def store() -> None:
    """Copy a cluster's metadata between stores, and prepare a store.

    A store is ZooKeeper, or embedded in the data directory of a stopped broker.
    """


store.add_command(scram)


@store.command("export")
@names_a_store
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export_store(place: "Place", file: str) -> None:
    """Write the content of a store to FILE (or standard output), as JSON.

    It holds the keys of SCRAM users, so only the owner of FILE may read it.
    """
    import trio

    from barnabas.broker.process import store_transfer
    from barnabas.controller.store.store import StoreError
    from barnabas.progress import progress

    try:
        text = trio.run(store_transfer.export_store, place, partial(progress, "store export", unit=" nodes"))
    except StoreError as error:
        fail(str(error), STATUS_FAILED)

    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        _write_private(file, text)
    except OSError as error:
        fail(f"{file}: {error.strerror}", STATUS_FAILED)


def _write_private(path: str, text: str) -> None:
    """Write a file that only its owner may read, also if it was there. OSError."""
    # The mode of `open` holds only for a new file. An old one is closed to others by `fchmod`,
    # before anything is written.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        # A pipe or a device such as /dev/stdout keeps its mode and has no length.
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
        file.write(text)


@store.command("import")
@names_a_store
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@as_document
def import_store(place: "Place", file: TextIO, as_json: bool) -> None:
    """Fill an empty store from FILE (or standard input), which `barnabas store export` wrote."""
    import trio

    from barnabas.broker.process import store_transfer
    from barnabas.controller.store.store import StoreError
    from barnabas.controller.store.transfer import ExportMalformed
    from barnabas.progress import progress
    from barnabas.storage.disk import StorageError

    try:
        shown = partial(progress, "store import", unit=" nodes")
        count = trio.run(store_transfer.import_store, place, file.read(), shown)
    except (ExportMalformed, UnicodeDecodeError) as error:
        fail(f"{file.name}: {error}", STATUS_FAILED)
    except (StoreError, StorageError) as error:
        fail(str(error), STATUS_FAILED)

    if as_json:
        print_json({"nodes": count})
    else:
        click.echo(f"{count} nodes written")
