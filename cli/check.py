"""`barnabas check`: whether a cluster can be used from here, step by step (edge).

    barnabas check
    barnabas check --write

Each finding is `ok`, `warning` or `failed`. The exit status is 0 if all is well, 1 after a failure, and 3 if there are
warnings only, so that a program for monitoring can tell them apart.
"""

import secrets
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas import __version__
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import as_json, printable, show
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.cli.repeating import RepeatingCluster
    from barnabas.client.cluster import Cluster
    from barnabas.wire import messages as m

STATUS_WARNINGS = 3
OK, WARNING, FAILED = "ok", "warning", "failed"
REACHED_SECONDS = 5.0
NAMED_MAX = 5  # partitions that a finding names
# What these commands ask for, and Kafka serves since 2.8 or longer.
NEEDED = {1: "Fetch", 0: "Produce", 3: "Metadata", 10: "FindCoordinator", 22: "InitProducerId", 60: "DescribeCluster"}


class Finding(NamedTuple):
    """What was looked at, and what was found."""

    check: str
    result: str
    detail: str


@click.command()
@click.option("--write", "writes", is_flag=True, help="Also write a record to a topic of its own, and read it.")
@as_json
@for_a_cluster
def check(target: Target, writes: bool, as_json: bool) -> None:
    """Say what keeps a cluster from being used from here.

    Every broker is asked at the address that it advertises. Status 1: something failed, 3: there are warnings.
    """
    findings: list[Finding] = []

    async def look(cluster: "RepeatingCluster") -> None:
        async for finding in _findings(cluster, writes=writes):
            findings.append(finding)
            # A person sees each step when it is done: one that fails takes its time.
            if as_json:
                show([finding._asdict()], [], as_json=True)
            else:
                click.echo(f"{finding.result:8} {finding.check:12} {printable(finding.detail)}")

    run_with(target, look)
    results = {finding.result for finding in findings}
    if FAILED in results:
        sys.exit(STATUS_FAILED)
    if WARNING in results:
        sys.exit(STATUS_WARNINGS)


async def _findings(cluster: "RepeatingCluster", *, writes: bool) -> AsyncIterator[Finding]:
    began = time.perf_counter()
    described = await cluster.describe()
    took_ms = round((time.perf_counter() - began) * 1000)
    count = len(described.brokers)
    yield Finding("bootstrap", OK, f"cluster {described.cluster_id} with {count} brokers answered in {took_ms} ms")

    for broker in described.brokers:
        yield await reached(cluster, broker.node_id, f"{broker.host}:{broker.port}")

    known = {broker.node_id for broker in described.brokers}
    if described.controller_id in known:
        yield Finding("controller", OK, f"broker {described.controller_id}")
    else:
        yield Finding("controller", FAILED, "no broker is the controller: topics are not created, leaders not elected")

    for finding in _of_partitions(described):
        yield finding
    if writes:
        yield await _written(cluster, count)


async def reached(cluster: "Cluster", broker_id: int, address: str) -> Finding:
    """Whether a broker answers at the address that it advertises."""
    import trio

    from barnabas.client.errors import Unreachable
    from barnabas.wire import messages as m

    name = f"broker {broker_id}"
    began = time.perf_counter()
    response = None
    try:
        with trio.move_on_after(REACHED_SECONDS):
            request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
            response = await cluster.ask_broker(broker_id, request)
    except Unreachable as error:
        detail = f"{error}. It advertises {address}, which clients here must reach: see advertised.listeners"
        return Finding(name, FAILED, detail)
    if response is None:
        return Finding(
            name, FAILED, f"{address} does not answer within {REACHED_SECONDS:.0f} s: see advertised.listeners"
        )

    assert isinstance(response, m.ApiVersionsResponse)
    took_ms = round((time.perf_counter() - began) * 1000)
    served = {row.api_key for row in response.api_keys}
    missing = [api for key, api in NEEDED.items() if key not in served]
    if missing:
        return Finding(name, WARNING, f"{address} does not serve {', '.join(missing)}: it is older than Kafka 2.8")
    return Finding(name, OK, f"{address} answered in {took_ms} ms, serves {len(served)} APIs")


def _of_partitions(described: "m.MetadataResponse") -> list[Finding]:
    rows = [(f"{topic.name}-{row.partition_index}", row) for topic in described.topics for row in topic.partitions]
    leaderless = [name for name, row in rows if row.leader_id < 0]
    behind = [name for name, row in rows if len(row.isr_nodes) < len(row.replica_nodes)]
    moved = [
        name for name, row in rows if row.leader_id >= 0 and row.replica_nodes and row.leader_id != row.replica_nodes[0]
    ]
    findings = []
    if leaderless:
        findings.append(Finding("leaders", FAILED, f"{len(leaderless)} partitions have none: {_some(leaderless)}"))
    else:
        findings.append(Finding("leaders", OK, f"each of {len(rows)} partitions has one"))
    if behind:
        findings.append(Finding("replicas", WARNING, f"{len(behind)} partitions have too few in sync: {_some(behind)}"))
    else:
        findings.append(Finding("replicas", OK, "all are in sync"))
    if moved:
        findings.append(Finding("preferred", OK, f"{len(moved)} partitions are led by another replica than the first"))
    return findings


def _some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"


async def _written(cluster: "RepeatingCluster", brokers: int) -> Finding:
    """A record through the cluster and back, in a topic that is deleted afterwards."""
    from barnabas.cli.own_topic import own_topic
    from barnabas.client.errors import ClientError
    from barnabas.client.reading import Reader
    from barnabas.client.writing import Writer
    from barnabas.wire.topics import TopicPartition

    value = secrets.token_bytes(16)
    began = time.perf_counter()
    try:
        async with own_topic(cluster, "barnabas-check", partitions=1, replicas=min(brokers, 3)) as topic:
            writer = Writer(cluster, topic, 1)
            await writer.add(None, value, [], time.time_ns() // 1_000_000)
            await writer.flush()
            reader = Reader(cluster, {TopicPartition(topic, 0): 0})
            read = [record.value for taken in await reader.round() for record in taken.records]
            took_ms = round((time.perf_counter() - began) * 1000)
    except ClientError as error:
        return Finding("write", FAILED, str(error))

    if read != [value]:
        return Finding("write", FAILED, f"{topic}: one record was written, and {len(read)} others were read")
    return Finding("write", OK, f"a record was written and read; with the topic this took {took_ms} ms")
