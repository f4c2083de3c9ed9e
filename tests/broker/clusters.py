"""Several brokers inside a test: whole `Machine`s on one network in memory and one metadata store, in virtual time.

    async with cluster(nursery, 3, min_insync_replicas="2") as (one, two, three):
        client = await one.connect()
        await create_topic(client, "t", [2, 3, 1])  # one partition and its replicas, the preferred leader first

Broker ids are 1, 2, 3, ports 9092, 9093, 9094; the first is the controller. `machine.broker` has the live parts of
each. Every broker has a session of its own with the store, a disk and a seed. When the block begins, each knows all.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from barnabas.wire import messages as m
from tests.broker.harness import PATIENCE_SECONDS, Client, Machine, open_memory_database
from tests.broker.memnet import MemNet

FIRST_PORT = 9092
POLL_SECONDS = 0.01


@asynccontextmanager
async def cluster(
    nursery: trio.Nursery,
    size: int,
    *,
    of_each: Callable[[int], dict[str, str]] = lambda broker_id: {},
    net: MemNet | None = None,
    **properties,
) -> AsyncIterator[tuple[Machine, ...]]:
    """So many brokers; `of_each` gives the properties that differ."""
    machines = await machines_of_cluster(nursery, size, of_each=of_each, net=net, **properties)
    try:
        for machine in machines:
            await machine.start()
        await all_know_each_other(machines)
        yield machines
    finally:
        with trio.CancelScope(shield=True):
            for machine in machines:
                if machine.serving is not None:
                    machine.give_up()
                    await machine.ended()


async def machines_of_cluster(
    nursery: trio.Nursery,
    size: int,
    *,
    of_each: Callable[[int], dict[str, str]] = lambda broker_id: {},
    net: MemNet | None = None,
    **properties,
) -> tuple[Machine, ...]:
    """The same, not started."""
    net, database = net or MemNet(), await open_memory_database()
    return tuple(
        Machine(
            nursery,
            net=net,
            database=database,
            seed=broker_id,
            **{
                "broker_id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{FIRST_PORT + broker_id - 1}",
                **properties,
                **of_each(broker_id),
            },
        )
        for broker_id in range(1, size + 1)
    )


async def all_know_each_other(machines: Sequence[Machine]) -> None:
    """Wait until each broker has heard of all."""
    ids = {machine.serving.broker_id for machine in machines}
    await until(lambda: all(machine.broker.metadata.brokers.keys() == ids for machine in machines))


async def until(is_so: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something is so; trio.TooSlowError when it does not come."""
    with trio.fail_after(seconds):
        while not is_so():
            await trio.sleep(POLL_SECONDS)


def controller_of(machines: Sequence[Machine]) -> Machine:
    """The machine whose broker is the controller."""
    (active,) = [each for each in machines if each.broker is not None and each.broker.candidate.is_active]
    return active


async def create_topic(client: Client, name: str, *partitions: Sequence[int], **configs: str) -> bytes:
    """Create a topic whose partitions have these replicas, the preferred leader first; its id."""
    created = m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(partitions)
        ],
        configs=[
            m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    (row,) = (await client.ask(m.CreateTopicsRequest(topics=[created], timeout_ms=30_000))).topics
    assert row.error_code == 0, (row.error_code, row.error_message)
    return row.topic_id


async def leader_of(machines: Sequence[Machine], topic: str, partition: int = 0) -> Machine:
    """The machine that leads a partition, as soon as the metadata caches of all machines agree on one of them."""
    by_id = {machine.serving.broker_id: machine for machine in machines}

    def leaders() -> set[int | None]:
        return {each.broker.metadata.leader_of(topic, partition) for each in machines}

    await until(lambda: len(leaders()) == 1 and leaders() <= by_id.keys())
    (leader,) = leaders()
    return by_id[leader]
