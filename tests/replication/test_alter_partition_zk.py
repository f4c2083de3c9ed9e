"""A leader that writes its ISR itself, as before Kafka 2.7: the conditions, and the notification of the controller."""

from types import SimpleNamespace

import pytest
import trio

from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionList, PartitionState
from barnabas.controller.store.store import Create, StoreUnavailable
from barnabas.replication.alter_partition_zk import AlterPartitionZk
from barnabas.replication.partition import Partition
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.topics import TopicPartition
from tests.broker.clusters import open_memory_database

ME, OTHER = 1, 2
STATE = paths.partition_state("t", 0)


class Scene:
    """A store that holds the state of partition t-0, and a writer on the broker that leads it."""

    def __init__(self, store, writer) -> None:
        self.store, self.writer = store, writer
        self.led = True

    def get(self, topic, index):
        if not self.led:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = Partition(TopicPartition("t", 0), None, ME, None, None, None, None)  # only asked whether it leads
        partition.is_leader, partition.controller_epoch = True, 7
        return partition

    async def ask(self, isr=(ME,), partition_epoch=0):
        row = m.AlterPartitionRequest.PartitionData(
            partition_index=0, leader_epoch=3, new_isr=list(isr), partition_epoch=partition_epoch
        )
        topic = m.AlterPartitionRequest.TopicData(topic_name="t", partitions=[row])
        answer = await self.writer.ask(m.AlterPartitionRequest(broker_id=ME, broker_epoch=1, topics=[topic]))
        return answer.topics[0].partitions[0]

    async def state(self):
        data, stat = await self.store.get(STATE)
        return PartitionState.decode(data, STATE), stat.version

    async def notes(self):
        names = sorted(await self.store.children(paths.ISR_CHANGES))
        found = [(await self.store.get(f"{paths.ISR_CHANGES}/{name}"))[0] for name in names]
        return [[str(each) for each in PartitionList.decode(data, "note").partitions] for data in found]


@pytest.fixture
async def scene(nursery, autojump_clock):
    store = (await open_memory_database()).session()
    parents = ["/brokers", "/brokers/topics", "/brokers/topics/t", "/brokers/topics/t/partitions"]
    nodes = [*parents, paths.partition("t", 0), paths.ISR_CHANGES]
    await store.batch([Create(each) for each in nodes])
    await store.batch([Create(STATE, PartitionState(ME, 3, 6, (ME, OTHER)).encode())])
    scene = Scene(store, None)
    scene.writer = AlterPartitionZk(store, SimpleNamespace(get=scene.get, broker_id=ME))
    nursery.start_soon(scene.writer.run)
    return scene


async def test_the_state_is_written_with_the_epoch_of_the_controller_that_gave_the_role(scene):
    row = await scene.ask()
    assert (row.error_code, row.partition_epoch, list(row.isr), row.leader_epoch) == (0, 1, [ME], 3)
    assert await scene.state() == (PartitionState(ME, 3, 7, (ME,)), 1)


async def test_what_another_has_changed_is_not_overwritten(scene):
    await scene.store.set(STATE, PartitionState(OTHER, 4, 8, (OTHER,)).encode())
    assert (await scene.ask()).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert (await scene.state())[1] == 1


async def test_a_write_whose_answer_was_lost_counts(scene):
    await scene.ask()
    row = await scene.ask()
    assert (row.error_code, row.partition_epoch) == (0, 1)


async def test_a_topic_that_is_gone_and_a_partition_that_is_not_led_are_not_known(scene):
    await scene.store.delete(STATE)
    assert (await scene.ask()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    scene.led = False
    assert (await scene.ask()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_store_that_cannot_be_reached_is_asked_again_later(scene):
    async def unavailable(items):
        raise StoreUnavailable("batch", "no")

    scene.store.batch = unavailable
    with pytest.raises(PeerLost):
        await scene.ask()


async def test_the_controller_is_notified_when_nothing_has_changed_for_5_seconds(scene, autojump_clock):
    for epoch in range(5):
        await scene.ask(isr=(ME,) if epoch % 2 else (ME, OTHER), partition_epoch=epoch)
        await trio.sleep(3)
        assert await scene.notes() == []
    await trio.sleep(7.5)
    assert await scene.notes() == [["t-0"]]
    await trio.sleep(100)
    assert len(await scene.notes()) == 1
