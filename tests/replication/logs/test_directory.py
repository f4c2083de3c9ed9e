"""One log directory: its names, its owner, its marker."""

import pytest

from barnabas.replication.logs.directory import (
    Contents,
    LogDirectoryRefused,
    StoredIdentity,
    agreed_identity,
    complete_swaps,
    deleted_name,
    future_name,
    mark_clean,
    parse_partition_name,
    prepare,
    read_contents,
    refuse_duplicates,
)
from barnabas.storage.checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
    MetaProperties,
    read_meta_properties,
    write_checkpoint,
)
from barnabas.storage.disk import Disk
from barnabas.storage.memdisk import MemDisk
from barnabas.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
UNIQUE = "0123456789abcdef" * 2


def disk_with(*names: str) -> Disk:
    disk = MemDisk()
    disk.make_directory("/d1")
    for name in names:
        disk.make_directory("/d1/" + name)
    return disk


def test_directory_names_are_kafkas():
    assert parse_partition_name("a-b.c-10") == TopicPartition("a-b.c", 10)
    assert [parse_partition_name(name) for name in ("a", "a-", "-1", "a-b", "a-1.x", "a b-1")] == [None] * 6
    assert deleted_name(T0, bytes.fromhex(UNIQUE)) == f"t-0.{UNIQUE}-delete"
    assert len(deleted_name(TopicPartition("x" * 249, 12), bytes(16))) == 255


def test_logs_and_those_that_wait_for_their_removal_are_found():
    disk = disk_with("t-0", "a.b-delete-12", f"t-1.{UNIQUE}-delete")
    assert read_contents(disk, "/d1") == Contents([TopicPartition("a.b-delete", 12), T0], [f"t-1.{UNIQUE}-delete"], {})


def test_logs_that_are_to_take_the_place_of_others_are_found():
    name = future_name(T0, bytes.fromhex(UNIQUE))
    assert name == f"t-0.{UNIQUE}-future"
    assert read_contents(disk_with(name), "/d1") == Contents([], [], {name: T0})


def test_a_future_log_gets_the_name_of_the_log_if_its_swap_has_deleted_that():
    others = "1" * 32
    disk = disk_with(f"t-0.{UNIQUE}-future", f"t-1.{others}-future", "u-1", f"u-1.{UNIQUE}-future")
    swapped = Contents([], [f"t-0.{UNIQUE}-delete", f"t-1.{'2' * 32}-delete"], {})
    contents = {"/d1": read_contents(disk, "/d1"), "/d2": swapped}
    complete_swaps(disk, contents, "/d1")
    assert contents["/d1"].partitions == [TopicPartition("u", 1), T0]
    left = [f"t-1.{others}-future", f"u-1.{UNIQUE}-future"]
    assert list(contents["/d1"].futures) == left
    assert disk.list("/d1") == sorted(["t-0", "u-1", *left])


def test_what_kafka_ignores_is_ignored():
    disk = disk_with("remote-log-index-cache", "__cluster_metadata-0", f"t-0.{UNIQUE}-stray")
    disk.replace_file("/d1/metadata.sqlite", b"")
    assert read_contents(disk, "/d1") == Contents([], [], {})


@pytest.mark.parametrize("name", ["lost+found", "t-zero", "t-0-delete", ".Trash", f"t-0.{UNIQUE}-cleaned"])
def test_any_other_directory_is_refused(name):
    with pytest.raises(LogDirectoryRefused, match="is it the right one"):
        read_contents(disk_with(name), "/d1")


def test_a_partition_in_two_directories_is_refused():
    refuse_duplicates({"/d1": Contents([T0], [], {}), "/d2": Contents([TopicPartition("t", 1)], [], {})})
    with pytest.raises(LogDirectoryRefused, match="t-0 is in both /d1 and /d2"):
        refuse_duplicates({"/d1": Contents([T0], [], {}), "/d2": Contents([T0], [], {})})


def test_a_partition_that_moves_to_two_directories_is_refused():
    refuse_duplicates({"/d1": Contents([T0], [], {}), "/d2": Contents([], [], {"t-0.x-future": T0})})
    with pytest.raises(LogDirectoryRefused, match="t-0 is in both /d1 and /d2"):
        refuse_duplicates(
            {"/d1": Contents([], [], {"t-0.x-future": T0}), "/d2": Contents([], [], {"t-0.y-future": T0})}
        )


def test_directories_agree_on_their_owner_as_far_as_they_say():
    meta = MetaProperties(1, "castle", {"directory.id": "x"})
    assert agreed_identity({"/d1": None, "/d2": meta, "/d3": MetaProperties(1, "castle")}) == StoredIdentity(
        1, "castle"
    )
    assert agreed_identity({"/d1": None}) is None


@pytest.mark.parametrize("other", [MetaProperties(2, "castle"), MetaProperties(1, "village")])
def test_directories_of_different_owners_are_refused(other):
    with pytest.raises(LogDirectoryRefused, match=f"/d2 to {other.broker_id} of cluster {other.cluster_id}"):
        agreed_identity({"/d1": MetaProperties(1, "castle"), "/d2": other})


@pytest.mark.parametrize("meta", [MetaProperties(1, None), MetaProperties(None, "castle")])
def test_half_an_owner_is_refused(meta):
    with pytest.raises(LogDirectoryRefused, match=r"/d1/meta\.properties lacks"):
        agreed_identity({"/d1": meta})


def test_preparing_takes_the_marker_away_and_reads_the_checkpoints():
    disk = disk_with()
    mark_clean(disk, "/d1")
    write_checkpoint(disk, "/d1/" + RECOVERY_POINT_CHECKPOINT, {T0: 5})
    first, second = (prepare(disk, "/d1", None) for _ in range(2))
    assert (first.clean, second.clean) == (True, False)
    assert first.checkpoints == second.checkpoints
    assert first.checkpoints[RECOVERY_POINT_CHECKPOINT] == {T0: 5}


def test_preparing_writes_an_owner_where_there_is_none():
    disk = disk_with()
    prepare(disk, "/d1", StoredIdentity(7, "castle"))
    assert read_meta_properties(disk, "/d1/meta.properties") == MetaProperties(7, "castle", {})
