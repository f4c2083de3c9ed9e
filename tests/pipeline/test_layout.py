"""Data directories as they lie on a disk: whose they are, what is in them, and how it is divided."""

import pytest

from barnabas.pipeline.layout import DataDirectory, Holding, list_holdings, name_directories, plan_parts
from barnabas.storage.disk import StorageError
from barnabas.storage.index import OFFSET_ENTRY
from barnabas.storage.memdisk import MemDisk
from barnabas.wire.records import build_batch


@pytest.fixture
def disk():
    disk = MemDisk()
    disk.make_directory("/b1")
    return disk


def put(disk, path, data):
    folder = path.rpartition("/")[0]
    disk.make_directory(folder)
    file = disk.open(path, create=True)
    file.write(0, data)
    file.release()


def batches(count, start=0):
    return [
        bytes(build_batch([(b"k", b"v" * 100)], timestamp_ms=1, base_offset=start + number).data)
        for number in range(count)
    ]


def parts_of(disk, *paths, **more):
    return list(plan_parts(disk, name_directories(disk, paths), **more))


def test_a_directory_is_named_by_its_broker_by_hand_or_by_its_path(disk):
    put(disk, "/b7/meta.properties", b"version=0\nbroker.id=7\n")
    named = name_directories(disk, ["/b1", "/b7", "left=/b1"])
    assert named == [DataDirectory("/b1", "/b1"), DataDirectory("7", "/b7"), DataDirectory("left", "/b1")]


def test_a_directory_that_is_not_there_is_an_error(disk):
    with pytest.raises(StorageError, match="/b9"):
        name_directories(disk, ["x=/b9"])


def test_only_folders_of_partitions_are_read(disk):
    for name in ("a-0", "a-b-12", "a-0.12ab-delete", "a-1.12ab-future", "plain", "-3"):
        put(disk, f"/b1/{name}/{0:020}.log", b"x" * 30)
    put(disk, "/b1/file-0", b"")
    assert [(part.topic, part.partition) for part in parts_of(disk, "/b1")] == [("a", 0), ("a-b", 12)]
    assert [part.topic for part in parts_of(disk, "/b1", topics=["a"])] == ["a"]


def test_only_segments_are_read_in_order_and_the_last_is_the_logs_end(disk):
    for name in (f"{900:020}.log", f"{0:020}.log", f"{0:020}.index", f"{5:020}.log.deleted", "5.log"):
        put(disk, f"/b1/a-0/{name}", b"x" * 30)
    found = parts_of(disk, "/b1")
    assert [part.path[-7:] for part in found] == ["000.log", "900.log"]
    assert [part.is_log_end for part in found] == [False, True]


def test_a_large_segment_is_divided_where_the_index_says(disk):
    data = batches(100)
    positions = [sum(map(len, data[:number])) for number in range(100)]
    put(disk, f"/b1/a-0/{0:020}.log", b"".join(data))
    put(disk, f"/b1/a-0/{0:020}.index", b"".join(OFFSET_ENTRY.pack(n, positions[n]) for n in range(3, 100, 3)))
    found = parts_of(disk, "/b1", split_bytes=4000)
    assert len(found) >= 3
    assert [part.end for part in found[:-1]] == [part.start for part in found[1:]]
    assert found[0].start == 0
    assert found[-1].end == sum(map(len, data))
    assert {part.start for part in found} <= set(positions)
    assert [part.is_log_end for part in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("entry", [(50, 6001), (3, 8000), (60, 0)])
def test_an_index_entry_that_does_not_fit_the_log_is_not_used(disk, entry):
    put(disk, f"/b1/a-0/{0:020}.log", b"".join(batches(100)))
    put(disk, f"/b1/a-0/{0:020}.index", OFFSET_ENTRY.pack(*entry))
    assert len(parts_of(disk, "/b1", split_bytes=4000)) == 1


def test_holdings_are_read_from_names_and_checkpoints(disk):
    put(disk, f"/b1/a-0/{300:020}.log", b"")
    put(disk, f"/b1/a-1/{0:020}.log", b"")
    disk.make_directory("/b1/a-2")
    put(disk, "/b1/log-start-offset-checkpoint", b"0\n1\na 1 40\n")
    put(disk, "/b1/replication-offset-checkpoint", b"0\n1\na 0 900\n")
    assert list(list_holdings(disk, [DataDirectory("1", "/b1")])) == [
        Holding("1", "a", 0, 300, 900),
        Holding("1", "a", 1, 40, 0),
        Holding("1", "a", 2, 0, 0),
    ]
