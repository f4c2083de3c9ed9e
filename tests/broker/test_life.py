"""One broker, one long life: it stops, crashes and loses its power while clients produce and read."""

import random

import pytest
import trio

from barnabas.controller.store import paths
from barnabas.controller.store.store import SessionExpired
from barnabas.replication.logs.partition_logs import Logs
from barnabas.world.net import ConnectionLost
from tests.broker.harness import Machine
from tests.broker.requests import batch_of, fetch_request, fetched, produce_request, records_in


class Life:
    """Producers and readers that go on, whatever happens to the broker, its power and its leaderships."""

    PARTITIONS, PRODUCERS, BATCHES = 2, 4, 20
    RETRIABLE = frozenset({3, 5, 6, 7, 19, 20, 56})

    def __init__(self, machine, seed) -> None:
        self.machine = machine
        self.rng = random.Random(seed)
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.seen: list[list[bytes]] = [[] for _ in range(self.PARTITIONS)]

    async def produce(self, number) -> None:
        """An idempotent producer: it repeats a batch until it is acknowledged."""
        client = await self.connected()
        for sequence in range(self.BATCHES):
            value = b"%d.%d" % (number, sequence)
            batch = batch_of(value, producer_id=number, producer_epoch=0, base_sequence=sequence)
            while True:
                try:
                    row = await client.produce("t", batch, number % self.PARTITIONS, timeout_ms=500)
                except ConnectionLost:
                    client = await self.connected()
                    continue
                if row.error_code == 0:
                    break
                assert row.error_code in self.RETRIABLE
                await trio.sleep(0.01)
            self.acknowledged.append((number % self.PARTITIONS, row.base_offset, value))
            await trio.sleep(self.rng.random() * 0.02)

    async def read(self, partition) -> None:
        """A consumer with a fetch session, for ever: each record must be the next one."""
        client, session, seen = await self.connected(), (0, 0), self.seen[partition]
        while True:
            try:
                wanted = [("t", partition, len(seen))]
                answer = await client.ask(fetch_request(wanted, session=session, max_wait_ms=50, max_bytes=300), 12)
            except ConnectionLost:
                client, session = await self.connected(), (0, 0)
                continue
            session = (answer.session_id, session[1] + 1) if answer.session_id else (0, 0)
            for _, row in fetched(answer):
                assert row.error_code == 0 or row.error_code in self.RETRIABLE
                for record in records_in(row) if row.records else ():
                    if record.offset >= len(seen):
                        assert record.offset == len(seen)
                        seen.append(record.value)
                if row.error_code:
                    await trio.sleep(0.01)

    async def connected(self):
        while True:
            try:
                return await self.machine.connect()
            except ConnectionLost:
                await trio.sleep(0.01)

    async def meddle(self) -> None:
        """Something happens, again and again; never two things at once."""
        while True:
            await trio.sleep(self.rng.random() * 0.2)
            happening = self.rng.choice([self.crash, self.stop, self.cut_power, self.flap, self.flap])
            with trio.CancelScope(shield=True):
                await happening()

    async def crash(self) -> None:
        await self.machine.crash()
        await self.machine.start()

    async def stop(self) -> None:
        await self.machine.stop()
        await self.machine.start()

    async def cut_power(self) -> None:
        await self.machine.cut_power(self.rng.randrange(2**32))
        await self.machine.start()

    async def flap(self) -> None:
        """A partition gets another leader, or a follower that does not follow; then it is as before."""
        client, me, partition = await self.connected(), self.machine.serving.broker_id, self.rng.randrange(2)
        role = self.rng.choice([{"leader": 2, "isr": [2]}, {"isr": [me, 2]}])
        await client.give_role(self.machine, "t", partition, replicas=[me, 2], **role)
        await trio.sleep(self.rng.random() * 0.05)
        await client.give_role(self.machine, "t", partition, replicas=[me, 2])
        client.close()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
async def test_every_acknowledged_record_is_there_once_and_in_order_after_an_eventful_life(
    nursery, autojump_clock, seed
):
    machine = await Machine(nursery, seed=seed).start()
    life = Life(machine, seed)
    segment_bytes = life.rng.choice(["200", "1000", "100000"])
    await (await machine.connect()).create_topic("t", life.PARTITIONS, segment_bytes=segment_bytes, flush_messages="1")
    async with trio.open_nursery() as living:
        living.start_soon(life.meddle)
        for partition in range(life.PARTITIONS):
            nursery.start_soon(life.read, partition)
        async with trio.open_nursery() as producing:
            for number in range(life.PRODUCERS):
                producing.start_soon(life.produce, number)
        living.cancel_scope.cancel()
    client = await life.connected()
    logs = [await client.read_values("t", 0, partition) for partition in range(life.PARTITIONS)]
    assert all(logs[partition][offset] == value for partition, offset, value in life.acknowledged)
    for number in range(life.PRODUCERS):
        written = [value for value in logs[number % life.PARTITIONS] if value.startswith(b"%d." % number)]
        assert written == [b"%d.%d" % (number, sequence) for sequence in range(life.BATCHES)]
    await trio.sleep(10)
    assert life.seen == logs


async def test_a_disk_that_fails_while_the_broker_stops_does_not_spoil_the_stop(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.produce("t", b"kept")
    machine.disk.fail_next("sync", path_part="/data/t-0")
    await machine.stop()
    assert machine.failure is None
    await machine.start()
    (record,) = records_in(await (await machine.connect()).fetch("t"))
    assert record.value == b"kept"


@pytest.mark.parametrize("seed", range(8))
async def test_after_a_failed_sync_the_next_start_rewrites_what_was_unsynced(nursery, autojump_clock, seed):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t", flush_messages="1")
    await client.produce("t", b"before")
    machine.disk.fail_next("sync", path_part="/data/t-0")
    await client.send(produce_request("t", b"in doubt"))
    await machine.ended()
    client = await (await machine.start()).connect()
    assert (await client.produce("t", b"after")).error_code == 0
    await machine.cut_power(seed)
    client = await (await machine.start()).connect()
    assert await client.read_values("t") == [b"before", b"in doubt", b"after"]
    assert not machine.disk.exists("/data/.failed")


async def test_a_session_that_ends_while_logs_are_loaded_does_not_end_the_broker(nursery, autojump_clock, monkeypatch):
    load = Logs.load

    async def long_load(self, identity, topic_config, topic_ids):
        await load(self, identity, topic_config, topic_ids)
        (store,) = topic_ids.args
        await store.expire()

    monkeypatch.setattr(Logs, "load", long_load)
    machine = await Machine(nursery).start()
    await (await machine.connect()).create_topic("t")


async def test_a_session_that_ends_as_the_broker_begins_to_serve_does_not_end_the_broker(nursery, autojump_clock):
    machine = Machine(nursery)
    built = machine._built

    def without_session_at_first(broker):
        built(broker)
        children = broker.store.children

        async def expired(path, watch=None):
            if path == paths.TOPICS and watch is None:
                broker.store.children = children
                raise SessionExpired(broker.store.session_id)
            return await children(path, watch)

        broker.store.children = expired

    machine._built = without_session_at_first
    await machine.start()
    await (await machine.connect()).create_topic("t")
