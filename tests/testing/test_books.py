"""Checks of responses to clients, in cases that are easily misjudged."""

import trio

from barnabas.testing.simulation.history import ACKED, OUT_OF_ORDER, Event
from barnabas.wire import messages as m
from barnabas.wire.record_batch import read_batch_header
from barnabas.wire.records import build_batch
from tests.testing.stage import ACKS_ALL, play

CHECKPOINT_SECONDS = 6.0


def response(stage, kind, data, *, offset=-1, sequence=-1, leader_epoch=0, acks=ACKS_ALL):
    """Report a response to a producer to the checks."""
    digest = read_batch_header(data).crc
    event = Event(0, kind, "t", 0, offset, "client", -1, -1, sequence, digest, acks, leader_epoch=leader_epoch)
    stage.checks.answers.answered(event)


def produce(data):
    part = m.ProduceRequest.PartitionProduceData(index=0, records=data)
    topic = m.ProduceRequest.TopicProduceData(name="t", partition_data=[part])
    return m.ProduceRequest(acks=ACKS_ALL, timeout_ms=1000, topic_data=[topic])


def test_a_leader_may_acknowledge_a_batch_and_lose_its_disk_in_the_same_step():
    async def story(stage):
        await stage.open("t", replicas=[1])
        first, second = (
            bytes(build_batch([(None, value)], timestamp_ms=stage.cluster.now_ms()).data) for value in (b"a", b"b")
        )
        stage.cluster.nodes[1].disk.fail_next("write", path_part="/t-0/", after=1)
        link = await stage.client.leader_of("t", 0)
        await link.send(produce(first))
        await link.send(produce(second))
        answers = [await link.receive(m.ProduceResponse) for _ in range(2)]
        assert [answer.responses[0].partition_responses[0].error_code == 0 for answer in answers] == [True, False]
        response(stage, ACKED, first, offset=0)

    play(story, brokers=2)


def test_a_leader_of_the_past_may_refuse_a_sequence_only_without_acks_all():
    async def story(stage):
        await stage.open("t", replicas=[1, 2, 3])
        await stage.write("a")
        stage.kill(1)
        await stage.until(lambda: stage.state.leader == 2 and stage.leads(2))
        data = bytes(build_batch([(None, b"b")], timestamp_ms=stage.cluster.now_ms()).data)
        epoch = stage.replica(2).leader_epoch
        response(stage, OUT_OF_ORDER, data, leader_epoch=0, acks=1)
        assert stage.checks.violations == []
        for leader_epoch, acks in ((0, ACKS_ALL), (epoch, ACKS_ALL), (epoch, 1)):
            response(stage, OUT_OF_ORDER, data, leader_epoch=leader_epoch, acks=acks)
            assert [violation.rule for violation in stage.checks.violations] == ["I7"]
            stage.checks.violations.clear()

    play(story)


def test_the_first_sequence_is_refused_where_it_is_not_and_later_ones_have_come():
    """A client that writes on sends new batches to a new leader, while its first ones wait at the old one, alone."""

    async def story(stage):
        await stage.open("t", replicas=[1, 2])
        there = bytes(build_batch([(None, b"there")], timestamp_ms=stage.cluster.now_ms()).data)
        gone = bytes(build_batch([(None, b"gone")], timestamp_ms=stage.cluster.now_ms()).data)
        link = await stage.client.leader_of("t", 0)
        await link.send(produce(there))
        assert not (await link.receive(m.ProduceResponse)).responses[0].partition_responses[0].error_code
        response(stage, OUT_OF_ORDER, gone, sequence=0)
        assert stage.checks.violations == []
        response(stage, OUT_OF_ORDER, there, sequence=0)
        assert [violation.rule for violation in stage.checks.violations] == ["I7"]
        stage.checks.violations.clear()

    play(story)


def test_a_leader_that_is_elected_uncleanly_commits_its_old_records_again():
    """Its high watermark is what it was, and its follower hears of it."""

    async def story(stage):
        await stage.open("t", replicas=[1, 2], min_insync_replicas="1", unclean_leader_election_enable="true")
        await stage.write("both have it")
        stage.kill(2)
        await stage.until(lambda: stage.in_sync == [1])
        await stage.write("one has it")
        await trio.sleep(CHECKPOINT_SECONDS)  # of the high watermark
        stage.kill(1)
        await stage.start(2)
        await stage.until(lambda: stage.state.leader == 2 and stage.leads(2))
        stage.kill(2)
        await stage.start(1)
        await stage.until(lambda: stage.state.leader == 1 and stage.high_watermark(1) == 2)
        await stage.start(2)
        await stage.until(lambda: stage.in_sync == [1, 2] and stage.high_watermark(2) == 2)
        assert stage.values(1) == stage.values(2) == ["both have it", "one has it"]

    checks = play(story, brokers=3)
    assert checks.counts["losses: unclean election"] == 1
