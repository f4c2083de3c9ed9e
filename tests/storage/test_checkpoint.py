"""The small text files: as Kafka writes them, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.checkpoint import (
    CheckpointCorrupt,
    Malformed,
    MetaProperties,
    format_checkpoint,
    format_leader_epochs,
    format_meta_properties,
    format_partition_metadata,
    parse_checkpoint,
    parse_leader_epochs,
    parse_meta_properties,
    parse_partition_metadata,
    read_checkpoint,
    read_leader_epochs,
    read_meta_properties,
    read_partition_metadata,
    write_checkpoint,
    write_meta_properties,
    write_partition_metadata,
)
from barnabas.storage.disk import StorageError
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.memdisk import MemDisk
from barnabas.wire.topics import TopicPartition, topic_id_from_text

EVENTS_0 = TopicPartition("events", 0)
TOPIC_ID = topic_id_from_text("OK_izHUkQeK4IFpwMVK5UQ")


def refused(parse, text: str) -> tuple[int, str]:
    with pytest.raises(Malformed) as caught:
        parse(text)
    return caught.value.line, caught.value.why


# -- the texts of a running Kafka 3.9.1


def test_offset_checkpoints_are_kafkas():
    text = "0\n2\nevents 0 23\n__transaction_state 0 10\n"
    offsets = {EVENTS_0: 23, TopicPartition("__transaction_state", 0): 10}
    assert parse_checkpoint(text) == offsets
    assert format_checkpoint(offsets) == text


def test_an_empty_checkpoint_is_kafkas():
    assert parse_checkpoint("") == {}  # it creates the file so
    assert parse_checkpoint("0\n") == {}
    assert parse_checkpoint("0\n0\n") == {}
    assert format_checkpoint({}) == "0\n0\n"


def test_leader_epochs_are_kafkas():
    assert parse_leader_epochs("0\n2\n0 0\n3 95\n").entries == [(0, 0), (3, 95)]
    assert format_leader_epochs(LeaderEpochs([(0, 0), (3, 95)])) == "0\n2\n0 0\n3 95\n"


def test_partition_metadata_is_kafkas():
    text = "version: 0\ntopic_id: OK_izHUkQeK4IFpwMVK5UQ"
    assert parse_partition_metadata(text) == parse_partition_metadata(text + "\n") == TOPIC_ID
    assert format_partition_metadata(TOPIC_ID) == text


def test_meta_properties_are_kafkas():
    text = "#\n#Sat Nov 21 14:06:33 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=lCpYZ4CsTV-5P3zj_wjZzQ\n"
    assert parse_meta_properties(text) == MetaProperties(7, "lCpYZ4CsTV-5P3zj_wjZzQ", {})


def test_meta_properties_may_lack_what_is_not_decided_yet():
    assert parse_meta_properties("version=0\n") == MetaProperties(None, None, {})


def test_meta_properties_keep_what_they_do_not_know():
    meta = parse_meta_properties("version=0\nbroker.id=1\ncluster.id=c\ndirectory.id=d\n")
    assert "directory.id=d\n" in format_meta_properties(meta)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1))
def test_any_cluster_id_is_read_as_it_was_written(cluster_id):
    meta = MetaProperties(1, cluster_id, {})
    assert parse_meta_properties(format_meta_properties(meta)) == meta


@given(
    st.dictionaries(st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0)), st.integers())
)
def test_any_offsets_are_read_as_they_were_written(offsets):
    keyed = {TopicPartition(*key): offset for key, offset in offsets.items()}
    assert parse_checkpoint(format_checkpoint(keyed)) == keyed


# -- what is refused


def test_a_damaged_checkpoint_is_refused_with_its_line():
    assert refused(parse_checkpoint, "1\n0\n") == (1, "version 1 is not known")
    assert refused(parse_checkpoint, "x\n") == (1, "'x' is not a number")
    assert refused(parse_checkpoint, "0\nmany\n") == (2, "'many' is not a number")
    assert refused(parse_checkpoint, "0\n2\nt 0 1\n") == (2, "2 entries announced, 1 there")
    assert refused(parse_checkpoint, "0\n1\nt 0\n") == (3, "3 fields expected, not 2")
    assert refused(parse_checkpoint, "0\n2\nt 0 1\nt 1 y\n") == (4, "'y' is not a number")


def test_damaged_leader_epochs_are_refused_with_their_line():
    assert refused(parse_leader_epochs, "0\n1\n-1 0\n") == (3, "neither an epoch nor an offset is negative")
    assert refused(parse_leader_epochs, "0\n1\n1 0 0\n") == (3, "2 fields expected, not 3")


def test_damaged_partition_metadata_is_refused_with_its_line():
    assert refused(parse_partition_metadata, "")[0] == 1
    assert refused(parse_partition_metadata, "version: 1\ntopic_id: OK_izHUkQeK4IFpwMVK5UQ")[0] == 1
    assert refused(parse_partition_metadata, "version: 0")[0] == 2
    assert refused(parse_partition_metadata, "version: 0\nid: OK_izHUkQeK4IFpwMVK5UQ")[0] == 2
    assert refused(parse_partition_metadata, "version: 0\ntopic_id: short")[0] == 2
    assert refused(parse_partition_metadata, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA") == (
        2,
        "the topic id is zero",
    )


def test_the_directory_of_a_kraft_node_is_refused():
    line, why = refused(parse_meta_properties, "#comment\nnode.id=1\nversion=1\n")
    assert (line, "ZooKeeper" in why) == (3, True)
    assert refused(parse_meta_properties, "broker.id=1\n")[0] == 1


def test_nonsense_in_meta_properties_is_refused():
    assert refused(parse_meta_properties, "version=0\nbroker.id=one\n") == (2, "'one' is not a number")
    assert refused(parse_meta_properties, "version=0\ncluster.id=\\u12")[0] == 1


# -- on disk


def test_files_that_are_not_there_are_empty():
    disk = MemDisk()
    assert read_checkpoint(disk, "/c") == {}
    assert read_leader_epochs(disk, "/e").entries == []
    assert read_partition_metadata(disk, "/p") is None
    assert read_meta_properties(disk, "/m") is None


def test_files_are_read_as_they_were_written():
    disk = MemDisk()
    write_checkpoint(disk, "/c", {EVENTS_0: 5})
    disk.replace_file("/e", format_leader_epochs(LeaderEpochs([(1, 2)])).encode())
    write_partition_metadata(disk, "/p", TOPIC_ID)
    write_meta_properties(disk, "/m", MetaProperties(1, "c"))
    assert read_checkpoint(disk, "/c") == {EVENTS_0: 5}
    assert read_leader_epochs(disk, "/e").entries == [(1, 2)]
    assert read_partition_metadata(disk, "/p") == TOPIC_ID
    assert read_meta_properties(disk, "/m") == MetaProperties(1, "c", {})


def test_a_damaged_file_is_a_storage_error_that_names_file_and_line():
    disk = MemDisk()
    disk.replace_file("/c", b"0\n1\nt 0 x\n")
    with pytest.raises(StorageError, match=r"/c: line 3: 'x' is not a number \(parse\)"):
        read_checkpoint(disk, "/c")
    disk.replace_file("/c", b"0\n1\n\xff")
    with pytest.raises(CheckpointCorrupt, match="UTF-8"):
        read_checkpoint(disk, "/c")
