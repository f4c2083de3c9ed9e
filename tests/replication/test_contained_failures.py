"""What goes wrong with one partition, or in one log directory, costs that one; the broker goes on with the others."""

import logging

import pytest
import trio

from barnabas.replication.partition import Partition
from barnabas.storage.disk import StorageError
from barnabas.storage.index import IndexCorrupt
from barnabas.storage.log import PartitionLog
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.records import CorruptRecords
from barnabas.world.containment import PAUSE_SECONDS, kept_up
from tests.broker.harness import Machine
from tests.broker.replica_group import Group


def spoil(monkeypatch, method, error, of):
    """A method of the logs whose directory ends so raises this."""
    right = getattr(PartitionLog, method)

    def spoiled(log, *args):
        if log.directory.endswith(of):
            raise error
        return right(log, *args)

    monkeypatch.setattr(PartitionLog, method, spoiled)


def tracebacks(caplog):
    """The exceptions that were logged."""
    return [record.exc_info[1] for record in caplog.records if record.exc_info]


async def diverging(group, *topics, leader=1, follower=2):
    """The follower holds records of each topic that the leader never had."""
    for topic in topics:
        await topic.led_by(follower, isr=[follower], to=[follower])
        await topic.produce(b"a", b"b", b"c")


# -- a directory that fails


@pytest.mark.parametrize("seconds", [0.5, 1.5])
async def test_a_directory_that_fails_during_a_cut_takes_nothing_but_itself(nursery, autojump_clock, seconds):
    group = await Group.start(nursery, count=2, log_dirs="/a,/b")
    topic, other = group.topic("t", replicas=(1, 2)), group.topic("u", replicas=(1, 2))
    await diverging(group, topic, other)
    follower = group.machines[2]
    logs, follower.thread_seconds = follower.broker.replicas.logs, 1.0
    log, beside = logs.get(topic.key), logs.get(other.key)
    nursery.start_soon(topic.led_by, 1)
    while not log.is_being_cut:
        await trio.sleep(0.01)
    await trio.sleep(seconds)
    logs.fail_directory_of(log, StorageError(log.directory, "write", "EIO"))
    await trio.sleep(20)
    assert follower.failure is None
    assert (logs.get(topic.key), logs.get(other.key)) == (None, beside)
    assert len(logs.offline_directories) == 1


# -- a follower


@pytest.mark.parametrize("error", [InvariantBroken("odd"), CorruptRecords("odd"), IndexCorrupt("odd"), KeyError("odd")])
@pytest.mark.parametrize("method", ["append_as_follower", "truncate_to"])
@pytest.mark.provokes_mistakes
async def test_a_partition_that_cannot_be_followed_fails_and_the_others_are_followed(
    nursery, autojump_clock, monkeypatch, caplog, method, error
):
    group = await Group.start(nursery, count=2)
    bad, good = group.topic("bad", replicas=(1, 2)), group.topic("good", replicas=(1, 2))
    await diverging(group, bad, good)
    spoil(monkeypatch, method, error, of="bad-0")
    for topic in (bad, good):
        await topic.led_by(1)
        await topic.produce(b"x", b"y")
    await good.is_copied_to(2, within_seconds=60)
    await trio.sleep(60)
    assert bad.values(2) != bad.values(1)
    assert tracebacks(caplog) == [error]  # once: it is not tried again


@pytest.mark.provokes_mistakes
async def test_a_failed_partition_is_followed_again_after_its_next_role(nursery, autojump_clock, monkeypatch, caplog):
    group = await Group.start(nursery, count=2)
    topic = group.topic("t", replicas=(1, 2))
    with monkeypatch.context() as spoiled:
        spoil(spoiled, "append_as_follower", KeyError("odd"), of="t-0")
        await topic.led_by(1)
        await topic.produce(b"a")
        await trio.sleep(10)
    assert (topic.values(2), len(tracebacks(caplog))) == ([], 1)
    await topic.led_by(1)
    await topic.is_copied_to(2, within_seconds=60)


@pytest.mark.provokes_mistakes
async def test_a_round_that_fails_as_a_whole_is_followed_by_another_one(nursery, autojump_clock, monkeypatch, caplog):
    group = await Group.start(nursery, count=2)
    topic = group.topic("t", replicas=(1, 2))
    await topic.led_by(1)
    error = KeyError("odd")
    with monkeypatch.context() as spoiled:

        def take(self, asked, response):
            raise error

        spoiled.setattr("barnabas.replication.follower_state.FetchSession.take", take)
        await topic.produce(b"a")
        await trio.sleep(5)
    assert tracebacks(caplog) == [error] * len(tracebacks(caplog)) != []
    assert len(tracebacks(caplog)) < 20, "it rests in between"
    await topic.is_copied_to(2, within_seconds=60)


async def test_logs_that_are_cut_together_share_the_writing_of_checkpoints(nursery, autojump_clock):
    group = await Group.start(nursery, count=2)
    topics = [group.topic(f"t{number}", replicas=(1, 2)) for number in range(12)]
    await diverging(group, *topics)
    directories, written = group.machines[2].broker.replicas.logs.directories, []
    right = directories.run

    async def noted(directory, function, *args):
        written.extend([args[1]] if function.__name__ == "write_checkpoint" else [])
        return await right(directory, function, *args)

    directories.run = noted
    await group.lead_together(topics, 1)
    for topic in topics:
        await topic.is_copied_to(2, within_seconds=60)
    assert 1 <= len(written) <= 3 * 3


async def test_a_topic_that_gets_its_id_while_it_is_followed_is_followed_on(nursery, autojump_clock):
    group = await Group.start(nursery, count=2)
    topic = group.topic("t", replicas=(1, 2), with_id=False)
    await topic.led_by(1)
    await topic.produce(b"a")
    topic.topic_id = b"0123456789abcdef"
    await topic.tell(1, 2)  # the same role once more, with the id
    await topic.produce(b"b")
    await topic.is_copied_to(2, within_seconds=30)


# -- roles


@pytest.mark.provokes_mistakes
async def test_a_role_that_cannot_be_taken_is_refused_and_the_others_are_taken(
    nursery, autojump_clock, monkeypatch, caplog
):
    group = await Group.start(nursery, count=2)
    topics = [group.topic(name, replicas=(1, 2)) for name in ("a", "bad", "c")]
    for topic in topics:
        await topic.led_by(1)
    right, error = Partition.become, KeyError("odd")

    def become(partition, log, role):
        if partition.topic_partition.topic == "bad" and not partition.is_leader:
            raise error
        right(partition, log, role)

    with monkeypatch.context() as spoiled:
        spoiled.setattr(Partition, "become", become)
        answers = await group.ask_to_lead_together(topics, 1)
    assert answers == {1: [0, 0, 0], 2: [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]}
    assert tracebacks(caplog) == [error]
    for topic in (topics[0], topics[2]):
        await topic.produce(b"x")
        await topic.is_copied_to(2, within_seconds=60)
    await topics[1].led_by(1)
    await topics[1].is_copied_to(2, within_seconds=60)


# -- what is done beside requests


@pytest.mark.provokes_mistakes
async def test_a_log_that_retention_fails_at_does_not_keep_it_from_the_others(
    nursery, autojump_clock, monkeypatch, caplog
):
    often = {"log_retention_check_interval_ms": "1000", "log_initial_task_delay_ms": "1000"}
    machine = await Machine(nursery, log_segment_bytes="1024", log_retention_bytes="0", **often).start()
    client, error = await machine.connect(), KeyError("odd")
    spoil(monkeypatch, "delete_old_segments", error, of="a-0")
    for topic in ("a", "b"):
        await client.create_topic(topic)
        for _ in range(4):
            await client.produce(topic, bytes(600))
    await trio.sleep(10)
    starts = [(await client.list_offset(topic, -2)).offset for topic in ("a", "b")]
    assert starts[0] == 0 < starts[1]
    assert set(tracebacks(caplog)) == {error}
    assert machine.failure is None


@pytest.mark.provokes_mistakes
async def test_a_task_that_fails_begins_again_after_a_pause(autojump_clock, caplog):
    began = []

    async def work():
        began.append(trio.current_time())
        if len(began) < 3:
            raise KeyError("odd")

    await kept_up(logging.getLogger("barnabas"), "the work", work)
    assert [each - began[0] for each in began] == [0, PAUSE_SECONDS, 2 * PAUSE_SECONDS]
    assert len(tracebacks(caplog)) == 2


async def test_a_task_that_is_cancelled_does_not_begin_again(autojump_clock, caplog):
    with trio.move_on_after(5) as scope:
        await kept_up(logging.getLogger("barnabas"), "the work", trio.sleep_forever)
    assert scope.cancelled_caught
    assert not caplog.records
