"""Batches that a producer sent before it knew that an earlier one was refused."""

import pytest

from barnabas.replication import refused_batches
from barnabas.wire.errors import ErrorCode
from tests.broker.replica_group import Group
from tests.broker.requests import batch_of, produce_request


async def led_topic(nursery, *, isr, **properties):
    """A topic of brokers 1 and 2 that broker 1 leads; the ISR is what the test says, and stays so."""
    group = await Group.start(nursery, count=2, **properties)
    topic = group.topic("t", replicas=[1, 2])
    await topic.led_by(1, isr=isr)
    return group, topic


async def send(topic, broker_id, sequence, *, producer_id=7, epoch=0) -> ErrorCode:
    """The answer to one batch of an idempotent producer."""
    batch = batch_of(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    answer = await topic.group.clients[broker_id].ask(produce_request("t", batch, acks=-1))
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("known", [True, False], ids=["a producer of the log", "a new producer"])
async def test_a_batch_behind_one_that_too_few_replicas_took_is_refused_alike(nursery, autojump_clock, known):
    _, topic = await led_topic(nursery, isr=[1, 2], min_insync_replicas="2")
    if known:
        assert await send(topic, 1, 0) == 0
    first = 1 if known else 0
    await topic.led_by(1, isr=[1])
    assert await send(topic, 1, first) == ErrorCode.NOT_ENOUGH_REPLICAS
    await topic.led_by(1, isr=[1, 2])
    assert await send(topic, 1, first + 1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert await send(topic, 1, first + 2) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [await send(topic, 1, first + number) for number in range(3)] == [0, 0, 0]
    assert topic.values(1)[-3:] == [b"%d" % (first + number) for number in range(3)]


async def test_a_batch_behind_one_that_came_before_the_role_is_refused_alike(nursery, autojump_clock):
    _, topic = await led_topic(nursery, isr=[1, 2])
    assert await send(topic, 1, 0) == 0
    assert await send(topic, 2, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await topic.led_by(2)
    assert await send(topic, 2, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [await send(topic, 2, sequence) for sequence in (0, 1, 2)] == [0, 0, 0]
    assert topic.values(2) == [b"0", b"1", b"2"]


async def test_a_batch_for_a_log_that_is_being_cut_is_refused_without_its_producers(nursery, autojump_clock):
    """A thread loads them again meanwhile."""
    _, topic = await led_topic(nursery, isr=[1, 2])
    assert await send(topic, 2, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    log = topic.replica(2).log
    log.is_being_cut, log.producers = True, None
    assert await send(topic, 2, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await send(topic, 2, 3) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_only_what_may_have_been_on_its_way_is_refused_alike(nursery, autojump_clock):
    _, topic = await led_topic(nursery, isr=[1, 2])
    assert await send(topic, 1, 0) == 0
    assert await send(topic, 2, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await topic.led_by(2)
    assert await send(topic, 2, 2, producer_id=8) == 0
    codes = [await send(topic, 2, sequence) for sequence in range(2, 8)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4 + [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2


async def test_a_batch_behind_the_last_one_that_an_old_refusal_concerns_is_refused_alike(nursery, autojump_clock):
    _, topic = await led_topic(nursery, isr=[1, 2])
    assert await send(topic, 2, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await topic.led_by(2)
    # Of this producer the log has nothing: another leader took the batch, and retention has removed it since.
    codes = [await send(topic, 2, sequence) for sequence in (10, 11, 12, 10, 11, 12, 13)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 7
    assert [await send(topic, 2, sequence) for sequence in (10, 11, 12, 13)] == [0, 0, 0, 0]
    assert topic.values(2) == [b"10", b"11", b"12", b"13"]


async def test_another_epoch_of_the_producer_is_judged_by_the_log_alone(nursery, autojump_clock):
    _, topic = await led_topic(nursery, isr=[1, 2])
    assert await send(topic, 1, 0) == 0
    assert await send(topic, 2, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await topic.led_by(2)
    assert await send(topic, 2, 2, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await send(topic, 2, 0, epoch=1) == 0


async def test_a_retry_of_what_is_in_the_log_is_answered_behind_a_refused_batch(nursery, autojump_clock):
    _, topic = await led_topic(nursery, isr=[1, 2])
    assert [await send(topic, 1, sequence) for sequence in (0, 1)] == [0, 0]
    assert await send(topic, 2, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await topic.led_by(2)
    assert [await send(topic, 2, sequence) for sequence in (1, 2)] == [0, 0]
    assert topic.values(2) == [b"0", b"1", b"2"]


async def test_what_is_remembered_of_refused_batches_has_a_bound(nursery, autojump_clock, monkeypatch):
    monkeypatch.setattr(refused_batches, "REFUSED_MAX", 3)
    _, topic = await led_topic(nursery, isr=[1, 2])
    for producer_id in range(5):
        assert await send(topic, 2, 0, producer_id=producer_id) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await topic.led_by(2)
    codes = [await send(topic, 2, 1, producer_id=producer_id) for producer_id in range(5)]
    assert codes == [0, 0, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3]
