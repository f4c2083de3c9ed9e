"""The queue of asked ISR changes: one AlterPartition at a time, and what becomes of each answer."""

import pytest
import trio

from barnabas.config.live import BrokerConfig
from barnabas.replication.alter_partition import ASKED_AT_A_TIME, ROLE_WAIT_SECONDS, AlterPartition
from barnabas.replication.partition import Partition, Role
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.opening import open_log
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import BrokerInfo, ClusterMetadata

ME, OTHER = 1, 2
TOPIC_ID = bytes(range(16))
Row = m.AlterPartitionResponse.PartitionData


class Controller:
    """Gives the answers in their order and then repeats the last one; without answers it accepts every change."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.requests: list[m.AlterPartitionRequest] = []
        self.versions_max: list[int | None] = []
        self.omits_rows = False
        self.by_name = False
        self.epochs_ahead = 0
        self.holds = trio.Event()
        self.holds.set()

    async def ask(self, request, *, version_max=None):
        self.requests.append(request)
        self.versions_max.append(version_max)
        await self.holds.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else (self.answers or [ErrorCode.NONE])[0]
        if answer is PeerLost:
            raise PeerLost("it is gone")
        if isinstance(answer, tuple):
            return m.AlterPartitionResponse(error_code=answer[0])
        topics = [
            m.AlterPartitionResponse.TopicData(
                **({"topic_name": topic.topic_name} if self.by_name or version_max else {"topic_id": topic.topic_id}),
                partitions=[self.row(row, answer) for row in topic.partitions],
            )
            for topic in (() if self.omits_rows else request.topics)
        ]
        return m.AlterPartitionResponse(topics=topics)

    def row(self, asked, code) -> Row:
        if code:
            return Row(partition_index=asked.partition_index, error_code=code)
        return Row(
            partition_index=asked.partition_index,
            leader_id=ME,
            leader_epoch=asked.leader_epoch + self.epochs_ahead,
            isr=asked.new_isr,
            partition_epoch=asked.partition_epoch + 1,
        )


class Scene:
    """Partitions led by broker 1, with a queue and a controller."""

    def __init__(self, nursery, controller, partitions=1) -> None:
        config = BrokerConfig({"log.dirs": "/d", "replica.lag.time.max.ms": "10000"})
        metadata = ClusterMetadata()
        metadata.brokers = {each: BrokerInfo(each, {}, None) for each in (ME, OTHER)}
        self.changes = AlterPartition(ME, config, metadata)
        self.disk = MemDisk()
        self.partitions = [self.partition(index, config.topic()) for index in range(partitions)]
        self.controller = controller
        self.broker_epoch = 70
        nursery.start_soon(self.changes.run, controller.ask, lambda: self.broker_epoch)
        nursery.start_soon(self.changes.watch, self.partitions)

    def partition(self, index, topic_config) -> Partition:
        key = TopicPartition("t", index)
        log = open_log(
            self.disk,
            f"/d/t-{index}",
            key,
            topic_config,
            recovery_point=0,
            log_start_offset=None,
            clean=False,
            now_ms=0,
        )
        log.topic_id = TOPIC_ID
        partition = Partition(key, topic_config, ME, lambda: 0, self, lambda *_: None, self.changes)
        partition.become(log, role(0))
        return partition

    def join(self, *indexes) -> None:
        for index in indexes:
            self.partitions[index].follower_fetched(OTHER, 0, log_start_offset=0, broker_epoch=33)

    @property
    def isrs(self):
        return [each.in_sync_replicas for each in self.partitions]


def role(epoch, isr=(ME,)) -> Role:
    return Role(ME, epoch, epoch, 1, [ME, OTHER], list(isr), 0, False)


async def settled(nursery, controller, *joining, partitions=1, seconds=0.01) -> Scene:
    scene = Scene(nursery, controller, partitions)
    scene.join(*(joining or range(partitions)))
    await trio.sleep(seconds)
    return scene


async def test_what_is_asked_names_epochs_and_members(nursery, autojump_clock):
    controller = Controller()
    scene = await settled(nursery, controller)
    (request,) = controller.requests
    assert (request.broker_id, request.broker_epoch) == (ME, 70)
    (topic,) = request.topics
    (row,) = topic.partitions
    assert (topic.topic_name, topic.topic_id) == ("t", TOPIC_ID)
    assert (row.partition_index, row.leader_epoch, row.partition_epoch, row.leader_recovery_state) == (0, 0, 0, 0)
    assert [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs] == [(ME, -1), (OTHER, 33)]
    assert list(row.new_isr) == [ME, OTHER]
    assert scene.isrs == [[ME, OTHER]]


@pytest.mark.parametrize("version", range(4))
async def test_every_version_can_be_written(nursery, autojump_clock, version):
    controller = Controller()
    await settled(nursery, controller, partitions=2)
    written = m.encode(controller.requests[0], version)
    decoded = m.decode(m.AlterPartitionRequest, version, written)
    row = decoded.topics[0].partitions[1]
    members = row.new_isr if version < 3 else [each.broker_id for each in row.new_isr_with_epochs]
    assert list(members) == [ME, OTHER]
    assert (decoded.topics[0].topic_name == "t") is (version < 2)
    assert (decoded.topics[0].topic_id == TOPIC_ID) is (version >= 2)


async def test_an_answer_by_topic_names_is_understood(nursery, autojump_clock):
    controller = Controller()
    controller.by_name = True
    assert (await settled(nursery, controller)).isrs == [[ME, OTHER]]


async def test_one_request_is_on_its_way_and_carries_all_that_gathered_before(nursery, autojump_clock):
    controller = Controller()
    controller.holds = trio.Event()
    scene = await settled(nursery, controller, 0, partitions=5)
    scene.join(1, 2, 3)
    await trio.sleep(1)
    scene.join(4)
    assert [len(each.topics[0].partitions) for each in controller.requests] == [1]
    controller.holds.set()
    await trio.sleep(0.01)
    assert [len(each.topics[0].partitions) for each in controller.requests] == [1, 4]
    assert scene.isrs == [[ME, OTHER]] * 5


@pytest.mark.parametrize(
    "first",
    [PeerLost, (ErrorCode.STALE_BROKER_EPOCH,), ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER],
)
async def test_what_failed_for_now_is_asked_again_after_50_ms(nursery, autojump_clock, first):
    controller = Controller(first, ErrorCode.NONE)
    scene = await settled(nursery, controller)
    assert (len(controller.requests), scene.isrs) == (1, [[ME]])
    scene.broker_epoch = 71
    await trio.sleep(0.05)
    assert [each.broker_epoch for each in controller.requests] == [70, 71]
    assert scene.isrs == [[ME, OTHER]]


async def test_what_is_asked_again_is_said_of_the_life_in_which_the_follower_had_it(nursery, autojump_clock):
    """It may have lost its log meanwhile, and fetch from the start: to that the controller must not agree."""
    controller = Controller(PeerLost, ErrorCode.INELIGIBLE_REPLICA)
    scene = await settled(nursery, controller)
    scene.partitions[0].follower_fetched(OTHER, 0, log_start_offset=0, broker_epoch=44)
    await trio.sleep(0.05)
    members = [each.topics[0].partitions[0].new_isr_with_epochs[1] for each in controller.requests]
    assert [(each.broker_id, each.broker_epoch) for each in members] == [(OTHER, 33), (OTHER, 33)]


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
async def test_what_was_certainly_not_done_is_dropped(nursery, autojump_clock, code):
    controller = Controller(code)
    scene = await settled(nursery, controller, seconds=1)
    assert (len(controller.requests), scene.partitions[0].asked_isr) == (1, None)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
async def test_a_leader_that_does_not_know_the_state_waits_for_a_role(nursery, autojump_clock, code):
    controller = Controller(code)
    scene = await settled(nursery, controller, seconds=20)
    (partition,) = scene.partitions
    assert len(controller.requests) == 1
    assert partition.asked_isr.in_sync_replicas == [ME, OTHER]  # it may have been written: it counts
    partition.become(partition.log, role(1))
    assert partition.asked_isr is None


async def test_a_leader_to_which_no_role_comes_asks_again(nursery, autojump_clock):
    controller = Controller(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE)
    scene = await settled(nursery, controller, seconds=ROLE_WAIT_SECONDS + 10)
    assert (len(controller.requests), scene.isrs) == (2, [[ME, OTHER]])


async def test_a_partition_that_the_answer_does_not_name_is_asked_for_again_much_later(nursery, autojump_clock):
    controller = Controller()
    controller.omits_rows = True
    scene = await settled(nursery, controller, seconds=ROLE_WAIT_SECONDS - 1)
    assert len(controller.requests) == 1
    controller.omits_rows = False
    await trio.sleep(10)
    assert (len(controller.requests), scene.isrs) == (2, [[ME, OTHER]])


async def test_a_state_of_another_leader_epoch_is_left_and_asked_for_again(nursery, autojump_clock):
    controller = Controller()
    controller.epochs_ahead = 1
    scene = await settled(nursery, controller, seconds=ROLE_WAIT_SECONDS - 1)
    assert (len(controller.requests), scene.isrs) == (1, [[ME]])
    controller.epochs_ahead = 0
    await trio.sleep(10)
    assert (len(controller.requests), scene.isrs) == (2, [[ME, OTHER]])


async def test_topics_without_an_id_are_asked_for_by_name_in_a_request_of_their_own(nursery, autojump_clock):
    controller = Controller()
    scene = Scene(nursery, controller, partitions=3)
    scene.partitions[1].log.topic_id = None
    scene.join(0, 1, 2)
    await trio.sleep(0.01)
    asked = [[row.partition_index for row in each.topics[0].partitions] for each in controller.requests]
    assert list(zip(asked, controller.versions_max, strict=True)) == [([0, 2], None), ([1], 1)]
    assert scene.isrs == [[ME, OTHER]] * 3


async def test_an_answer_after_the_leader_epoch_moved_is_ignored(nursery, autojump_clock):
    controller = Controller()
    controller.holds = trio.Event()
    scene = await settled(nursery, controller)
    scene.partitions[0].become(scene.partitions[0].log, role(1))
    controller.holds.set()
    await trio.sleep(0.1)
    assert (scene.isrs, len(controller.requests)) == ([[ME]], 1)


async def test_the_timer_finds_a_stuck_follower_within_one_and_a_half_lag_times(nursery, autojump_clock):
    controller = Controller()
    scene = Scene(nursery, controller)
    (partition,) = scene.partitions
    partition.become(partition.log, role(1, isr=(ME, OTHER)))
    partition.log.log_end_offset = 1
    await trio.sleep(9.9)
    assert scene.isrs == [[ME, OTHER]]
    await trio.sleep(5.2)
    assert scene.isrs == [[ME]]


async def test_many_changes_are_asked_for_in_several_requests(nursery, autojump_clock):
    # To carry out the response for thousands of partitions would be one long step.
    controller = Controller()
    controller.holds = trio.Event()
    scene = await settled(nursery, controller, 0, partitions=ASKED_AT_A_TIME + 11)
    scene.join(*range(1, ASKED_AT_A_TIME + 11))
    controller.holds.set()
    await trio.sleep(0.05)
    assert [len(each.topics[0].partitions) for each in controller.requests] == [1, ASKED_AT_A_TIME, 10]
    assert scene.isrs == [[ME, OTHER]] * (ASKED_AT_A_TIME + 11)
