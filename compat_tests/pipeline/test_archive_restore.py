"""Topics to an archive and back, by the command line, with kills on the way; every record is compared."""

import json
import shutil

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.pipeline import letters
from compat_tests.pipeline.jobs import SHORT_LIVED_JVM, Job, archive_arguments, restore_arguments
from compat_tests.pipeline.scenes import (
    archived_records,
    batches_on_disk,
    committed,
    differences,
    kill_archiving_five_times,
)

TOPICS = letters.topics()
RECORDS = 10_000  # a topic
SMALL = "letters-zstd"


@pytest.fixture(scope="module")
def source(commands, tmp_path_factory):
    """A broker with half a history of each codec."""
    with BrokerProcess(tmp_path_factory.mktemp("source")) as broker:
        letters.create(broker.bootstrap, list(TOPICS))
        for topic, codec in TOPICS.items():
            letters.write(broker.bootstrap, topic, codec, 0, RECORDS // 2, RECORDS)
        yield broker


@pytest.fixture(scope="module")
def archived(source, commands, tmp_path_factory):
    """An archive of it that was killed five times in the making, while more came; and its last run's lines."""
    directory = tmp_path_factory.mktemp("archived")

    def write_more(number):
        first = RECORDS // 2 + number * RECORDS // 10
        for topic, codec in TOPICS.items():
            letters.write(source.bootstrap, topic, codec, first, first + RECORDS // 10, RECORDS)

    place = directory / "archive"
    arguments = archive_arguments(place, source.bootstrap, list(TOPICS), "--batch-records", "5000")
    kill_archiving_five_times(directory, place, arguments, write_more, **SHORT_LIVED_JVM)
    return place, commands.events(*arguments)


@pytest.fixture
def target(tmp_path):
    """Another broker, with nothing in it."""
    (tmp_path / "target").mkdir()
    broker = BrokerProcess(tmp_path / "target").start()
    yield broker
    broker.kill()


def written_bytes(broker):
    return sum(log.stat().st_size for log in broker.data_dir.glob("letters-*/*.log"))


def lines(said, event):
    return [line for line in said if line["event"] == event]


def test_an_archive_that_was_killed_five_times_has_every_record_once(source, archived, commands):
    place, said = archived
    assert archived_records(place) == len(TOPICS) * RECORDS
    assert len(batches_on_disk(place)) == committed(place)
    found = commands.compare(place, source.bootstrap)
    assert differences(found) == []
    assert sum(one["identical"] for one in found) == len(TOPICS) * RECORDS
    assert lines(said, "archived")[0]["batches"] == len(lines(said, "batch"))


def test_a_killed_restore_into_a_wiped_cluster_gives_the_same_archive_again(archived, target, commands, tmp_path):
    place, _ = archived
    arguments = restore_arguments(place, target.bootstrap)
    for everything in (False, True):
        job = Job(tmp_path, *arguments, **SHORT_LIVED_JVM)
        before = written_bytes(target)
        job.await_sight(lambda before=before: written_bytes(target) > before)
        job.kill(everything)
    said = commands.events(*arguments, "--verify")
    (summary,) = lines(said, "restored")
    found = lines(said, "compared")
    assert differences(found) == []
    assert summary["records"] == sum(one["identical"] for one in found) == len(TOPICS) * RECORDS
    assert summary["skipped"] > 0
    again = lines(commands.events(*arguments), "restored")[0]
    assert (again["written"], again["skipped"]) == (0, len(TOPICS) * RECORDS)


def test_a_part_of_an_archive_goes_to_topics_of_other_names(archived, source, commands, tmp_path):
    place, _ = archived
    state = ("--state", str(tmp_path / "state"))
    chosen = ("--topic", "letters-none", "--topic", SMALL, "--prefix", "part-", "--rename", f"{SMALL}=other")
    since = "2023-11-15T00:00:00"  # the history begins on 2023-11-14, at 22:13 UTC
    first, end = 100, 300  # of them some are earlier
    span = ("--offsets", f"letters-none:1:{first}:{end}", "--since", since)
    said = commands.events(*restore_arguments(place, source.bootstrap), *state, *chosen, *span, "--verify")
    plans = {(plan["target"], plan["partition"]): plan["records"] for plan in lines(said, "partition")}
    assert {target for target, _ in plans} == {"part-letters-none", "other"}
    late = [letters.letter(index, RECORDS).timestamp_ms >= 1_700_006_400_000 for index in range(RECORDS)]
    assert plans["other", 0] == sum(late[0 :: letters.PARTITIONS])
    assert plans["part-letters-none", 1] == sum(late[1 :: letters.PARTITIONS][first:end])
    assert differences(lines(said, "compared")) == []


def test_topics_with_records_are_left_alone_unless_they_are_to_be_appended_to(archived, target, commands):
    place, _ = archived
    letters.create(target.bootstrap, [SMALL])
    letters.write(target.bootstrap, SMALL, "lz4", 0, 1000, 1000)
    arguments = (*restore_arguments(place, target.bootstrap), "--topic", SMALL)
    refused = commands.run(*arguments)
    assert refused.status == 1
    assert f"barnabas: {SMALL}: there are records already" in refused.stderr
    said = commands.events(*arguments, "--append", "--verify")
    assert {plan["base"] for plan in lines(said, "partition")} == {1000 // letters.PARTITIONS}
    assert differences(lines(said, "compared")) == []


def test_an_archive_that_is_kept_running_follows_its_topic_until_it_is_stopped(target, commands, tmp_path):
    place = tmp_path / "archive"
    letters.create(target.bootstrap, ["letters"])
    following = archive_arguments(place, target.bootstrap, ["letters"], "--every", "0.5")
    job = Job(tmp_path, *following, **SHORT_LIVED_JVM)
    for end in (1000, 2000):
        letters.write(target.bootstrap, "letters", "lz4", end - 1000, end, 2000)
        assert job.await_sight(lambda end=end: committed(place) and archived_records(place) == end)
    job.terminate()
    assert lines(job.finish(), "archived")[0]["records"] == 2000
    assert differences(commands.compare(place, target.bootstrap)) == []


def test_an_archive_goes_on_after_its_checkpoint_is_lost_when_it_is_asked_to(target, commands, tmp_path):
    place = tmp_path / "archive"
    arguments = archive_arguments(place, target.bootstrap, ["letters"])
    letters.create(target.bootstrap, ["letters"])
    letters.write(target.bootstrap, "letters", "lz4", 0, 1000, 2000)
    commands.events(*arguments)
    shutil.rmtree(place / "checkpoint")
    letters.write(target.bootstrap, "letters", "lz4", 1000, 2000, 2000)
    refused = commands.run(*arguments)
    assert refused.status == 1
    assert "its checkpoint is gone" in refused.stderr
    assert lines(commands.events(*arguments, "--from-manifest"), "archived")[0]["records"] == 1000
    assert differences(commands.compare(place, target.bootstrap)) == []
    assert json.loads((place / "topics.json").read_text())["letters"]["partitions"] == letters.PARTITIONS
