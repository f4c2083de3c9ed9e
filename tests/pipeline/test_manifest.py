"""An archive's directory: which batches count, what is removed, and when writing is refused."""

import json

import pytest

from barnabas.pipeline.manifest import Archive, ArchiveError, Batch, Range, planned_offsets

LETTERS = Range("letters", 0, 10, 12, 3, 300, 120, 1_000, 3_000)


@pytest.fixture
def archive(tmp_path):
    place = Archive(tmp_path / "archive")
    place.make()
    return place


def batch(archive, number, run="a", ranges=(LETTERS,)):
    """A batch whose records are written."""
    made = Batch(number, run, {"letters": {0: 13, 1: 0}}, ranges)
    (archive.records / made.directory / "topic=letters").mkdir(parents=True)
    (archive.records / made.directory / "topic=letters" / "part.parquet").write_bytes(b"PAR1")
    return made


def test_a_batch_that_is_committed_is_read_as_it_was_written(archive):
    made = batch(archive, 0)
    archive.commit(made)
    assert archive.batches() == [made]
    assert archive.batch(0) == made
    assert (made.records, made.bytes) == (3, 300)


def test_a_batch_without_its_manifest_does_not_count(archive):
    batch(archive, 0)
    (archive.manifest / "0.unfinished").write_text('{"format":')
    assert archive.batches() == []
    assert archive.batch(0) is None


def test_what_a_killed_run_left_is_removed_and_what_counts_stays(archive):
    kept, left = batch(archive, 0, "kept"), batch(archive, 0, "left")
    archive.commit(kept)
    archive.remove_leftovers(archive.batches())
    assert (archive.records / kept.directory).is_dir()
    assert not (archive.records / left.directory).exists()


def test_batches_are_in_the_order_of_their_numbers(archive):
    for number in range(11):
        archive.commit(batch(archive, number))
    assert [found.number for found in archive.batches()] == list(range(11))


def test_a_missing_batch_is_named(archive):
    for number in range(3):
        archive.commit(batch(archive, number))
    (archive.manifest / "1.json").unlink()
    with pytest.raises(ArchiveError, match="lacks batch 1; the archive is damaged"):
        archive.batches()


def test_a_manifest_of_another_format_is_refused(archive):
    (archive.manifest / "0.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(ArchiveError, match="has format 2; this version reads 1"):
        archive.batches()


def test_a_folder_that_is_no_archive_is_refused(tmp_path):
    with pytest.raises(ArchiveError, match="holds no archive"):
        Archive(tmp_path).batches()


def test_only_one_process_writes(archive):
    refused = pytest.raises(ArchiveError, match="another process is archiving")
    with archive.lock(), refused, Archive(archive.path).lock():
        pass
    with archive.lock():
        pass


def begun(archive, *numbers):
    """Checkpoints with a batch that Spark has planned."""
    for number in numbers:
        (archive.checkpoints / str(number) / "offsets").mkdir(parents=True)


@pytest.mark.parametrize(
    ("checkpoints", "batches", "from_manifest", "expected"),
    [
        ((), 0, False, 0),  # a new archive
        ((0,), 5, False, 0),  # the next run of one
        ((0,), 0, False, 0),  # killed in its first batch
        ((0, 5), 7, False, 5),  # the newer of two
        ((), 5, True, 5),  # the checkpoint was lost
        ((0,), 5, True, 5),  # it is there, and not wanted
    ],
)
def test_the_checkpoint_to_go_on_with(archive, checkpoints, batches, from_manifest, expected):
    begun(archive, *checkpoints)
    made = [Batch(number, "a", {}, ()) for number in range(batches)]
    assert archive.checkpoint(made, from_manifest) == (archive.checkpoints / str(expected), expected)


def test_without_its_checkpoint_an_archive_is_not_written_a_second_time(archive):
    (archive.checkpoints / "0").mkdir()  # nothing was planned in it
    with pytest.raises(ArchiveError, match="holds 1 batches, but its checkpoint is gone"):
        archive.checkpoint([Batch(0, "a", {}, ())], False)


def test_the_end_of_a_batch_is_read_from_the_offset_log_of_spark(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text('v1\n{"batchWatermarkMs":0}\n{"letters":{"1":4,"0":9},"maps":{"0":2}}')
    assert planned_offsets(tmp_path, 7) == {"letters": {0: 9, 1: 4}, "maps": {0: 2}}


@pytest.mark.parametrize("text", ["v2\n{}\n{}", "v1\n{}", "v1\n{}\n{}\n{}", ""])
def test_an_offset_log_of_another_shape_is_refused(tmp_path, text):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(text)
    with pytest.raises(ArchiveError, match="is not the offset log of a query with one source"):
        planned_offsets(tmp_path, 0)
