"""Leaders want other in-sync replicas. Codes are those of a running Kafka 3.9.1, but where isr.py says why."""

import pytest

from barnabas.controller.decide.isr import IsrChange, decide_isr_change
from barnabas.controller.decide.leaders import LeaderRules
from barnabas.controller.decide.steps import Step, TellMetadata
from barnabas.controller.events import AlterPartitionAsked
from barnabas.controller.image.state import BrokerLeaving, DeletionMarked, DirectoryReported, Leadership, replay
from barnabas.controller.store import paths
from barnabas.controller.store.paths import RECOVERING
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
RULES = LeaderRules(controller_epoch=9)


# Leader epoch 5, partition epoch 7, led by 2, which has 1 in sync; 3 is assigned, 4 is alive.


def image_of(make, isr=(2, 1), recovery=0):
    image = make.image(1, 2, 3, 4, t=[[2, 1, 3]])
    partition = image.partition(T0)
    state = partition.leadership.state._replace(isr=isr, leader_recovery_state=recovery)
    partition.leadership = partition.leadership._replace(state=state)
    return image


def decide(image, *isr, broker_id=2, partition=T0, leader_epoch=5, partition_epoch=7, rules=RULES, **fields):
    change = IsrChange(leader_epoch, partition_epoch, isr, **fields)
    return decide_isr_change(image, partition, broker_id, change, rules)


def test_a_change_keeps_the_leader_epoch_and_raises_the_partition_epoch(make):
    step = decide(image_of(make), 2, 1, 3)
    state, partition_epoch = step.record.leadership
    assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (2, 5, (2, 1, 3), 9)
    assert (partition_epoch, step.ops[0].version, step.tells) == (8, 7, (TellMetadata((T0,)),))


def test_what_is_so_already_succeeds_with_any_older_partition_epoch(make):
    image = image_of(make)
    assert decide(image, 2, 1) == decide(image, 2, 1, partition_epoch=3) == image.partition(T0).leadership


REFUSED = {
    "an unknown partition": ((2,), {"partition": TopicPartition("t", 9)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a later leader epoch": ((2,), {"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
    "a later partition epoch": ((2,), {"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
    "an earlier leader epoch": ((2,), {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
    "an earlier partition epoch": ((2,), {"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
    "a broker that does not lead": ((2,), {"broker_id": 1}, ErrorCode.INVALID_REQUEST),
    "an ISR without the leader": ((1,), {}, ErrorCode.INVALID_REQUEST),
    "an empty ISR": ((), {}, ErrorCode.INVALID_REQUEST),
    "a member twice": ((2, 2), {}, ErrorCode.INVALID_REQUEST),
    "a member without a replica": ((2, 4), {}, ErrorCode.INVALID_REQUEST),
    "recovering again": ((2,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    "an unknown recovery state": ((2,), {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(make, case):
    isr, fields, code = REFUSED[case]
    assert decide(image_of(make), *isr, **fields) == code


def test_a_topic_that_is_being_deleted_is_unknown(make):
    image = image_of(make)
    replay(image, DeletionMarked("t"))
    assert decide(image, 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_dead_are_not_taken_in(make):
    image = image_of(make)
    del image.brokers[3]
    assert decide(image, 2, 1, 3) == ErrorCode.INELIGIBLE_REPLICA


def test_nor_those_that_are_about_to_stop(make):
    image = image_of(make)
    replay(image, BrokerLeaving(3))
    assert decide(image, 2, 1, 3) == ErrorCode.INELIGIBLE_REPLICA


def test_nor_is_a_replica_on_a_failed_disk(make):
    """The fetch for which the leader proposes it came before the disk failed."""
    image = image_of(make)
    replay(image, DirectoryReported(T0, 3, works=False))
    assert decide(image, 2, 1, 3) == ErrorCode.INELIGIBLE_REPLICA
    replay(image, DirectoryReported(T0, 3, works=True))
    assert isinstance(decide(image, 2, 1, 3), Step)


def test_a_leader_that_is_about_to_stop_may_take_in_others(make):
    image = image_of(make)
    replay(image, BrokerLeaving(2))
    assert isinstance(decide(image, 2, 1, 3), Step)


def test_nor_the_former_life_of_one_that_restarted(make):
    image = image_of(make)
    epoch = image.brokers[3].epoch
    assert decide(image, 2, 1, 3, broker_epochs={3: epoch - 1}) == ErrorCode.INELIGIBLE_REPLICA
    assert isinstance(decide(image, 2, 1, 3, broker_epochs={2: -1, 1: -1, 3: epoch}), Step)


def test_a_recovering_leader_is_alone_until_it_has_recovered(make):
    image = image_of(make, isr=(2,), recovery=RECOVERING)
    assert decide(image, 2, 1, leader_recovery_state=RECOVERING) == ErrorCode.INVALID_REQUEST
    assert isinstance(decide(image, 2, leader_recovery_state=RECOVERING), Leadership)
    assert decide(image, 2).record.leadership.state.leader_recovery_state == 0


def test_older_clusters_know_no_recovery(make):
    image = image_of(make, isr=(2,), recovery=RECOVERING)
    step = decide(image, 2, 1, rules=RULES._replace(marks_recovery=False))
    assert step.record.leadership.state.leader_recovery_state == RECOVERING


# Scenarios


@pytest.fixture
async def led(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("t", [[2, 1, 3], [2, 1, 3]])
    return cluster


async def test_a_shrunken_isr_is_written_and_everybodys_metadata_knows_it(led):
    roles = len(led.brokers[2].sent(m.LeaderAndIsrRequest))
    answer = await led.change_isr("t", 0, 2, 3)
    assert answer.state == await led.state("t")
    assert (answer.state.isr, answer.partition_epoch) == ((2, 3), 1)
    assert led.brokers[1].metadata[T0].isr == (2, 3)
    assert led.brokers[1].metadata[T0].zk_version == 1
    assert len(led.brokers[2].sent(m.LeaderAndIsrRequest)) == roles


async def test_a_change_that_is_repeated_succeeds(led):
    change = IsrChange(0, 0, (2, 3))
    first = await led.ask_isr(2, led.brokers[2].epoch, "t", 0, change)
    assert await led.ask_isr(2, led.brokers[2].epoch, "t", 0, change) == first


@pytest.mark.parametrize("difference", [-1, 1])
async def test_another_life_of_the_leader_is_stale(led, difference):
    epoch = led.brokers[2].epoch + difference
    assert await led.ask_isr(2, epoch, "t", 0, IsrChange(0, 0, (2,))) == ErrorCode.STALE_BROKER_EPOCH
    assert await led.ask_isr(9, epoch, "t", 0, IsrChange(0, 0, (2,))) == ErrorCode.STALE_BROKER_EPOCH


async def test_each_partition_has_its_answer(led):
    topic_id = led.image.topics["t"].topic_id
    shrink = IsrChange(0, 0, (2,))
    changes = [
        (topic_id, 0, shrink),
        (b"?" * 16, 0, shrink),
        (topic_id, 9, shrink),
        ("t", 1, shrink),
        ("nope", 0, shrink),
    ]
    answers = await led.ask(AlterPartitionAsked(2, led.brokers[2].epoch, changes))
    assert [answer if isinstance(answer, ErrorCode) else answer.state.isr for answer in answers] == [
        (2,),
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (2,),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_a_leader_that_someone_overtook_gets_its_role_again(led):
    path = paths.partition_state("t", 0)
    led.before_write(led.controller, path, lambda: led.write_state("t", isr=(2, 1)))
    assert await led.change_isr("t", 0, 2, 3) == ErrorCode.INVALID_UPDATE_VERSION
    assert led.brokers[2].roles[T0].isr == (2, 1)
    assert led.brokers[2].roles[T0].leader_epoch == (await led.state("t")).leader_epoch == 1
    assert (await led.change_isr("t", 0, 2, 3)).state.isr == (2, 3)


async def test_a_write_whose_answer_was_lost_succeeds(led):
    store = led.controller.store
    write = store.batch

    async def twice(items):
        if any(getattr(op, "path", "") == paths.partition_state("t", 0) for item in items for op in item):
            store.batch = write
            await write(items)
        return await write(items)

    store.batch = twice
    answer = await led.change_isr("t", 0, 2, 3)
    assert (answer.state.isr, answer.partition_epoch) == ((2, 3), 1)


async def test_who_leaves_the_isr_does_not_lead_when_the_leader_dies(led):
    await led.change_isr("t", 0, 2, 3)
    await led.kill(2)
    assert (await led.state("t")).leader == 3
