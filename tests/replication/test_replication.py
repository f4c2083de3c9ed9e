"""Followers that copy their leader: catching up, changing leaders, logs that went different ways (KIP-101, KIP-279)."""

import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.replication.logs.partition_logs import AllDirectoriesOffline
from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import COMMIT, TRANSACTIONAL, build_batch, build_control_batch
from tests.broker.clusters import cluster, create_topic, leader_of, until
from tests.broker.harness import CrashRecorder
from tests.broker.replica_group import Group
from tests.broker.requests import batch_of, produce_request


def seed_that_loses(value, machine, path):
    """A seed with which a power failure takes this value from a file, as it was not synced."""
    outcomes = ((seed, machine.disk.crash_machine(random.Random(seed)).read_file(path)) for seed in range(100))
    return next(seed for seed, left in outcomes if value not in left)


def seed_with(is_so, machine):
    """A seed with which a power failure leaves a disk that is so."""
    return next(seed for seed in range(1000) if is_so(machine.disk.crash_machine(random.Random(seed))))


async def started(nursery, *values, replicas=(1, 2, 3), **properties):
    """Broker 1 leads a topic, and every replica of it holds these records."""
    group = await Group.start(nursery, **properties)
    topic = group.topic(replicas=replicas)
    await topic.led_by(1)
    await topic.produce(*values)
    await topic.is_copied_to(*replicas[1:])
    return group, topic


# -- copying


async def test_followers_copy_the_leaders_log(nursery, autojump_clock):
    _, topic = await started(nursery)
    await topic.produce(b"a", b"b")
    await topic.is_copied_to(2, 3, within_seconds=2)
    await topic.produce(b"c")
    await topic.is_copied_to(2, 3, within_seconds=2)
    assert topic.values(3) == [b"a", b"b", b"c"]


async def test_followers_of_a_new_topic_need_not_wait_until_the_leader_hears_of_it_twice(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        client = await machines[0].connect()
        await create_topic(client, "new", [2, 3, 1])
        leader = await (await leader_of(machines, "new")).connect()
        with trio.fail_after(0.5):
            assert (await leader.produce("new", b"a")).error_code == 0


async def test_a_follower_that_was_away_catches_up(nursery, autojump_clock):
    group, topic = await started(nursery, b"a")
    await group.crash(2)
    await topic.produce(b"b", b"c")
    await group.start_broker(2)
    await topic.tell(2)
    await topic.is_copied_to(2, 3, within_seconds=2)


async def test_a_follower_of_a_leader_that_is_not_alive_waits_until_it_is(nursery, autojump_clock):
    group, topic = await started(nursery, b"a")
    await group.crash(2)
    await topic.led_by(2, to=[1, 3])
    await trio.sleep(60)
    await group.start_broker(2)
    await topic.tell(2)
    await topic.produce(b"b")
    await topic.is_copied_to(1, 3, within_seconds=3)


async def test_what_a_controller_has_sent_on_an_earlier_connection_comes_too_late(nursery, autojump_clock):
    group, topic = await started(nursery)
    former, group.clients[2] = group.clients[2], await group.machines[2].connect()
    late = await topic._update_metadata(), await topic.leader_and_isr_request()
    await topic.led_by(3)
    for request in late:
        assert (await former.ask(request)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert group.machines[2].broker.metadata.leader_of("t", 0) == 3
    former.in_flight.client_id = "another"  # with the epoch of the controller
    assert (await former.ask(await topic._update_metadata())).error_code == 0
    await topic.led_by(1)


async def test_a_follower_keeps_trying_when_its_leader_does_not_answer(nursery, autojump_clock):
    group, topic = await started(nursery)
    await group.crash(1)
    await trio.sleep(60)
    await group.start_broker(1)
    await topic.led_by(1)
    await topic.produce(b"a")
    await topic.is_copied_to(2, 3, within_seconds=3)


@pytest.mark.parametrize("level", ["3.9", "3.4", "3.0", "2.7-IV1", "2.7-IV0", "2.2", "2.0"])
async def test_followers_copy_in_the_versions_of_every_level(nursery, autojump_clock, level):
    group, topic = await started(nursery, b"a", b"b", inter_broker_protocol_version=level)
    await group.crash(1)
    await topic.led_by(2)
    await topic.produce(b"c")
    await topic.is_copied_to(3)
    await group.start_broker(1)
    await topic.tell(1)
    await topic.is_copied_to(1, 3)
    assert topic.values(1) == [b"a", b"b", b"c"]


async def test_a_topic_without_an_id_is_fetched_by_its_name(nursery, autojump_clock):
    group = await Group.start(nursery)
    topic, old = group.topic(), group.topic("old", with_id=False)
    for each in (topic, old):
        await each.led_by(1)
        await each.produce(b"a")
    await topic.is_copied_to(2, 3)
    await old.is_copied_to(2, 3)


async def test_a_leader_that_was_never_given_the_topics_id_is_fetched_from_by_name(nursery, autojump_clock):
    group = await Group.start(nursery)
    topic = group.topic(replicas=(1, 2))
    await topic.led_by(1, to=[1])  # by a controller that knows ids
    await topic.produce(b"a")
    topic.topic_id = bytes(16)  # from here on by one that does not
    await topic.led_by(1)
    await topic.is_copied_to(2)
    await topic.led_by(2)
    await topic.produce(b"b")
    await topic.is_copied_to(1)
    assert topic.values(1) == [b"a", b"b"]


async def test_a_follower_writes_its_high_watermark_down_and_starts_from_it(nursery, autojump_clock):
    group, topic = await started(nursery, replicas=[1, 2])
    await topic.produce(b"a", b"b", b"c", acks=-1)
    await trio.sleep(6)
    assert topic.written_high_watermark(2) == 3
    await group.crash(2)
    await group.crash(1)
    await group.start_broker(2)
    await topic.tell(2)
    assert (topic.replica(2).is_leader, topic.replica(2).high_watermark) == (False, 3)


# -- logs that went different ways


async def a_divergent_tail(nursery, **properties):
    """Broker 1 was the leader and has records that no other replica has; it is down, and 2 is the leader."""
    group, topic = await started(nursery, b"a", replicas=[1, 2], **properties)
    await group.crash(2)
    await topic.produce(b"lost", b"lost as well")
    await group.crash(1)
    await group.start_broker(2)
    await topic.led_by(2)
    await topic.produce(b"b")
    return group, topic


async def test_an_old_leader_cuts_what_only_it_had(nursery, autojump_clock):
    group, topic = await a_divergent_tail(nursery)
    await group.start_broker(1)
    assert topic.values(1) == [b"a", b"lost", b"lost as well"]
    await topic.tell(1)
    await topic.is_copied_to(1, within_seconds=2)
    assert topic.values(1) == [b"a", b"b"]
    assert topic.replica(1).log.epochs.entries == topic.replica(2).log.epochs.entries == [(0, 0), (1, 1)]


async def test_a_follower_that_was_cut_hears_of_the_high_watermark_without_a_write(nursery, autojump_clock):
    group, topic = await started(nursery, b"a", b"b")
    # Broker 3 does not know that the two are committed, and writes a record of its own.
    await group.crash(3)
    await group.start_broker(3)
    await topic.led_by(3, isr=[3, 1, 2], to=[3])
    assert topic.replica(3).high_watermark == 0
    await topic.produce(b"only here")
    await topic.led_by(2, isr=[1, 2], to=[1, 2])
    await trio.sleep(5)
    assert topic.replica(2).high_watermark == 2
    await topic.tell(3)
    await trio.sleep(60)
    assert topic.values(3) == [b"a", b"b"]
    assert topic.replica(3).high_watermark == 2


async def test_an_acknowledged_record_survives_a_follower_that_had_not_heard_of_its_commit(nursery, autojump_clock):
    # The first scenario of KIP-101: a follower that cuts its log at its high watermark, and is then elected, loses it.
    group = await Group.start(nursery)
    topic = group.topic(replicas=[1, 2])
    await topic.led_by(2)
    await topic.produce(b"m1")
    await topic.is_copied_to(1)
    await trio.sleep(6)  # the follower has written its high watermark down
    await topic.produce(b"m2", acks=-1)
    await group.crash(1)
    assert (topic.values(1), topic.written_high_watermark(1)) == ([b"m1", b"m2"], 1)
    await group.start_broker(1)
    await topic.tell(1)
    await group.crash(2)
    await topic.led_by(1)
    await topic.produce(b"m3")
    await group.start_broker(2)
    await topic.tell(2)
    await topic.is_copied_to(2)
    assert topic.values(2) == [b"m1", b"m2", b"m3"]


async def test_two_machines_that_lost_power_do_not_keep_different_records_at_one_offset(nursery, autojump_clock):
    # The second scenario of KIP-101: the one that lost m2 leads first; m2 lies where m3 was written.
    group, topic = await started(nursery, b"m1", replicas=[1, 2])
    for broker_id in (2, 1):
        await group.stop(broker_id)
    await group.start_broker(1)
    await group.start_broker(2)
    await topic.led_by(1)
    await topic.produce(b"m2", acks=-1)
    await trio.sleep(6)
    await group.crash(1)
    assert topic.written_high_watermark(1) == 2
    await group.cut_power(2, seed_that_loses(b"m2", group.machines[2], "/data/t-0/00000000000000000000.log"))
    await group.start_broker(2)
    assert topic.values(2) == [b"m1"]
    await topic.led_by(2)
    await topic.produce(b"m3")
    await group.start_broker(1)
    assert topic.values(1) == [b"m1", b"m2"]
    await topic.tell(1)
    await topic.is_copied_to(1)
    assert topic.values(1) == [b"m1", b"m3"]


@pytest.mark.parametrize("level", ["3.9", "2.6"])
async def test_logs_that_share_only_an_old_epoch_are_cut_step_by_step(nursery, autojump_clock, level):
    # KIP-279: two leaders in turn, each of which wrote what the other never saw.
    group, topic = await started(nursery, b"shared", replicas=[1, 2], inter_broker_protocol_version=level)
    for leader, value in ((1, b"p"), (2, b"q"), (1, b"r"), (2, b"s")):
        other = 3 - leader
        if other in group.clients:
            await group.crash(other)
        if leader not in group.clients:
            await group.start_broker(leader)
        await topic.led_by(leader)
        await topic.produce(value)
    assert [topic.values(1), topic.values(2)] == [[b"shared", b"p", b"r"], [b"shared", b"q", b"s"]]
    await group.start_broker(1)
    await topic.tell(1)
    await topic.is_copied_to(1, within_seconds=2)
    assert topic.values(1) == [b"shared", b"q", b"s"]


async def test_an_epoch_in_which_nothing_was_written_keeps_no_one_from_following(nursery, autojump_clock):
    group, topic = await started(nursery, b"a", replicas=[1, 2])
    await group.crash(2)
    await topic.led_by(1)  # epoch 1, and nothing in it
    assert topic.replica(1).log.epochs.latest_epoch == 1
    await group.stop(1)
    await group.start_broker(2)
    await topic.led_by(2)
    await topic.produce(b"b")
    await group.start_broker(1)
    await topic.tell(1)
    await topic.is_copied_to(1, within_seconds=2)
    assert topic.replica(1).log.epochs.entries == [(0, 0), (2, 1)]


async def test_after_an_unclean_election_even_committed_records_are_cut(nursery, autojump_clock):
    group, topic = await started(nursery, b"a", replicas=[1, 2])
    await group.crash(2)
    await topic.led_by(1, isr=[1])
    await topic.produce(b"committed", b"committed too", acks=-1)
    await trio.sleep(6)
    assert topic.written_high_watermark(1) == 3
    await group.crash(1)
    await group.start_broker(2)
    await topic.led_by(2)
    await topic.produce(b"b")
    await group.start_broker(1)
    await topic.tell(1)
    await topic.is_copied_to(1, within_seconds=2)
    assert (topic.values(1), topic.replica(1).high_watermark) == ([b"a", b"b"], 2)


# -- what the leader has not any more, and what it has in other pieces


@pytest.mark.parametrize("level", ["3.9", "2.6"])
@pytest.mark.parametrize("only_there", [[b"x"], [b"x", b"y"]], ids=["as long as the leader's", "longer"])
async def test_what_cannot_be_compared_any_more_stays_below_the_log_start(nursery, autojump_clock, level, only_there):
    # Broker 1 wrote records that broker 2 never saw; and broker 2 has deleted its own at these offsets since.
    group, topic = await started(nursery, b"a", replicas=[1, 2], inter_broker_protocol_version=level)
    await group.crash(2)
    await topic.led_by(1, isr=[1, 2])
    await topic.produce(*only_there)
    await group.crash(1)
    await group.start_broker(2)
    await topic.led_by(2)
    await topic.produce(b"b", b"c", b"d", acks=-1)
    assert (await topic.delete_records(2)) == 2
    await group.start_broker(1)
    await topic.tell(1)
    await until(lambda: topic.values(1) == [b"a", b"x", b"c", b"d"])
    await group.crash(1)
    await group.start_broker(1)
    await topic.led_by(1, to=[1])
    assert topic.replica(1).log.log_start_offset == 2


async def test_a_follower_that_was_away_too_long_starts_over_where_the_leader_starts(nursery, autojump_clock):
    group, topic = await started(nursery, b"a", b"b", replicas=[1, 2])
    await group.crash(2)
    await topic.led_by(1, isr=[1])
    await topic.produce(b"c", b"d", b"e", acks=-1)
    assert (await topic.delete_records(4)) == 4
    await group.start_broker(2)
    await topic.tell(2)
    await until(lambda: topic.values(2) == [b"e"])
    log = topic.replica(2).log
    assert (log.log_start_offset, log.log_end_offset, topic.replica(2).high_watermark) == (4, 5, 5)
    await topic.produce(b"f")
    await until(lambda: topic.values(2) == [b"e", b"f"])


async def test_a_follower_starts_where_its_leader_starts_and_says_so(nursery, autojump_clock):
    _, topic = await started(nursery, replicas=[1, 2])
    await topic.produce(b"a", b"b", b"c", acks=-1)
    await topic.is_copied_to(2)
    assert (await topic.delete_records(2)) == 2  # the answer waits for the followers
    assert topic.replica(2).log.log_start_offset == 2


async def started_inside_a_batch(nursery):
    """The log of broker 1 begins inside a batch; broker 2 has none of its records, and no role yet."""
    group, topic = await started(nursery, replicas=[1, 2])
    await group.crash(2)
    await topic.led_by(1, isr=[1])
    await topic.produce(records=batch_of(b"a", b"b", b"c"))
    assert (await topic.delete_records(2)) == 2
    await group.start_broker(2)
    return group, topic


async def test_a_follower_without_records_begins_inside_a_batch_as_its_leader_does(nursery, autojump_clock):
    _, topic = await started_inside_a_batch(nursery)
    await topic.tell(2)
    await topic.is_copied_to(2, within_seconds=5)
    log = topic.replica(2).log
    assert (log.log_start_offset, log.log_end_offset, topic.replica(2).high_watermark) == (2, 3, 3)
    await topic.produce(b"d")
    await topic.is_copied_to(2, within_seconds=1)


async def test_a_role_that_ends_while_a_log_starts_over_leaves_it_with_the_batch(nursery, autojump_clock):
    group, topic = await started_inside_a_batch(nursery)
    truncation = group.machines[2].broker.replicas.logs.truncation
    right, found = truncation.start_over, []

    async def lead_again():
        await topic.led_by(1)
        replica = topic.replica(2)
        found.append((replica.log.log_start_offset, replica.log.log_end_offset, replica.high_watermark))

    async def start_over(log, offset, on_cut):
        if offset == 0:  # of the batch
            nursery.start_soon(lead_again)
            await wait_all_tasks_blocked()
        await right(log, offset, on_cut)

    truncation.start_over = start_over
    await topic.tell(2)
    await until(lambda: found)
    assert found == [(2, 3, 2)]
    await topic.is_copied_to(2, within_seconds=5)


async def test_the_holes_that_compaction_left_are_copied_too(nursery, autojump_clock):
    compacting = {"log_cleanup_policy": "compact", "log_segment_bytes": "300", "log_cleaner_backoff_ms": "1000"}
    group, topic = await started(nursery, replicas=[1, 2], **compacting, log_cleaner_min_cleanable_ratio="0.01")
    await group.crash(2)
    await topic.led_by(1, isr=[1])
    for number in range(20):
        await topic.produce(records=batch_of(b"%d" % number, key=b"k%d" % (number % 3)), acks=-1)
    await until(lambda: len(topic.values(1)) < 10)
    await group.start_broker(2, log_cleaner_enable="false")
    await topic.tell(2)
    await topic.is_copied_to(2)
    assert topic.replica(2).log.log_end_offset == 20


async def test_ten_megabytes_come_in_one_answer(nursery, autojump_clock):
    large = {"replica_fetch_max_bytes": str(16 << 20), "message_max_bytes": str(2 << 20)}
    group, topic = await started(nursery, replicas=[1, 2], **large)
    await group.crash(2)
    for number in range(12):
        await topic.produce(b"%d" % number * 900_000)
    await group.start_broker(2)
    await topic.tell(2)
    await topic.is_copied_to(2, within_seconds=3)


async def test_committed_transactions_are_not_remembered_though_no_consumer_reads(nursery, autojump_clock):
    _, topic = await started(nursery, replicas=[1, 2], count=2)
    leader, producer = topic.replica(1), {"producer_id": 7, "producer_epoch": 0, "timestamp_ms": 0}
    for number in range(10):
        records = build_batch([(None, b"v")], attributes=TRANSACTIONAL, base_sequence=number, **producer)
        leader.append_as_leader(records, Origin.COORDINATOR)
        leader.append_as_leader(build_control_batch(COMMIT, coordinator_epoch=0, **producer), Origin.COORDINATOR)
    await until(lambda: topic.replica(2).high_watermark == 20)
    assert [topic.replica(each).log.producers.uncommitted_count for each in (1, 2)] == [0, 0]


# -- descriptors


async def test_a_follower_without_descriptors_tries_again_but_not_in_a_hurry(nursery, autojump_clock):
    group, topic = await started(nursery, b"a" * 100, replicas=[1, 2], log_segment_bytes="200")
    for _ in range(5):
        group.machines[2].disk.fail_next("open", "EMFILE", path_part=topic.path)
    began = trio.current_time()
    await topic.produce(b"b" * 100)
    await topic.is_copied_to(2)
    assert trio.current_time() - began > 1


@pytest.mark.parametrize(
    ("operation", "path"), [("open", "t-0"), ("list", "t-0"), ("truncate", "t-0"), ("replace_file", "recovery-point")]
)
async def test_a_cut_that_cannot_be_ended_is_ended_by_the_next_start(nursery, autojump_clock, operation, path):
    group, topic = await a_divergent_tail(nursery, log_segment_bytes="100")
    await group.start_broker(1)
    machine = group.machines[1]
    machine.disk.fail_next(operation, "EMFILE", path_part=path)
    await topic.tell(1)
    await machine.ended()
    assert isinstance(machine.failure, AllDirectoriesOffline)
    await group.crash(1)
    await group.start_broker(1)
    await topic.tell(1)
    await topic.is_copied_to(1, within_seconds=2)


# -- power


async def test_a_follower_of_a_compacted_topic_copies_the_end_of_a_segment_that_it_lost(nursery, autojump_clock):
    small = {"log_cleanup_policy": "compact", "log_segment_bytes": "250", "log_cleaner_enable": "false"}
    group = await Group.start(nursery, count=2, **small)
    topic = group.topic(replicas=[1, 2])
    await topic.led_by(1)
    for number in range(4):
        await topic.produce(records=batch_of(b"v%d" % number, key=b"k%d" % number), acks=-1)
    # The power fails before the sync of the sealed segment: its end is lost, and not the segment behind it.
    assert [segment.base_offset for segment in topic.replica(2).log.segments] == [0, 3]
    first, second = (f"{topic.path}/{base:020d}.log" for base in (0, 3))
    two_batches = topic.log_bytes(2)[: 2 * group.machines[2].disk.size(second)]

    def has_a_hole(disk):
        return disk.exists(second) and b"v3" in disk.read_file(second) and disk.read_file(first) == two_batches

    await group.cut_power(2, seed_with(has_a_hole, group.machines[2]))
    await group.start_broker(2)
    await topic.tell(2)
    await topic.is_copied_to(2, within_seconds=5)


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_acknowledged_with_every_flush_survives_the_loss_of_all_power(nursery, autojump_clock, seed):
    group, topic = await started(nursery, log_flush_interval_messages="1")
    for number in range(10):
        await topic.produce(b"%d" % number, acks=-1)
    await topic.produce(b"not waited for", acks=0)
    for broker_id in (1, 2, 3):
        await group.cut_power(broker_id, seed)
    for broker_id in (1, 2, 3):
        await group.start_broker(broker_id)
    await topic.led_by(3)
    await topic.is_copied_to(1, 2)
    assert topic.values(1)[:10] == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("messages", ["1", "3"])
async def test_a_leader_follows_another_though_it_has_not_flushed_all_that_it_wrote(nursery, autojump_clock, messages):
    group, topic = await started(nursery, log_flush_interval_messages=messages)
    await topic.produce(b"a", b"b", b"c", acks=-1)
    group.machines[1].thread_seconds = 5
    producer = await group.machines[1].connect()
    for value in (b"d", b"e", b"f"):
        await producer.send(produce_request("t", value, acks=0))
    await topic.is_copied_to(2, 3)
    await topic.led_by(2)
    log = topic.replica(1).log
    assert log.acknowledgeable_offset < log.log_end_offset
    group.machines[1].thread_seconds = 0
    await topic.produce(b"g", acks=-1)
    await topic.is_copied_to(1, 3)


@pytest.mark.parametrize("seed", range(3))
async def test_a_truncation_that_a_power_failure_interrupts_is_done_again(nursery, autojump_clock, seed):
    group, topic = await a_divergent_tail(nursery, log_segment_bytes="150")
    machine = group.machines[1]
    recorder = CrashRecorder(range(1000), seed, lambda: None)
    recorder.is_recording, recorder._root = False, machine.disk.crash_process()._root
    machine.disk = recorder
    await group.start_broker(1)
    recorder.is_recording = True
    await topic.tell(1)
    await topic.is_copied_to(1)
    recorder.is_recording = False
    await group.crash(1)
    assert len(recorder.left_behind) > 10
    for left, _ in recorder.left_behind:
        machine.disk = left
        await group.start_broker(1)
        await topic.tell(1)
        await topic.is_copied_to(1, within_seconds=2)
        assert topic.values(1) == [b"a", b"b"]
        await group.crash(1)


async def test_a_disk_that_fails_takes_only_its_partitions_from_the_fetcher(nursery, autojump_clock):
    group = await Group.start(nursery, log_dirs="/data,/spare")
    topic, other = group.topic(replicas=[1, 2]), group.topic("u", replicas=[1, 2])
    for each in (topic, other):
        await each.led_by(1)
        await each.produce(b"a")
    other.path = "/spare/u-0"
    await topic.is_copied_to(2)
    await other.is_copied_to(2)
    group.machines[2].disk.fail_next("write", path_part="t-0")
    await topic.produce(b"b")
    await until(lambda: topic.replica(2) == ErrorCode.KAFKA_STORAGE_ERROR)
    await other.produce(b"b")
    await other.is_copied_to(2, within_seconds=2)
    assert topic.values(2) == [b"a"]
    assert len(group.machines[2].broker.fetchers) == 1
