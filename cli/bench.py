"""`barnabas bench`: how fast a cluster takes records and gives them back (edge).

One connection to each leader, one request at a time, as `barnabas produce` and `consume` have them. A figure is about
this client, this machine and this cluster together; `bench/` of the repository compares brokers.
"""

import math
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import as_json, show

if TYPE_CHECKING:
    from barnabas.cli.repeating import RepeatingCluster
    from barnabas.client.cluster import Cluster
    from barnabas.wire.topics import TopicPartition

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MEGABYTE = 1_000_000


class Load(NamedTuple):
    """What is written: so many records of so many bytes, at most so many in a second."""

    records: int
    size_bytes: int
    rate: float | None
    partitions: int
    acks: int
    codec: str


class Measured(NamedTuple):
    """One phase. `steps_ms`: how long each request with its batch, or each round of fetches, took."""

    phase: str
    records: int
    seconds: float
    steps_ms: Sequence[float]


def _above_zero(_context: click.Context, _parameter: click.Parameter, rate: float | None) -> float | None:
    # NaN is in no range, and click lets it pass all the same.
    if rate is not None and not 0 < rate < math.inf:
        raise click.BadParameter(f"{rate} is no rate above 0")
    return rate


@click.command()
@click.option("--topic", help="A topic that is there [one that is created, and deleted at the end].")
@click.option("--records", type=click.IntRange(1), default=100_000, show_default=True, help="How many are written.")
@click.option("--size", type=click.IntRange(0, 1 << 20), default=100, show_default=True, help="Bytes of a value.")
@click.option("--rate", type=float, callback=_above_zero, help="At most so many records a second.")
@click.option(
    "--partitions", type=click.IntRange(1, 2**31 - 1), default=1, show_default=True, help="Of the created topic."
)
@click.option("--acks", type=click.Choice(["all", "1"]), default="all", show_default=True)
@click.option("--codec", type=click.Choice(CODECS), default="none", show_default=True)
@as_json
@for_a_cluster
def bench(
    target: Target,
    topic: str | None,
    records: int,
    size: int,
    rate: float | None,
    partitions: int,
    acks: str,
    codec: str,
    as_json: bool,
) -> None:
    """Measure how many records a second a cluster takes and returns."""
    load = Load(records, size, rate, partitions, -1 if acks == "all" else 1, codec)

    async def measure(cluster: "RepeatingCluster") -> list[Measured]:
        from barnabas.cli.own_topic import own_topic

        if topic is not None:
            return await _measured(cluster, topic, load)
        async with own_topic(cluster, "barnabas-bench", partitions=load.partitions) as created:
            return await _measured(cluster, created, load)

    rows = [_row(each, size) for each in run_with(target, measure)]
    show(rows, ["phase", "records", "records_per_s", "mb_per_s", "p50_ms", "p99_ms", "max_ms"], as_json=as_json)


async def _measured(cluster: "Cluster", topic: str, load: Load) -> list[Measured]:
    from barnabas.client.offsets import list_offsets, partitions_of
    from barnabas.wire.sentinels import LATEST

    keys = partitions_of((await cluster.topics([topic]))[topic])
    # Only what this command writes is read.
    begin = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
    written = await _write(cluster, topic, len(keys), load)
    read = await _read(cluster, {key: begin[key].offset for key in keys}, load.records)
    return [written, read]


async def _write(cluster: "Cluster", topic: str, partitions: int, load: Load) -> Measured:
    import trio

    from barnabas.client.writing import Writer
    from barnabas.progress import progress
    from barnabas.wire.compression import Codec

    writer = Writer(cluster, topic, partitions, acks=load.acks, codec=Codec[load.codec.upper()])
    # Random bytes, of which each record has another part, so that no codec finds the same value again.
    content = secrets.token_bytes(load.size_bytes + 4096)
    steps_ms: list[float] = []

    async def flush() -> None:
        step = time.perf_counter()
        await writer.flush()
        steps_ms.append((time.perf_counter() - step) * 1000)

    began = time.perf_counter()
    with progress("produce", load.records, " records") as advance:
        for number in range(load.records):
            place = number % 4096
            step = time.perf_counter()
            before = writer.written
            await writer.add(None, content[place : place + load.size_bytes], [], time.time_ns() // 1_000_000)
            if writer.written > before:
                steps_ms.append((time.perf_counter() - step) * 1000)
                advance(writer.written - before)
            if load.rate is not None:
                ahead = number / load.rate - (time.perf_counter() - began)
                # What has waited for its turn is sent, as a producer with little to do sends it.
                if ahead > 0:
                    await flush()
                    await trio.sleep(ahead)
        await flush()
    return Measured("produce", load.records, time.perf_counter() - began, steps_ms)


async def _read(cluster: "Cluster", begin: "dict[TopicPartition, int]", records: int) -> Measured:
    from barnabas.client.reading import Reader
    from barnabas.progress import progress

    reader = Reader(cluster, begin)
    steps_ms: list[float] = []
    read = 0
    began = time.perf_counter()
    with progress("consume", records, " records") as advance:
        while read < records:
            step = time.perf_counter()
            taken = await reader.round()
            steps_ms.append((time.perf_counter() - step) * 1000)
            count = sum(len(each.records) for each in taken)
            read += count
            advance(count)
    return Measured("consume", read, time.perf_counter() - began, steps_ms)


def _row(measured: Measured, size_bytes: int) -> dict[str, object]:
    steps = sorted(measured.steps_ms)
    rate = measured.records / measured.seconds
    return {
        "phase": measured.phase,
        "records": measured.records,
        "records_per_s": round(rate),
        "mb_per_s": round(rate * size_bytes / MEGABYTE, 1),
        "p50_ms": round(steps[len(steps) // 2], 1),
        "p99_ms": round(steps[len(steps) * 99 // 100], 1),
        "max_ms": round(steps[-1], 1),
    }
