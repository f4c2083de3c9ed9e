"""Records of internal topics: `barnabas log dump` decodes them, `barnabas log check` finds unreadable ones."""

import pytest

from barnabas.storage.check import check_partition
from barnabas.storage.dump import read_rows
from barnabas.wire import messages as m
from barnabas.wire.records import COMMIT, TRANSACTIONAL, build_batch, build_control_batch
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.wire.versioned_records import versioned

SEGMENT = "00000000000000000000.log"
ID = versioned(m.TransactionLogKey(transactional_id="payments-1"), 0)
OFFSET = versioned(m.OffsetCommitKey(group="readers", topic="letters", partition=3), 1)
GROUP = versioned(m.GroupMetadataKey(group="readers"), 2)
NEWER = b"\x00\x09" + b"anything"


def transaction(status: int, topics: list[m.TransactionLogValue.PartitionsSchema] | None) -> m.TransactionLogValue:
    return m.TransactionLogValue(
        producer_id=5, producer_epoch=1, transaction_timeout_ms=60_000, transaction_status=status,
        transaction_partitions=topics, transaction_last_update_timestamp_ms=7, transaction_start_timestamp_ms=6,
    )  # fmt: skip


ONGOING = transaction(1, [m.TransactionLogValue.PartitionsSchema(topic="a", partition_ids=[0, 2])])
COMMITTED = m.OffsetCommitValue(offset=42, leader_epoch=1, metadata="m", commit_timestamp=7)
MEMBER = m.GroupMetadataValue.MemberMetadata(
    member_id="k-1", client_id="k", client_host="/127.0.0.1", session_timeout=1, subscription=b"", assignment=b""
)
GENERATION = m.GroupMetadataValue(
    protocol_type="consumer", generation=4, protocol="range", leader="k-1", members=[MEMBER]
)


def write(world, topic: str, *pairs: tuple[bytes | None, bytes | None], marker: bool = False, **fields: int) -> str:
    """A partition with one batch, and perhaps a marker behind it; its directory."""
    directory = f"/data/{topic}-0"
    world.disk.make_directory(directory)
    data = bytes(build_batch(pairs, timestamp_ms=0, leader_epoch=0, **fields).data)
    if marker:
        control = build_control_batch(
            COMMIT, coordinator_epoch=0, producer_id=5, producer_epoch=0, timestamp_ms=0, base_offset=len(pairs)
        )
        data += bytes(control.data)
    world.disk.replace_file(f"{directory}/{SEGMENT}", data)
    return directory


def rows(world, directory: str) -> list[dict]:
    return [row for row in read_rows(world.disk, f"{directory}/{SEGMENT}", records=True) if "timestamp" in row]


@pytest.mark.parametrize(
    ("topic", "key", "value", "row"),
    [
        (
            TRANSACTION_TOPIC,
            ID,
            versioned(ONGOING, 0),
            {"transactional_id": "payments-1", "producer_id": 5, "state": "Ongoing", "partitions": "a-0 a-2"},
        ),
        (TRANSACTION_TOPIC, ID, versioned(transaction(0, None), 1), {"state": "Empty", "partitions": ""}),
        (TRANSACTION_TOPIC, ID, None, {"transactional_id": "payments-1", "tombstone": True}),
        (
            GROUP_TOPIC,
            OFFSET,
            versioned(COMMITTED, 3),
            {"group": "readers", "topic": "letters", "partition": 3, "committed_offset": 42, "metadata": "m"},
        ),
        (GROUP_TOPIC, OFFSET, None, {"topic": "letters", "tombstone": True}),
        (
            GROUP_TOPIC,
            GROUP,
            versioned(GENERATION, 3),
            {"group": "readers", "generation": 4, "protocol": "range", "members": "k-1"},
        ),
        (GROUP_TOPIC, GROUP, None, {"group": "readers", "tombstone": True}),
        (GROUP_TOPIC, NEWER, b"v", {"key": "\\x00\\tanything", "value": "v"}),
    ],
)
def test_records_of_internal_topics_are_dumped_decoded(world, topic, key, value, row):
    directory = write(world, topic, (key, value))
    (dumped,) = rows(world, directory)
    assert row.items() <= dumped.items()
    assert dumped["offset"] == 0
    assert list(check_partition(world.disk, directory)) == []


def test_offsets_of_a_transaction_and_their_marker_are_readable(world):
    fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    directory = write(world, GROUP_TOPIC, (OFFSET, versioned(COMMITTED, 3)), marker=True, **fields)
    dumped = rows(world, directory)
    assert [row.get("marker", row.get("committed_offset")) for row in dumped] == [42, "commit"]
    assert list(check_partition(world.disk, directory)) == []


@pytest.mark.parametrize(
    ("topic", "key", "value", "why"),
    [
        (TRANSACTION_TOPIC, None, b"", "a record without key"),
        (TRANSACTION_TOPIC, ID[:-1], b"", ""),
        (TRANSACTION_TOPIC, ID, versioned(transaction(6, []), 0), "there is no transaction state 6"),
        (TRANSACTION_TOPIC, ID, b"\x00\x02", "has no version 2"),
        (GROUP_TOPIC, OFFSET, versioned(COMMITTED, 3)[:-1], ""),
        (GROUP_TOPIC, b"\x00", b"", "too short for a version"),
    ],
)
def test_a_record_that_no_coordinator_can_read_is_found(world, topic, key, value, why):
    directory = write(world, topic, (ID if topic == TRANSACTION_TOPIC else GROUP, None), (key, value))
    (finding,) = check_partition(world.disk, directory)
    assert finding.what.startswith("the record at offset 1 is unreadable: ")
    assert why in finding.what
    assert why in rows(world, directory)[1]["unreadable"]
