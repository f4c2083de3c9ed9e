"""What archive and restore decide without Spark: where to begin, how topics are created, what is said."""

import json
import sys
import threading
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from barnabas.pipeline import archiving, progress
from barnabas.pipeline.archiving import Source, check_ranges, reached, starting_offsets
from barnabas.pipeline.cli import milliseconds, offset_ranges, pairs, pipeline
from barnabas.pipeline.manifest import ArchiveError, Batch, Range
from barnabas.pipeline.progress import in_units, in_words, running_tasks, tasks_shown
from barnabas.pipeline.restoring import as_created
from barnabas.pipeline.topics import Topic


def test_after_the_manifest_every_partition_there_is_has_a_beginning():
    source = Source("", topics=("a", "b"))
    starting = starting_offsets({"a": {0: 7}, "gone": {0: 5}}, source, {"a": 2, "b": 1, "other": 1})
    assert json.loads(starting) == {"a": {"0": 7, "1": -2}, "b": {"0": -2}}


def test_after_the_manifest_a_pattern_takes_whole_names():
    starting = starting_offsets({}, Source("", pattern="a.*"), {"ab": 1, "ba": 1})
    assert json.loads(starting) == {"ab": {"0": -2}}


def test_after_the_manifest_no_topic_of_an_earlier_run_is_read_again():
    batches = [
        Batch(0, "r", {"a": {0: 5, 1: 2}, "b": {0: 9}}, ()),
        Batch(1, "r", {"a": {0: 7, 1: 2}, "b": {0: 9}}, ()),
        Batch(2, "r", {"b": {0: 10}}, ()),  # of a run with --from-manifest and --topic b
    ]
    assert reached(batches) == {"a": {0: 7, 1: 2}, "b": {0: 10}}


class Builder:
    """Takes every call as Spark's builders do, and keeps the options."""

    def __init__(self):
        self.given = {}

    def option(self, name, value):
        self.given[name] = value
        return self

    def __getattr__(self, _):
        return self

    def __call__(self, *_, **__):
        return self


def test_the_checkpoint_lies_in_the_archive_whatever_its_path_has_in_it(monkeypatch, tmp_path):
    for name in ("pyspark", "pyspark.errors"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(StreamingQueryException=ArithmeticError))
    monkeypatch.setattr(archiving, "await_query", lambda *_: None)
    spark, place = Builder(), tmp_path / "Jürgen's 100% letters"
    archiving.archive(spark, place, Source("127.0.0.1:1", topics=("a",)))
    # Hadoop's Path does not unescape what it is given.
    assert spark.given == {"checkpointLocation": f"file://{place}/checkpoint/0"}


@pytest.mark.parametrize("source", [Source(""), Source("", topics=("a",), pattern="a")])
def test_topics_are_given_by_name_or_by_pattern(source):
    with pytest.raises(ArchiveError, match="names or a pattern"):
        source.to_options()


@pytest.mark.parametrize(("first", "last", "records"), [(0, 10, 11), (0, 4, 6)])
def test_a_batch_with_records_that_were_not_planned_or_twice_is_refused(first, last, records):
    written = Batch(3, "r", {}, (Range("a", 0, first, last, records, 0, 0, 1, 1),))
    with pytest.raises(ArchiveError, match="batch 3 was to end at offset 10"):
        check_ranges(written, {"a": {0: 10}})


KNOWN = {
    "partitions": 3,
    "replication_factor": 3,
    "configs": {
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
        "retention.ms": "1000",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "1000",
    },
}


def test_a_topic_is_created_as_it_was_but_keeps_old_records():
    configs = {"cleanup.policy": "compact", "min.insync.replicas": "2", "message.timestamp.type": "CreateTime"}
    forever = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert as_created(KNOWN, 3, False) == Topic(3, 3, {**configs, **forever})
    assert as_created(KNOWN, 3, True) == Topic(3, 3, {**configs, "retention.ms": "1000"})


def test_a_topic_is_created_so_that_fewer_brokers_can_take_it():
    created = as_created(KNOWN, 1, False)
    assert created.replication_factor == 1
    assert "min.insync.replicas" not in created.configs


@pytest.mark.parametrize("command", ["archive", "restore"])
def test_without_java_a_job_ends_with_status_2_and_says_what_to_install(monkeypatch, tmp_path, command):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # there is no java in it
    ran = CliRunner().invoke(pipeline, [command, str(tmp_path), "--bootstrap-server", "127.0.0.1:1", "--topic", "a"])
    assert ran.exit_code == 2
    assert "pip install '.[spark]' in a clone of Barnabas, and Java 17 or newer" in ran.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("2026-11-21", 1_795_219_200_000),
    ],
)
def test_a_time_is_utc_unless_it_says_otherwise(text, expected):
    assert milliseconds(text) == expected


def test_a_second_offset_range_of_a_partition_does_not_replace_the_first():
    assert offset_ranges(["a:0:1:5", "a:1:1:5"]) == {("a", 0): (1, 5), ("a", 1): (1, 5)}
    with pytest.raises(click.BadParameter, match="a partition has one range of --offsets"):
        offset_ranges(["a:0:1:5", "a:0:7:9"])


def test_assignments_keep_what_follows_the_first_equals_sign():
    assert pairs(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


@pytest.mark.parametrize(("count", "said"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e13, "25.0 TB")])
def test_bytes_are_said_in_units(count, said):
    assert in_units(count) == said


def test_what_was_done_is_said_in_words():
    assert in_words(2_000_000, 10_000, 4.0) == "2,000,000 records, 10.0 kB in 4.0 s, 500,000 a second"
    assert in_words(0, None, 1.0) == "0 records in 1.0 s"


class Tracker:
    """Spark's status tracker: what it says of its stages, one list after the other."""

    def __init__(self, *looks):
        self.looks = [{stage.stageId: stage for stage in look} for look in looks]
        self.is_asked_out = threading.Event()

    def getActiveStageIds(self):  # noqa: N802  # as in PySpark
        self.now = self.looks.pop(0) if self.looks else {}
        if not self.looks:
            self.is_asked_out.set()
        return [*self.now]

    def getStageInfo(self, number):  # noqa: N802
        return self.now[number]


def stage(number, done, total):
    return SimpleNamespace(stageId=number, numCompletedTasks=done, numTasks=total)


def test_the_tasks_of_all_stages_that_run_are_counted():
    assert running_tasks(Tracker([stage(3, 1, 8), stage(4, 0, 2)])) == (1, 10, "stage 3, 4")
    assert running_tasks(Tracker([])) is None, "between two jobs"


def test_a_stage_that_has_ended_meanwhile_is_not_counted():
    tracker = Tracker([stage(3, 1, 8), stage(4, 0, 2)])
    ended = tracker.getStageInfo
    tracker.getStageInfo = lambda number: None if number == 4 else ended(number)
    assert running_tasks(tracker) == (1, 8, "stage 3")


def test_what_spark_does_is_shown_until_it_is_done(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 0.0)
    tracker = Tracker([], [stage(3, 1, 8)], [stage(3, 5, 8)])
    spark = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with tasks_shown(spark, "audit", as_json=False):
        assert tracker.is_asked_out.wait(10)
    assert capsys.readouterr().err.splitlines() == [
        "audit: 1 of 8 tasks, stage 3",
        "audit: 5 of 8 tasks, stage 3",
    ]
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
