"""`barnabas quotas`: limits of clients of any Kafka cluster, by user, client id and address."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.changing import assigned, dry_run, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

Entity = Mapping[str, str | None]
KINDS = ("user", "client-id", "ip")
DEFAULT = "<default>"  # in a table, for the entity of all that have no quota of their own


@click.group()
def quotas() -> None:
    """Quotas of clients."""


def names_an_entity(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name users, client ids and addresses; the command gets them as `entity`."""

    @click.option("--user", help="A user.")
    @click.option("--client-id", help="A client id; with --user that of this user alone.")
    @click.option("--ip", metavar="ADDRESS", help="An address from which connections come.")
    @click.option("--user-defaults", is_flag=True, help="All users that have no quota of their own.")
    @click.option("--client-defaults", is_flag=True, help="All client ids that have no quota of their own.")
    @click.option("--ip-defaults", is_flag=True, help="All addresses that have no quota of their own.")
    @functools.wraps(command)
    def run(
        *arguments: object,
        user: str | None,
        client_id: str | None,
        ip: str | None,
        user_defaults: bool,
        client_defaults: bool,
        ip_defaults: bool,
        **options: object,
    ) -> None:
        named = dict(zip(KINDS, (user, client_id, ip), strict=True))
        of_all = dict(zip(KINDS, (user_defaults, client_defaults, ip_defaults), strict=True))
        for kind, name in named.items():
            if of_all[kind] and name is not None:
                raise click.UsageError(f"--{kind} and its defaults are two entities: change one after the other")
        entity = {kind: name for kind, name in named.items() if name is not None or of_all[kind]}
        command(*arguments, entity=entity, **options)

    return run


@quotas.command("ls")
@names_an_entity
@as_json
@for_a_cluster
def list_all(target: Target, entity: Entity, as_json: bool) -> None:
    """List the quotas, or those of an entity and of what it contains."""

    async def look(cluster: "Cluster") -> list[Row]:
        from barnabas.client.quotas import list_quotas

        return [
            {**_named(found.entity), "quota": name, "value": rate}
            for found in await list_quotas(cluster, entity)
            for name, rate in found.rates.items()
        ]

    rows = run_with(target, look)
    if as_json:
        show(rows, [], as_json=True)
        return
    show([{**row, **_cells(row)} for row in rows], ["user", "client_id", "ip", "quota", "value"], as_json=False)


def _named(entity: Entity) -> Row:
    """The names of an entity, and which of its kinds are the defaults."""
    return {
        **{kind.replace("-", "_"): entity.get(kind) for kind in KINDS},
        "defaults": [kind for kind in KINDS if kind in entity and entity[kind] is None],
    }


def _cells(row: Row) -> Row:
    defaults = row["defaults"]
    assert isinstance(defaults, list)
    return {
        **{kind.replace("-", "_"): DEFAULT for kind in defaults},
        "value": _rate_text(row["value"]),
    }


def _rate_text(rate: object) -> str:
    assert isinstance(rate, float)
    return f"{rate:.0f}" if rate.is_integer() else str(rate)


@quotas.command("set")
@click.argument("assignments", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@names_an_entity
@dry_run
@as_json
@for_a_cluster
def set_some(target: Target, assignments: Sequence[str], entity: Entity, dry_run: bool, as_json: bool) -> None:
    """Set quotas of an entity, such as producer_byte_rate=1048576. QUOTA= without a value removes one.

    producer_byte_rate and consumer_byte_rate are in bytes a second, request_percentage in percent of one thread,
    controller_mutation_rate in partitions a second, and connection_creation_rate, of addresses, in connections a
    second.
    """
    _must_be_named(entity)
    rates = {key: None if value is None else _rate_of(key, value) for key, value in assigned(assignments).items()}

    async def change(cluster: "Cluster") -> None:
        from barnabas.client.quotas import set_quotas

        await set_quotas(cluster, entity, rates, validate_only=dry_run)

    run_with(target, change)
    done = "could be changed" if dry_run else "changed"
    if as_json:
        rows = [{**_named(entity), "quota": name, "value": rate, "result": done} for name, rate in rates.items()]
        show(rows, [], as_json=True)
        return
    click.echo(f"{_text(entity)}: {done}")


def _rate_of(key: str, text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        raise click.BadParameter(f"{key}: {text!r} is no number") from None
    # A broker stores NaN as 0, as Kafka does, and would hold up all that the client sends.
    if not math.isfinite(rate):
        raise click.BadParameter(f"{key}: {text!r} is no rate")
    return rate


@quotas.command("delete")
@click.argument("names", metavar="[QUOTA...]", nargs=-1)
@names_an_entity
@yes
@dry_run
@as_json
@for_a_cluster
def delete(target: Target, names: Sequence[str], entity: Entity, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Remove quotas of exactly this entity: all of them, or those that are named."""
    _must_be_named(entity)

    async def plan(cluster: "Cluster") -> list[str]:
        from barnabas.client.errors import ClientError
        from barnabas.client.quotas import list_quotas

        there = [name for found in await list_quotas(cluster, entity, exactly=True) for name in found.rates]
        missing = sorted(set(names) - set(there))
        if missing or not there:
            raise ClientError(f"{_text(entity)} has no quota{' ' + missing[0] if missing else ''}")
        return [name for name in there if not names or name in names]

    gone = run_with(target, plan)
    if not dry_run and not yes:
        must_confirm(f"remove {', '.join(gone)} of {_text(entity)}")

    async def change(cluster: "Cluster") -> None:
        from barnabas.client.quotas import set_quotas

        await set_quotas(cluster, entity, dict.fromkeys(gone), validate_only=dry_run)

    run_with(target, change)
    done = "would be deleted" if dry_run else "deleted"
    if as_json:
        show([{**_named(entity), "quota": name, "result": done} for name in gone], [], as_json=True)
        return
    for name in gone:
        click.echo(f"{_text(entity)}: {name}: {done}")


def _must_be_named(entity: Entity) -> None:
    if not entity:
        raise click.UsageError("whose quotas? Say --user, --client-id or --ip, or the defaults of one of them")


def _text(entity: Entity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity.items())
