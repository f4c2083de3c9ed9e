"""What a restore does with an archive that lacks something, without Spark: it never says that all is there."""

import pytest

from barnabas.pipeline import restoring
from barnabas.pipeline.manifest import Archive, Batch, Range
from barnabas.pipeline.plan import RestoreError, Selection
from barnabas.pipeline.restoring import Target, restore
from barnabas.pipeline.topics import Topic
from barnabas.pipeline.writing import Outcome

SETTINGS = {"partitions": 2, "replication_factor": 1, "configs": {}}


class Cluster:
    """A cluster in memory: topics with the log end of each partition."""

    def __init__(self, *_):
        self.ends = {}

    def cluster_id(self):
        return "cluster"

    def brokers(self):
        return 1

    def partition_counts(self):
        return {name: sum(topic == name for topic, _ in self.ends) for name, _ in self.ends}

    def configs(self, name):
        return {}

    def create(self, topics):
        for name, topic in topics.items():
            assert isinstance(topic, Topic)
            self.ends |= {(name, number): 0 for number in range(topic.partitions)}

    def end_offsets(self, partitions):
        return {partition: self.ends[partition] for partition in partitions}


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    monkeypatch.setattr(restoring, "Cluster", lambda *_: made)
    monkeypatch.setattr(restoring, "refuse_timestamp_zero", lambda *_: None)  # it imports Spark
    return made


@pytest.fixture
def archive(tmp_path):
    """Five records of each of two partitions, by its manifest."""
    place = Archive(tmp_path / "archive")
    place.make()
    ranges = tuple(Range("letters", number, 0, 4, 5, 50, 10, 1_000, 3_000) for number in (0, 1))
    batch = Batch(0, "a", {"letters": {0: 5, 1: 5}}, ranges)
    (place.records / batch.directory).mkdir(parents=True)
    place.commit(batch)
    place.write(place.topics_file, {"letters": SETTINGS})
    return place


def restored(monkeypatch, archive, *outcomes, selection=None):
    """A restore whose tasks come to this end."""
    monkeypatch.setattr(restoring, "run_tasks", lambda *_: list(outcomes))
    return restore(None, archive.path, Target("127.0.0.1:1"), selection)


def test_a_restore_says_how_many_records_it_wrote(monkeypatch, archive, cluster):
    done = restored(monkeypatch, archive, Outcome("letters", 0, 0, 5), Outcome("letters", 1, 2, 3))
    assert (done.written, done.skipped) == (8, 2)


def test_a_partition_whose_files_are_gone_is_not_said_to_be_there_already(monkeypatch, archive, cluster):
    # Its task got no row, and came to no end.
    with pytest.raises(RestoreError, match="letters-1: the plan has 5 records for it, the archive gave none"):
        restored(monkeypatch, archive, Outcome("letters", 0, 0, 5))


def test_a_topic_whose_settings_are_not_archived_is_not_left_out(monkeypatch, archive, cluster):
    archive.topics_file.unlink()
    with pytest.raises(RestoreError, match=r"topics\.json does not describe letters: create the topic letters"):
        restored(monkeypatch, archive)


def test_a_topic_that_is_there_needs_no_archived_settings(monkeypatch, archive, cluster):
    archive.topics_file.unlink()
    cluster.ends = {("copy", 0): 0, ("copy", 1): 0}
    done = restored(
        monkeypatch,
        archive,
        Outcome("copy", 0, 0, 5),
        Outcome("copy", 1, 0, 5),
        selection=Selection(renamed={"letters": "copy"}),
    )
    assert done.written == 10
