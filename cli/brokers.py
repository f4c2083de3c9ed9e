"""`barnabas brokers`: the brokers of any Kafka cluster, their disks, properties and APIs."""

from typing import TYPE_CHECKING

import click

from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.wire import messages as m

# The sources of properties in DescribeConfigs.
SOURCES = {
    1: "topic",
    2: "broker, changed while it ran",
    3: "all brokers, changed while they ran",
    4: "file",
    5: "default",
    6: "logger",
}
DYNAMIC_SOURCE = 2
DEFAULT_SOURCE = 5


@click.group()
def brokers() -> None:
    """Brokers of a cluster."""


@brokers.command("ls")
@as_json
@for_a_cluster
def list_brokers(target: Target, as_json: bool) -> None:
    """List the brokers that are up."""
    columns = ["broker", "host", "port", "rack", "controller"]
    show(run_with(target, _all_brokers), columns, as_json=as_json)


async def _all_brokers(cluster: "Cluster") -> list[Row]:
    described = await cluster.brokers()
    return [
        {
            "broker": row.node_id,
            "host": row.host,
            "port": row.port,
            "rack": row.rack,
            "controller": row.node_id == described.controller_id,
            "cluster": described.cluster_id,
        }
        for row in sorted(described.brokers, key=lambda row: row.node_id)
    ]


@brokers.command("show")
@click.argument("broker_id", metavar="BROKER", type=click.IntRange(0))
@click.option("--all", "every", is_flag=True, help="Also the properties that have their defaults.")
@click.option("--apis", is_flag=True, help="Also the APIs that it serves, with their versions.")
@as_json
@for_a_cluster
def show_broker(target: Target, broker_id: int, every: bool, apis: bool, as_json: bool) -> None:
    """Show a broker: its log directories with their sizes, and the properties that were set. With --json everything."""

    async def look(cluster: "Cluster") -> tuple[Row, list[Row], list[Row], list[Row]]:
        about = await _one(cluster, broker_id)
        return (
            about,
            await _log_dirs(cluster, broker_id),
            await _properties(cluster, broker_id),
            await _apis(cluster, broker_id),
        )

    about, dirs, properties, versions = run_with(target, look)
    if as_json:
        show([{**about, "log_dirs": dirs, "properties": properties, "apis": versions}], [], as_json=True)
        return

    show([about], ["broker", "host", "port", "rack", "controller"], as_json=False)
    click.echo()
    show(dirs, ["log_dir", "replicas", "bytes", "free_bytes", "error"], as_json=False)
    shown = [_readable(row) for row in properties if every or not row["default"]]
    if shown:
        click.echo()
        show(shown, ["property", "source", "value"], as_json=False)
    if apis:
        click.echo()
        show(versions, ["key", "api", "min", "max"], as_json=False)


async def _one(cluster: "Cluster", broker_id: int) -> Row:
    from barnabas.client.errors import ClientError

    rows = {row["broker"]: row for row in await _all_brokers(cluster)}
    if broker_id not in rows:
        raise ClientError(f"broker {broker_id} is not up; those that are: {', '.join(map(str, rows))}")
    return rows[broker_id]


async def _log_dirs(cluster: "Cluster", broker_id: int) -> list[Row]:
    from barnabas.client.admin import log_dirs
    from barnabas.wire.errors import error_name

    return [
        {
            "log_dir": row.log_dir,
            "replicas": sum(len(topic.partitions) for topic in row.topics),
            "bytes": sum(each.partition_size for topic in row.topics for each in topic.partitions),
            # Known since Kafka 3.3; an older broker leaves -1.
            "total_bytes": row.total_bytes if row.total_bytes >= 0 else None,
            "free_bytes": row.usable_bytes if row.usable_bytes >= 0 else None,
            "error": error_name(row.error_code) if row.error_code else None,
        }
        for row in sorted(await log_dirs(cluster, broker_id), key=lambda row: row.log_dir)
    ]


async def _properties(cluster: "Cluster", broker_id: int) -> list[Row]:
    from barnabas.client.admin import broker_configs

    rows = sorted(await broker_configs(cluster, broker_id), key=lambda row: row.name)
    return [_property(row) for row in rows]


def _property(row: "m.DescribeConfigsResponse.DescribeConfigsResourceResult") -> Row:
    return {
        "property": row.name,
        "value": row.value,
        "source": SOURCES.get(row.config_source, str(row.config_source)),
        "default": row.config_source == DEFAULT_SOURCE,
        "read_only": row.read_only,
        "sensitive": row.is_sensitive,
    }


def _readable(row: Row) -> Row:
    # A broker does not show passwords, and sends null instead.
    return {**row, "value": "(hidden)"} if row["sensitive"] and not row["default"] else row


async def _apis(cluster: "Cluster", broker_id: int) -> list[Row]:
    from barnabas.client.admin import versions_of
    from barnabas.wire.apis import APIS

    return [
        {
            "key": row.api_key,
            "api": APIS[row.api_key].name if row.api_key in APIS else None,
            "min": row.min_version,
            "max": row.max_version,
        }
        for row in sorted(await versions_of(cluster, broker_id), key=lambda row: row.api_key)
    ]
