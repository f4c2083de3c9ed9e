"""`barnabas log check` finds damage of every kind, and `barnabas log dump` shows the content of files."""

import struct
from contextlib import closing

import pytest

from barnabas.storage.check import check_directory, check_partition
from barnabas.storage.checkpoint import write_checkpoint
from barnabas.storage.cleaner import Cleaning, cleanable_part
from barnabas.storage.disk import StorageError
from barnabas.storage.dump import NotDumped, read_rows
from barnabas.storage.producers import Origin, ProducerStates, decode_snapshot, encode_snapshot
from barnabas.storage.transaction_index import AbortedTransaction, format_transactions
from barnabas.wire.records import ABORT, TRANSACTIONAL, Record, build_batch
from barnabas.wire.topics import TopicPartition

KEY = TopicPartition("orders", 0)
FIRST = "00000000000000000000"
SECOND = "00000000000000000004"
BATCH_BYTES = 91


@pytest.fixture
def directory(new_world):
    """Segments 0..3 and 4..8, closed cleanly, with everything that a partition can have."""
    world = new_world(segment_bytes=400)
    log = world.open()
    for number in range(4):
        world.append(log, timestamp=1000 + number, epoch=number)
    world.append(log, epoch=3, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    world.append_marker(log, ABORT, epoch=3)
    for _ in range(2):
        world.append(log, epoch=3)
    log.assign_topic_id(bytes(range(16)))
    log.close(world.now_ms)
    world.disk.replace_file("/data/meta.properties", b"version=0\nbroker.id=1\ncluster.id=abc\n")
    write_checkpoint(world.disk, "/data/recovery-point-offset-checkpoint", {KEY: 8})
    return world


def findings(world) -> list[tuple[str, int]]:
    return [(finding.file.rpartition("/")[2], finding.position) for finding in check_directory(world.disk, "/data")]


def patch(world, name: str, position: int, data: bytes) -> None:
    content = bytearray(world.content(name))
    content[position : position + len(data)] = data
    world.put(name, bytes(content))


def test_a_good_directory_has_no_findings(directory):
    assert findings(directory) == []


def test_a_log_that_is_being_written_has_no_findings(world):
    log = world.open()
    for epoch in range(20):
        world.append(log, epoch=epoch)
    assert findings(world) == []


@pytest.mark.parametrize(
    ("name", "position", "data", "found"),
    [
        (f"{FIRST}.log", BATCH_BYTES + 70, b"?", [(f"{FIRST}.log", BATCH_BYTES)]),
        (f"{SECOND}.log", 0, struct.pack(">q", 3), [(f"{SECOND}.log", 0)]),
        (f"{FIRST}.log", 3 * BATCH_BYTES, struct.pack(">q", 4), [(f"{FIRST}.log", 3 * BATCH_BYTES)]),
        (f"{FIRST}.log", 12, struct.pack(">i", 2), [(f"{FIRST}.log", 0)]),
        (f"{FIRST}.index", 4, struct.pack(">i", 100), [(f"{FIRST}.index", 0)]),
        (f"{FIRST}.index", 0, struct.pack(">i", 1), [(f"{FIRST}.index", 0)]),
        (f"{FIRST}.timeindex", 0, struct.pack(">q", 900), [(f"{FIRST}.timeindex", 0)]),
        (f"{FIRST}.timeindex", 8, struct.pack(">i", 0), [(f"{FIRST}.timeindex", 0)]),
        (f"{SECOND}.txnindex", 18, struct.pack(">q", 700), [(f"{SECOND}.txnindex", 0)]),
        (f"{SECOND}.txnindex", 0, b"\0\1", [(f"{SECOND}.txnindex", 0)]),
        ("00000000000000000008.snapshot", 12, b"?", [("00000000000000000008.snapshot", 0)]),
        ("leader-epoch-checkpoint", 0, b"x", [("leader-epoch-checkpoint", 0)]),
        ("partition.metadata", 0, b"x", [("partition.metadata", 0)]),
    ],
    ids=[
        "checksum", "falling offset", "offset of the next segment", "epoch", "index into a batch",
        "index before its batch", "time that no record has", "time before its batch", "transaction without marker",
        "transaction of unknown version", "snapshot", "epochs", "metadata",
    ],
)  # fmt: skip
def test_damage_is_found_where_it_is(directory, name, position, data, found):
    patch(directory, name, position, data)
    assert [finding for finding in findings(directory) if finding[0] == name] == found


def test_a_torn_tail_and_an_index_that_points_behind_it_are_found(directory):
    directory.put(f"{SECOND}.log", directory.content(f"{SECOND}.log")[:200])
    assert set(findings(directory)) >= {(f"{SECOND}.log", 169), (f"{SECOND}.index", 0)}


def test_entries_that_do_not_rise_and_half_entries_are_found(directory):
    entries = directory.content(f"{FIRST}.index")
    directory.put(f"{FIRST}.index", entries[:8] + entries[:8] + b"half")
    assert set(findings(directory)) >= {(f"{FIRST}.index", 0), (f"{FIRST}.index", 8)}


def test_a_missing_index_of_a_sealed_segment_is_found(directory):
    directory.disk.remove(f"/data/orders-0/{FIRST}.index")
    assert findings(directory) == [(f"{FIRST}.index", 0)]


def test_a_directory_that_holds_no_logs_is_not_said_to_be_whole(directory):
    patch(directory, f"{FIRST}.log", 70, b"?")
    (found,) = check_directory(directory.disk, "/data/orders-0")
    assert str(found) == ("/data/orders-0 at 0: is no data directory: it has neither partitions nor meta.properties")


def test_zeros_behind_an_index_are_none_of_its_entries(directory):
    directory.put(f"{FIRST}.index", directory.content(f"{FIRST}.index") + bytes(800))
    assert findings(directory) == []


def test_checkpoints_must_not_contradict_the_logs(directory):
    write_checkpoint(directory.disk, "/data/replication-offset-checkpoint", {KEY: 99})
    directory.disk.replace_file("/data/meta.properties", b"version=1\n")
    directory.disk.make_directory("/data/lost+found")
    names = ["lost+found", "meta.properties", "replication-offset-checkpoint"]
    assert sorted(name for name, _ in findings(directory)) == names


def test_a_finding_reads_as_a_sentence(directory):
    patch(directory, f"{FIRST}.log", 70, b"?")
    finding = next(check_directory(directory.disk, "/data"))
    assert str(finding) == f"/data/orders-0/{FIRST}.log at 0: the checksum of the batch at offset 0 does not match"


# -- dump


def rows(world, name: str, **options) -> list[dict]:
    return list(read_rows(world.disk, f"/data/{name}", **options))


def test_a_log_is_dumped_batch_by_batch(directory):
    batches = rows(directory, f"orders-0/{FIRST}.log")
    assert [(row["base_offset"], row["position"], row["intact"]) for row in batches] == [
        (number, number * BATCH_BYTES, True) for number in range(4)
    ]


def test_records_are_dumped_if_asked_for(world):
    log = world.open()
    records = [Record(0, 5, b"k\xff", "wärts\n".encode(), [("h", b"1"), ("n", None)])]
    log.append_as_leader(build_batch(records, timestamp_ms=0), leader_epoch=0, origin=Origin.CLIENT, now_ms=0)
    _, row = read_rows(world.disk, f"{log.directory}/{FIRST}.log", records=True)
    assert row == {"offset": 0, "timestamp": 5, "key": "k\\xff", "value": "wärts\\n", "headers": "h=1 n=None"}


def test_markers_are_dumped_as_such(directory):
    dumped = rows(directory, f"orders-0/{SECOND}.log", records=True)
    assert {"offset": 5, "timestamp": 1_000_000, "marker": "abort", "coordinator_epoch": 0} in dumped


def test_what_follows_the_last_batch_is_dumped_as_left_over(directory):
    directory.put(f"{FIRST}.log", directory.content(f"{FIRST}.log") + b"torn")
    assert rows(directory, f"orders-0/{FIRST}.log")[-1] == {"position": 4 * BATCH_BYTES, "bytes_left_over": 4}


@pytest.mark.parametrize(
    ("name", "first"),
    [
        (f"orders-0/{SECOND}.index", {"offset": 6, "position": 169}),
        (f"orders-0/{FIRST}.timeindex", {"timestamp": 1002, "offset": 2}),
        (
            f"orders-0/{SECOND}.txnindex",
            {"producer_id": 7, "first_offset": 4, "last_offset": 5, "last_stable_offset": 6},
        ),
        ("orders-0/leader-epoch-checkpoint", {"leader_epoch": 0, "start_offset": 0}),
        ("orders-0/partition.metadata", {"topic_id": "AAECAwQFBgcICQoLDA0ODw"}),
        ("meta.properties", {"broker.id": 1, "cluster.id": "abc"}),
        ("recovery-point-offset-checkpoint", {"topic": "orders", "partition": 0, "offset": 8}),
    ],
)
def test_other_files_are_dumped_row_by_row(directory, name, first):
    assert rows(directory, name)[0] == first


def test_a_snapshot_is_dumped_producer_by_producer(directory):
    row = rows(directory, "orders-0/00000000000000000008.snapshot")[0]
    assert (row["producer_id"], row["last_offset"], row["transaction_first_offset"]) == (7, 4, None)


def test_a_deleted_segment_can_still_be_dumped(directory):
    directory.disk.rename(f"/data/orders-0/{FIRST}.log", f"/data/orders-0/{FIRST}.log.deleted")
    assert len(rows(directory, f"orders-0/{FIRST}.log.deleted")) == 4


@pytest.mark.parametrize("name", ["notes.txt", "orders-0/00000000000000000099.log", "orders-0/nothing-checkpoint.x"])
def test_other_files_are_not_dumped(directory, name):
    with pytest.raises(StorageError):
        rows(directory, name)


def test_damaged_files_are_not_dumped(directory):
    directory.put(f"{SECOND}.txnindex", b"x")
    with pytest.raises(NotDumped, match="txnindex"):
        rows(directory, f"orders-0/{SECOND}.txnindex")


# -- transactions


def complaints(world) -> list[str]:
    return [finding.what for finding in check_partition(world.disk, "/data/orders-0")]


def with_transactions(world):
    """A sealed segment with an aborted transaction and one that stays open, and the next segment."""
    log = world.open()
    for producer_id in (7, 8):
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        world.append(log, attributes=TRANSACTIONAL, **fields)
    world.append_marker(log, ABORT, 7)
    log.roll(world.now_ms)
    world.append(log)
    world.flush(log)
    assert complaints(world) == []
    return log


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is missing"),
        (format_transactions([AbortedTransaction(8, 0, 2, 3)]), "has no marker at its end"),
        (format_transactions([AbortedTransaction(7, 0, 1, 2)]), "has no marker at its end"),
        (format_transactions([AbortedTransaction(7, 1, 2, 3)]), "begins at 0 in the log"),
    ],
)
def test_a_transaction_index_that_contradicts_the_log_is_found(world, content, complaint):
    with_transactions(world)
    world.put(f"{0:020d}.txnindex", content)
    assert any(complaint in each for each in complaints(world))


def test_a_sealed_segment_without_the_index_of_its_aborted_transactions_is_found(world):
    log = with_transactions(world)
    world.disk.remove(f"{log.directory}/{0:020d}.txnindex")
    (found,) = complaints(world)
    assert "is missing" in found


def test_a_snapshot_without_a_transaction_that_is_open_is_found(world):
    """A planted bug: the snapshot forgets open transactions."""
    with_transactions(world)
    name = f"{3:020d}.snapshot"
    states = ProducerStates()
    for producer in decode_snapshot(world.content(name)):
        states._entries.put(*producer._replace(first_offset=-1))
    world.put(name, encode_snapshot(states.entries()))
    (found,) = complaints(world)
    assert "lacks the transaction of producer 8 that is open from 1" in found


def test_a_marker_whose_data_retention_has_removed_needs_no_index_entry(new_world):
    world = new_world(compacted=True, deletes=True, segment_bytes=1 << 20)
    log = world.open()
    world.append(log, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll(world.now_ms)
    world.flush(log)  # and save the snapshot, in which the transaction is open
    world.append_marker(log, ABORT, 7)
    log.roll(world.now_ms)
    world.append(log)
    world.flush(log)
    log.raise_log_start(1)
    assert log.delete_old_segments(world.now_ms, log.log_end_offset) == 1
    compact(log, world.now_ms)
    assert not world.disk.exists(f"{log.directory}/{1:020d}.txnindex")
    assert complaints(world) == []


def compact(log, now_ms: int) -> None:
    part = cleanable_part(log, log.log_end_offset, now_ms)
    with closing(Cleaning(log, part, keys_max=100, window_bytes=1 << 20, now_ms=now_ms).steps()) as steps:
        for step in steps:
            assert step.replacement is None or step.replacement.apply(now_ms)
