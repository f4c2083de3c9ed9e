"""Fetch: long polls, limits of memory, isolation, and what is sent while the log changes underneath."""

import pytest
import trio

from barnabas.storage.log import PartitionLog
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.osdisk import OsDisk
from barnabas.storage.producers import Origin
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    CorruptRecords,
    build_batch,
    build_control_batch,
)
from barnabas.world.net import ConnectionLost, OsNet, SocketBuffers
from tests.broker.clock import now_ms
from tests.broker.handlers.fetching import only_row, with_records, with_topic
from tests.broker.harness import Machine
from tests.broker.requests import batch_of, fetch_request, fetched, records_in, values_in

# -- what is answered


def old_fetch(version: int, *wanted, **fields) -> m.FetchRequest:
    """A fetch of before 0.11, from topic t: [(partition, offset)]."""
    limit = {} if version > 2 else {"max_bytes": 2**31 - 1}
    return fetch_request([("t", *each) for each in wanted], **limit, **fields)


@pytest.mark.parametrize("version", range(4))
async def test_what_a_small_batch_decompresses_to_is_limited_for_all_partitions_together(
    nursery, autojump_clock, version
):
    client = await (await Machine(nursery, fetch_max_bytes="100000").start()).connect()
    await client.create_topic("t", partitions=3)
    for partition in range(3):
        await client.produce("t", batch_of(*[bytes(1000)] * 500, codec=Codec.GZIP), partition)
    asked = old_fetch(version, (0, 0), (1, 0), (2, 0), partition_max_bytes=2**31 - 1)
    first, *others = [row for _, row in fetched(await client.ask(asked, version))]
    assert 90_000 < len(first.records) <= 100_000
    assert sum(len(row.records) for row in others) < 3_000
    assert [row.error_code for row in others] == [0, 0]


async def test_a_large_conversion_is_made_in_a_thread_and_keeps_to_the_limit(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.produce("t", batch_of(*[bytes(1000)] * 100))
    threads = machine.threads
    ((_, row),) = fetched(await client.ask(old_fetch(3, (0, 0), partition_max_bytes=50_000), 3))
    assert 40_000 < len(row.records) <= 50_000
    assert machine.threads > threads


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 74), (1, 0), (2, 75)])
async def test_the_clients_idea_of_the_leader_epoch_is_checked(nursery, autojump_clock, epoch, code):
    machine, client, _ = await with_records(nursery)
    await client.give_role(machine, "t")
    assert (await client.fetch("t", leader_epoch=epoch)).error_code == code


async def test_a_fetcher_whose_epoch_ended_earlier_learns_where(nursery, autojump_clock):
    machine, client, _ = await with_records(nursery, 3)
    await client.give_role(machine, "t")
    await client.produce("t", b"in epoch 1")
    row = await client.fetch("t", 4, last_fetched_epoch=0, max_wait_ms=10_000)
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset, row.records) == (0, 3, b"")
    assert values_in(await client.fetch("t", 3, last_fetched_epoch=0)) == [b"in epoch 1"]


async def test_a_file_that_cannot_be_read_for_a_small_answer_is_closed(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/data,/other").start()
    client = await machine.connect()
    for number in range(2):  # one in each directory: the broker goes on
        await client.create_topic(f"t{number}")
        await client.produce(f"t{number}", b"a")
    machine.disk.fail_next("read", path_part="/t0-0/", after=1)  # the first one finds it
    assert (await client.fetch("t0")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    client.close()
    await machine.stop()
    assert machine.disk.open_count == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (5, 6),
        (6, 56),
    ],
)
async def test_old_clients_do_not_hear_of_storage_errors(nursery, autojump_clock, version, code):
    machine, client, _ = await with_records(nursery, properties={"log_dirs": "/a,/b"})
    machine.disk.fail_next("write", path_part="/t-0/")
    assert (await client.produce("t", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.fetch("t", version=version)).error_code == code


async def test_who_is_not_the_leader_says_who_is(nursery, autojump_clock):
    machine, client, topic_id = await with_records(nursery)
    await client.give_role(machine, "t", leader=2, isr=[2], replicas=[2, machine.serving.broker_id])
    follower = m.FetchRequest.ReplicaState(replica_id=3, replica_epoch=1)
    answer = await client.ask(fetch_request([(topic_id, 0, 0)], replica_state=follower), 16)
    row = only_row(answer)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 1)  # before UpdateMetadata says so
    assert list(answer.node_endpoints) == []  # the broker does not have the address of broker 2 yet


# -- how much


async def test_the_brokers_own_limit_holds_too(nursery, autojump_clock):
    _, client, _ = await with_records(nursery, 50, size=1000, properties={"fetch_max_bytes": "10000"})
    assert len((await client.fetch("t")).records) <= 10_000


async def test_small_and_large_reads_return_the_same_bytes(nursery, autojump_clock):
    _, client, _ = await with_records(nursery, 100, size=1000)
    small, offset = [], 0
    while offset < 100:
        records = records_in(await client.fetch("t", offset, partition_max_bytes=3000))
        small += [record.value for record in records]
        offset = records[-1].offset + 1
    assert small == values_in(await client.fetch("t")) == [bytes([number]) * 1000 for number in range(100)]


# -- waiting


async def test_an_empty_fetch_waits_for_max_wait(nursery, autojump_clock):
    _, client, _ = await with_topic(nursery)
    began = trio.current_time()
    assert (await client.fetch("t", max_wait_ms=2500)).records == b""
    assert trio.current_time() == pytest.approx(began + 2.5, abs=0.01)


async def test_an_append_wakes_a_waiting_fetch_at_once(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery, 3)
    await client.send(fetch_request([("t", each, 0) for each in range(3)], max_wait_ms=60_000), 12)
    await trio.sleep(10)
    began = trio.current_time()
    await (await machine.connect()).produce("t", b"v", 1)
    rows = {row.partition_index: values_in(row) for _, row in fetched(await client.receive())}
    assert rows == {0: [], 1: [b"v"], 2: []}
    assert trio.current_time() < began + 0.1


async def test_a_fetch_waits_until_min_bytes_are_there(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery, 2)
    other = await machine.connect()
    await client.send(fetch_request([("t", 0, 0), ("t", 1, 0)], max_wait_ms=60_000, min_bytes=3000), 12)
    for number in range(3):
        assert await client.is_quiet(1)
        await other.produce("t", bytes(1000), number % 2)
    rows = {row.partition_index: len(values_in(row)) for _, row in fetched(await client.receive())}
    assert rows == {0: 2, 1: 1}


async def test_a_fetch_of_too_little_returns_it_after_max_wait(nursery, autojump_clock):
    _, client, _ = await with_records(nursery, 1)
    began = trio.current_time()
    assert len(records_in(await client.fetch("t", min_bytes=10_000, max_wait_ms=1000))) == 1
    assert trio.current_time() == pytest.approx(began + 1, abs=0.01)


async def test_an_error_ends_the_wait(nursery, autojump_clock):
    _, client, _ = await with_topic(nursery, 2)
    began = trio.current_time()
    answer = await client.ask(fetch_request([("t", 0, 0), ("t", 1, 9)], max_wait_ms=60_000), 12)
    assert [row.error_code for _, row in fetched(answer)] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert trio.current_time() < began + 0.1


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_what_is_not_there_ends_the_wait_only_when_nothing_else_is_wanted(nursery, autojump_clock, session):
    _, client, _ = await with_topic(nursery)
    began = trio.current_time()
    answer = await client.ask(fetch_request([("t", 0, 0), ("t", 9, 0)], max_wait_ms=1000, session=session), 12)
    assert [row.error_code for _, row in fetched(answer)] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert trio.current_time() == pytest.approx(began + 1, abs=0.01)
    await client.ask(fetch_request([("t", 9, 0)], max_wait_ms=1000, session=session), 12)
    assert trio.current_time() == pytest.approx(began + 1, abs=0.01)


async def test_records_above_the_high_watermark_wake_no_one_until_they_are_committed(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    me, other = machine.serving.broker_id, await machine.connect()
    await other.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    await other.produce("t", b"v", acks=1)
    assert await client.is_quiet(5)
    await other.give_role(machine, "t", isr=[me], replicas=[me, 2])
    assert values_in(only_row(await client.receive())) == [b"v"]


async def lose_by_new_leader(machine, client):
    await client.give_role(machine, "t", leader=2, isr=[2], replicas=[machine.serving.broker_id, 2])


async def lose_by_stop(machine, client):
    await client.stop_replica(machine, "t")


async def lose_by_deletion(machine, client):
    await client.delete_topic("t")


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize(
    ("lose", "code"),
    [
        (lose_by_new_leader, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lose_by_stop, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lose_by_deletion, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_waiting_fetch_is_answered_when_the_leadership_is_lost(nursery, autojump_clock, lose, code, in_session):
    machine, client, _ = await with_topic(nursery)
    session = (0, 0) if in_session else (0, -1)
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000, session=session), 10)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await lose(machine, await machine.connect())
    assert only_row(await client.receive()).error_code == code
    assert trio.current_time() < began + 1


async def test_hundreds_of_waiting_fetches_are_all_answered_by_one_append(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    crowd = [await machine.connect() for _ in range(200)]
    for each in crowd:
        await each.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await client.produce("t", b"v")
    assert [values_in(only_row(await each.receive())) for each in crowd] == [[b"v"]] * 200
    assert trio.current_time() < began + 0.1


# -- isolation


async def test_a_damaged_transaction_index_fails_read_committed_of_that_partition(nursery, autojump_clock, monkeypatch):
    machine, client, _ = await with_records(nursery, partitions=2)
    damaged, read = machine.broker.replicas.get("t", 0).log, PartitionLog.aborted_in

    def read_if_whole(log, *arguments):
        if log is damaged:
            raise CorruptRecords("the index is damaged")
        return read(log, *arguments)

    monkeypatch.setattr(PartitionLog, "aborted_in", read_if_whole)
    answer = await client.ask(fetch_request([("t", 0, 0), ("t", 1, 0)], isolation_level=1), 12)
    rows = [row for _, row in fetched(answer)]
    assert [row.error_code for row in rows] == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert len(records_in(rows[1])) == 3
    assert (await client.fetch("t", 0)).error_code == 0


async def test_a_file_that_was_to_be_read_is_closed_when_the_transaction_index_cannot_be(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/data,/other").start()
    client = await machine.connect()
    for number in range(2):  # one in each directory: the broker goes on
        await client.create_topic(f"t{number}", **{"segment.bytes": "200"})
    partition, producer = machine.broker.replicas.get("t0", 0), {"producer_id": 7, "producer_epoch": 0}
    batch = build_batch([(None, b"a")], timestamp_ms=1, base_sequence=0, attributes=TRANSACTIONAL, **producer)
    partition.append_as_leader(batch, Origin.CLIENT)
    marker = build_control_batch(ABORT, coordinator_epoch=0, timestamp_ms=1, **producer)
    partition.append_as_leader(marker, Origin.COORDINATOR)
    await client.produce("t0", b"in the next segment")
    machine.disk.fail_next("read", path_part=".txnindex")
    assert (await client.fetch("t0", isolation_level=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    client.close()
    await machine.stop()
    assert machine.disk.open_count == 0


async def test_read_committed_gets_a_list_of_what_was_aborted(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    partition = machine.broker.replicas.get("t", 0)
    for sequence, outcome in enumerate((ABORT, COMMIT, ABORT, None)):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence, "attributes": TRANSACTIONAL}
        batch = build_batch([(None, b"%d" % sequence)], timestamp_ms=1, **fields)
        partition.append_as_leader(batch, Origin.CLIENT)
        if outcome is not None:
            fields = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp_ms": 1}
            partition.append_as_leader(build_control_batch(outcome, **fields), Origin.COORDINATOR)
    size = partition.log.size_bytes
    seen = []
    for offset, max_bytes in ((0, size), (0, size // 7), (2, size), (6, size), (7, size)):
        row = await client.fetch("t", offset=offset, isolation_level=1, partition_max_bytes=max_bytes, max_wait_ms=0)
        assert (row.error_code, row.last_stable_offset, row.high_watermark) == (0, 6, 7)
        seen.append([(each.producer_id, each.first_offset) for each in row.aborted_transactions])
    assert seen == [[(7, 0), (7, 4)], [(7, 0)], [(7, 4)], [], []]
    row = await client.fetch("t", isolation_level=0)
    assert row.aborted_transactions is None


async def test_read_committed_long_polls_are_woken_as_others_are(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000, isolation_level=1), 12)
    await trio.sleep(1)
    began = trio.current_time()
    await (await machine.connect()).produce("t", b"v")
    assert values_in(only_row(await client.receive())) == [b"v"]
    assert trio.current_time() < began + 0.1


# -- while the log changes


async def test_slices_of_segments_that_retention_deletes_are_sent_as_they_were(nursery, autojump_clock):
    """Fifty slow readers, each in the middle of a segment, while all segments but the last are deleted."""
    properties = {"log_retention_check_interval_ms": "1000", "log_initial_task_delay_ms": "0"}
    machine, client, _ = await with_topic(
        nursery, properties=properties, segment_bytes="200000", retention_ms="60000", file_delete_delay_ms="10000"
    )
    for number in range(60):
        await client.produce("t", bytes([number]) * 180_000)
    readers = [await machine.connect() for _ in range(50)]
    for number, reader in enumerate(readers):
        await reader.send(fetch_request([("t", 0, number)]), 12)
    await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(100)
    await client.produce("t", b"new")
    await trio.sleep(100)
    assert (await client.list_offset("t", -2)).offset > 50
    for number, reader in enumerate(readers):
        assert values_in(only_row(await reader.receive())) == [bytes([number]) * 180_000]
    names = [name for name in machine.disk.list("/data/t-0") if ".log" in name]
    assert len(names) <= 3


async def test_slices_of_a_deleted_topic_are_sent_as_they_were(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    await client.produce("t", b"old" * 100_000)
    reader = await machine.connect()
    await reader.send(fetch_request([("t", 0, 0)]), 12)
    await trio.testing.wait_all_tasks_blocked()
    await client.delete_topic("t")
    await client.create_topic("t")
    await client.produce("t", b"new" * 100_000)
    await trio.sleep(120)
    assert values_in(only_row(await reader.receive())) == [b"old" * 100_000]


async def test_descriptors_that_are_used_again_do_not_mix_files(nursery, tmp_path):
    """Fifty slow readers on real sockets and files; while they wait, their files go and others take their numbers."""
    small = SocketBuffers(send_bytes=1 << 16, receive_bytes=1 << 16)
    real = {"log_dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    machine = await Machine(nursery, disk=OsDisk(), net=OsNet(small), **real).start()
    client = await machine.connect()
    await client.create_topic("t", segment_bytes="450000")
    for number in range(50):
        await client.produce("t", bytes([number]) * 440_000)
    readers = [await machine.connect() for _ in range(50)]
    for number, reader in enumerate(readers):
        await reader.send(fetch_request([("t", 0, number)]), 12)
    await trio.testing.wait_all_tasks_blocked(0.05)
    await client.delete_topic("t")
    await client.create_topic("u", segment_bytes="450000")
    for _ in range(60):
        await client.produce("u", b"?" * 440_000)
    for number, reader in enumerate(readers):
        assert values_in(only_row(await reader.receive())) == [bytes([number]) * 440_000]


async def test_a_plan_that_is_not_sent_gives_its_files_back(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery, segment_bytes="200000")
    for _ in range(2):
        await client.produce("t", bytes(150_000))
    await client.send(fetch_request([("t", 0, 0)], min_bytes=10**6, max_wait_ms=600_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    client.close()
    await machine.stop()
    used = machine.disk.used_bytes
    await machine.start()
    other = await machine.connect()
    await other.delete_topic("t")
    await trio.sleep(120)
    assert machine.disk.used_bytes < used - 300_000


async def test_a_large_request_that_is_given_up_on_its_way_gives_its_slices_back(nursery, autojump_clock):
    machine = await Machine(nursery, log_segment_delete_delay_ms="0", file_delete_delay_ms="0").start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.produce("t", bytes(300_000))
    machine.thread_seconds = 1.0
    await client.send(fetch_request([("t", 0, 0)], forget=[("x" * 200, number) for number in range(500)]), 12)
    await trio.sleep(0.5)
    machine.ask_to_stop()
    await machine.ended()
    machine.thread_seconds = 0.001
    used = machine.disk.used_bytes
    await machine.start()
    await (await machine.connect()).delete_topic("t")
    await trio.sleep(120)
    assert machine.disk.used_bytes < used - 300_000


# -- disks that fail


class ReadFailsDisk(MemDisk):
    """Fails every read of a log while `broken` is set."""

    broken = False

    def check_fault(self, operation, path):
        if self.broken and operation == "read" and path.endswith(".log") and "/a/" in path:
            self.fail_next("read", path_part=path)
        super().check_fault(operation, path)


async def with_a_disk_that_reads_no_more(nursery, size):
    """A record of that size in /a, which was read once, and one in /b; (machine, client, partition in /a)."""
    machine = await Machine(nursery, disk=ReadFailsDisk(now_ms=now_ms), log_dirs="/a,/b").start()
    client = await machine.connect()
    await client.create_topic("t", 2)
    for partition in range(2):
        await client.produce("t", bytes(size), partition)
        await client.fetch("t", 0, partition)
    machine.disk.broken = True
    return machine, client, 0 if machine.disk.exists("/a/t-0") else 1


async def test_a_read_that_fails_takes_its_directory_offline_and_no_other(nursery, autojump_clock):
    _, client, partition = await with_a_disk_that_reads_no_more(nursery, 100)
    assert (await client.fetch("t", 0, partition)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", b"v", partition)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", b"v", 1 - partition)).error_code == 0


async def test_a_lookup_that_fails_takes_its_directory_offline_and_no_other(nursery, autojump_clock):
    _, client, partition = await with_a_disk_that_reads_no_more(nursery, 100)
    assert (await client.fetch("t", 0, partition, max_bytes=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", b"v", partition)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", b"v", 1 - partition)).error_code == 0


async def test_a_slice_that_cannot_be_read_ends_its_connection_and_its_directory(nursery, autojump_clock):
    machine, client, partition = await with_a_disk_that_reads_no_more(nursery, 100_000)
    with pytest.raises(ConnectionLost, match="it closed the connection"):
        await client.fetch("t", 0, partition)
    client = await machine.connect()
    assert (await client.produce("t", b"v", partition)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", b"v", 1 - partition)).error_code == 0
