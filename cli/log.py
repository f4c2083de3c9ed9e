"""`barnabas log`: look into partition logs on disk."""

import sys

import click

from barnabas.cli.failing import fail
from barnabas.cli.output import as_document, print_json
from barnabas.status import STATUS_FAILED


@click.group()
def log() -> None:
    """Look into partition logs on disk."""


@log.command()
@click.argument("path", metavar="FILE|DIR", type=click.Path(exists=True))
@click.option("--records", is_flag=True, help="Also each record of a log; those of internal topics are decoded.")
@as_document
def dump(path: str, records: bool, as_json: bool) -> None:
    """Print the content of a log, index, snapshot or checkpoint FILE, or of all such files in DIR.

    DIR is a data directory, or the directory of one partition in it. Times are in UTC; with --json, in milliseconds
    since 1970.
    """
    from barnabas.broker.process.dump_lines import dump_lines
    from barnabas.progress import counted
    from barnabas.storage.disk import StorageError
    from barnabas.storage.osdisk import OsDisk

    disk = OsDisk()
    # A file that cannot be read does not keep the others from being printed. Its error comes at the
    # end, where it is seen.
    failures: list[StorageError] = []
    try:
        lines = dump_lines(disk, disk.absolute_path(path), failures, records=records, as_json=as_json)
        for line in counted(lines, "log dump", None, " lines", beside_output=True):
            click.echo(line)
    except StorageError as error:
        failures.append(error)

    if failures:
        fail("\n".join(map(str, failures)), STATUS_FAILED)


@log.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@as_document
def check(directory: str, as_json: bool) -> None:
    """Check the logs of a data DIRECTORY (of a stopped broker); status 1 when something is wrong."""
    from barnabas.progress import progress
    from barnabas.storage.check import check_directory
    from barnabas.storage.disk import StorageError
    from barnabas.storage.osdisk import OsDisk

    disk = OsDisk()
    try:
        with progress("log check", len(disk.list(directory)), " directories") as advance:
            findings = [str(finding) for finding in check_directory(disk, directory, advance)]
    except StorageError as error:
        fail(str(error), STATUS_FAILED)

    if as_json:
        print_json({"directory": directory, "findings": findings})
    else:
        for finding in findings:
            click.echo(finding)
        click.echo(f"{directory}: {f'{len(findings)} findings' if findings else 'nothing wrong'}")

    if findings:
        sys.exit(STATUS_FAILED)
