"""Election of the controller: one winner, a higher epoch each time, and no term that outlives its node."""

from dataclasses import replace

import pytest
import trio

from barnabas.controller.candidate import Candidate
from barnabas.controller.context import ControllerDeps
from barnabas.controller.image.transitions import ReplicaStatus
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ControllerEpoch, ControllerNode, ProducerIdBlock
from barnabas.controller.store.store import Create, Created, SetData, Stat, StoreUnavailable
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
NO_STAT = Stat(version=0, czxid=0, mzxid=0, owner=0, ctime_ms=0)


async def context(cluster):
    """Who /controller names, and the last epoch."""
    node = ControllerNode.decode(await cluster.data(paths.CONTROLLER))
    epoch = ControllerEpoch.decode(await cluster.data(paths.CONTROLLER_EPOCH))
    return node.broker_id, epoch.epoch


async def test_the_first_broker_wins_and_the_others_wait(cluster):
    await cluster.start(1, 2, 3)
    assert [broker.candidate.is_active for broker in cluster.brokers.values()] == [True, False, False]
    assert await context(cluster) == (1, 1)


async def test_only_the_active_controller_counts_replicas(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[1, 2], [2, 1]])
    assert [broker.candidate.replica_count for broker in cluster.brokers.values()] == [4, 0]


async def test_the_election_is_an_ephemeral_node_and_the_epoch_is_plain_text(cluster):
    broker = await cluster.start(1)
    stat = await cluster.store.exists(paths.CONTROLLER)
    assert stat.owner == broker.store.session_id
    assert await cluster.data(paths.CONTROLLER_EPOCH) == b"1"


async def test_when_the_controller_dies_another_one_is_elected_with_a_higher_epoch(cluster):
    await cluster.start(1, 2, 3)
    await cluster.kill(1)
    assert cluster.controller.broker_id in (2, 3)
    assert await context(cluster) == (cluster.controller.broker_id, 2)
    assert cluster.controller.candidate.epoch == 2


async def test_brokers_accept_the_new_controllers_requests_only(cluster):
    await cluster.start(1, 2)
    await cluster.kill(1)
    assert cluster.brokers[2].controller_epoch == 2


async def test_a_controller_whose_node_is_removed_races_again(cluster):
    await cluster.start(1)
    await cluster.store.delete(paths.CONTROLLER)
    await cluster.settle()
    assert await context(cluster) == (1, 2)


async def test_a_controller_that_was_replaced_stops_at_once(cluster):
    broker = await cluster.start(1)
    stranger = cluster.database.session()
    node = Create(paths.CONTROLLER, ControllerNode(9, 0).encode(), ephemeral=True)
    await stranger.delete(paths.CONTROLLER)
    await stranger.batch([node])
    await cluster.settle()
    assert not broker.candidate.is_active
    await stranger.close()
    await cluster.settle()
    assert broker.candidate.is_active


async def test_a_controller_whose_epoch_is_old_writes_nothing_and_gives_up(cluster):
    broker = await cluster.start(1)
    await cluster.store.set(paths.CONTROLLER_EPOCH, b"7")
    await cluster.create("orders", [[1]])
    assert broker.candidate.epoch == 8
    assert (await cluster.state("orders")).controller_epoch == 8
    assert {request.controller_epoch for request in broker.requests if "orders" in repr(request)} == {8}


async def test_elected_and_resigned_are_reported(cluster):
    seen = []
    await cluster.start(2)
    broker = cluster.add(1)
    await cluster.register(broker)
    deps = ControllerDeps(
        broker.store, 1, cluster.config, lambda live: cluster.brokers[live.broker_id], lambda: 0, cluster.rng
    )
    broker.candidate = Candidate(
        deps,
        on_elected=lambda epoch: seen.append(("elected", epoch)),
        on_resigned=lambda: seen.append("resigned"),
    )
    await cluster.nursery.start(broker.candidate.run)
    assert seen == []
    await cluster.kill(2)
    assert seen == [("elected", 2)]
    await cluster.store.delete(paths.CONTROLLER)
    await cluster.settle()
    assert seen == [("elected", 2), "resigned", ("elected", 3)]


class Unreliable:
    """A session whose next `failing` batches of writes fail, after or before they are applied."""

    def __init__(self, store, failing=0, applied=True, repeated=False):
        self.store = store
        self.failing = failing
        self.applied = applied
        self.repeated = repeated

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def multi(self, ops):
        if self.failing == 0:
            return await self.store.multi(ops)
        self.failing -= 1
        if self.applied:
            await self.store.multi(ops)
        if self.repeated:
            return await self.store.multi(ops)
        raise StoreUnavailable("test", "lost")


async def start_with(cluster, store):
    """Broker 1 on this store."""
    cluster.database.session = lambda: store
    return await cluster.start(1)


async def test_a_victory_whose_answer_was_lost_is_a_victory(cluster):
    store = Unreliable(cluster.database.session())
    broker = await start_with(cluster, store)
    store.failing, store.repeated = 1, True
    await cluster.store.delete(paths.CONTROLLER)
    await cluster.settle()
    assert broker.candidate.is_active
    assert await context(cluster) == (1, 2)
    assert store.failing == 0


async def test_a_victory_is_recognised_without_the_stat_of_the_created_node(cluster):
    class Mute(Unreliable):
        async def multi(self, ops):
            results = await self.store.multi(ops)
            # As ZooKeeper 3.8.0: a multi's result for a created node has no stat.
            return [replace(each, stat=NO_STAT) if isinstance(each, Created) else each for each in results]

    broker = await start_with(cluster, Mute(cluster.database.session()))
    assert broker.candidate.is_active
    assert broker.epoch == (await cluster.store.exists(paths.broker(1))).czxid
    await cluster.settle()
    assert await context(cluster) == (1, 1)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_store_that_cannot_be_reached_is_tried_again(autojump_clock, cluster, applied):
    store = Unreliable(cluster.database.session(), applied=applied)
    broker = await start_with(cluster, store)
    store.failing = 1
    await cluster.store.delete(paths.CONTROLLER)
    await cluster.settle()
    assert not broker.candidate.is_active
    await trio.sleep(2)
    assert broker.candidate.is_active
    assert await context(cluster) == (1, 3 if applied else 2)


async def test_of_two_that_race_at_once_one_wins(cluster):
    await cluster.start(1, 2, 3)
    for broker in cluster.brokers.values():
        await broker.store.exists("/")
    await cluster.store.delete(paths.CONTROLLER)
    await cluster.settle()
    assert sum(broker.candidate.is_active for broker in cluster.brokers.values()) == 1
    assert (await context(cluster))[0] == cluster.controller.broker_id


async def test_an_epoch_that_moves_during_the_race_is_read_again(cluster):
    class Raced(Unreliable):
        async def multi(self, ops):
            if self.failing and isinstance(ops[-1], SetData):
                self.failing -= 1
                await self.store.set(paths.CONTROLLER_EPOCH, b"41")
            return await self.store.multi(ops)

    broker = await start_with(cluster, Raced(cluster.database.session()))
    broker.store.failing = 1
    await cluster.store.delete(paths.CONTROLLER)
    await cluster.settle()
    assert broker.candidate.epoch == 42


async def test_an_expired_session_ends_the_term_and_the_broker_registers_again(cluster):
    broker = await cluster.start(1)
    epoch = broker.epoch
    await broker.store.expire()
    await cluster.settle()
    assert broker.candidate.is_active
    assert broker.candidate.epoch == 2
    assert broker.epoch > epoch
    assert (await cluster.store.exists(paths.broker(1))).czxid == broker.epoch


async def test_another_broker_takes_over_from_one_whose_session_expired(cluster):
    await cluster.start(1, 2)
    await cluster.brokers[1].store.expire()
    await cluster.settle()
    assert await context(cluster) == (cluster.controller.broker_id, 2)
    assert cluster.image.brokers.keys() == {1, 2}


async def test_a_broker_that_is_not_the_controller_survives_an_expired_session(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    await cluster.brokers[2].store.expire()
    await cluster.settle()
    assert (await cluster.state("orders")).leader == 1
    assert cluster.image.brokers[2].epoch == cluster.brokers[2].epoch


async def test_a_controller_that_contradicts_itself_gives_up_and_begins_again(autojump_clock, cluster, mistakes):
    broker = await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    cluster.image.partition(ORDERS).replica_statuses[2] = ReplicaStatus.NON_EXISTENT
    await cluster.kill(2)
    assert not broker.candidate.is_active
    assert not await cluster.exists(paths.CONTROLLER)
    assert "replica 2 of orders-0 is NonExistent: 'stop' is not possible" in mistakes.take()[0]
    await trio.sleep(2)
    assert broker.candidate.is_active
    assert (await cluster.state("orders")).leader == 1


async def test_producer_ids_are_given_out_in_blocks_of_a_thousand(cluster):
    broker = await cluster.start(1)
    candidate = broker.candidate
    assert await candidate.allocate_producer_ids(1, broker.epoch) == ProducerIdBlock(1, 0, 999)
    assert await candidate.allocate_producer_ids(1, broker.epoch) == ProducerIdBlock(1, 1000, 1999)
    written = ProducerIdBlock.decode(await cluster.data(paths.PRODUCER_ID_BLOCK))
    assert written == ProducerIdBlock(1, 1000, 1999)


async def test_producer_ids_go_on_after_a_change_of_controller(cluster):
    await cluster.start(1, 2)
    await cluster.brokers[1].candidate.allocate_producer_ids(2, cluster.brokers[2].epoch)
    await cluster.kill(1)
    block = await cluster.brokers[2].candidate.allocate_producer_ids(2, cluster.brokers[2].epoch)
    assert block == ProducerIdBlock(2, 1000, 1999)


@pytest.mark.parametrize(
    ("broker_id", "older", "code"),
    [(9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 1, ErrorCode.STALE_BROKER_EPOCH)],
)
async def test_producer_ids_are_for_registered_brokers(cluster, broker_id, older, code):
    broker = await cluster.start(1)
    assert await broker.candidate.allocate_producer_ids(broker_id, broker.epoch - older) is code


async def test_only_the_controller_gives_out_producer_ids(cluster):
    await cluster.start(1, 2)
    second = cluster.brokers[2]
    assert await second.candidate.allocate_producer_ids(2, second.epoch) is ErrorCode.NOT_CONTROLLER


async def test_a_question_that_waits_when_the_term_ends_is_answered(cluster):
    broker = await cluster.start(1)

    async def end_of_the_term():
        await cluster.store.delete(paths.CONTROLLER)
        await trio.sleep_forever()

    cluster.before_write(broker, paths.PRODUCER_ID_BLOCK, end_of_the_term)
    assert await broker.candidate.allocate_producer_ids(1, broker.epoch) is ErrorCode.NOT_CONTROLLER
    await cluster.settle()
    assert broker.candidate.epoch == 2


async def test_producer_ids_that_are_used_up_or_cannot_be_read_are_an_error(cluster):
    broker = await cluster.start(1)
    await cluster.store.set(paths.PRODUCER_ID_BLOCK, ProducerIdBlock(1, 0, 2**63 - 1).encode())
    assert await broker.candidate.allocate_producer_ids(1, broker.epoch) is ErrorCode.UNKNOWN_SERVER_ERROR
    await cluster.store.set(paths.PRODUCER_ID_BLOCK, b"{")
    assert await broker.candidate.allocate_producer_ids(1, broker.epoch) is ErrorCode.UNKNOWN_SERVER_ERROR
