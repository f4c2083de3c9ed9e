"""What commands that change a cluster share: --dry-run, --yes, several names of which one may fail."""

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.cluster import Target, run_with
from barnabas.cli.output import Row, printable, show, warn
from barnabas.status import STATUS_FAILED, STATUS_MISUSED

if TYPE_CHECKING:
    from barnabas.cli.repeating import RepeatingCluster

FAILED = "failed"

dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
yes = click.option("--yes", is_flag=True, help="Do it without asking.")


def must_confirm(what: str, plan: Iterable[Row] = (), columns: Sequence[str] = ()) -> None:
    """Show the plan, and ask a person at a terminal; end the program if the answer is no, or if there is no terminal.

    All of it goes to standard error: standard output is for what was done.
    """
    if columns:
        show(plan, columns, as_json=False, err=True)
    # A script must not hang at a question that it does not see.
    if not sys.stdin.isatty():
        warn(f"this would {what}: say --yes, or --dry-run to see more")
        sys.exit(STATUS_MISUSED)
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        sys.exit(STATUS_FAILED)


def each_of(
    target: Target,
    kind: str,
    names: Sequence[str],
    work: "Callable[[RepeatingCluster, str], Awaitable[str]]",
    *,
    as_json: bool,
) -> None:
    """Do it for each name, and say what became of it. Status 1 if any one failed; the others are done.

    In JSON a row has the name, under what it is the name of (`kind`), and the result, which is `failed` after an error.
    """

    async def do_all(cluster: "RepeatingCluster") -> bool:
        from barnabas.client.errors import ClientError

        # One that fails does not keep the others from being done.
        failed = False
        for name in names:
            try:
                result = await work(cluster, name)
            except ClientError as error:
                warn(str(error))
                result = FAILED
                failed = True
            if as_json:
                show([{kind: name, "result": result}], [], as_json=True)
            elif result != FAILED:
                click.echo(f"{printable(name)}: {result}")
        return failed

    if run_with(target, do_all):
        sys.exit(STATUS_FAILED)


def assigned(assignments: Sequence[str]) -> dict[str, str | None]:
    """KEY=VALUE texts as a mapping; KEY= is None."""
    found = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is no KEY=VALUE")
        found[key.strip()] = value or None
    return found
