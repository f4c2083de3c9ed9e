"""Brokers that come, go, restart and change their addresses, and disks that fail (reference B.9).

A broker is alive while its registration exists; the registration's czxid, the broker epoch, tells one life from the
next. A disk is reported twice: a broker that loses one says so in the store, and is then sent its roles again, and its
answer says which replicas it lost. To the controller a replica on a failed disk is one on a dead broker.
"""

import logging
from collections.abc import Iterable, Sequence

import trio

from barnabas.controller.context import PARTITIONS_IN_A_BATCH, ControllerContext
from barnabas.controller.decide.leaders import partitions_without_leader
from barnabas.controller.decide.replicas import (
    Replica,
    compare_brokers,
    decide_replicas_lost,
    decide_replicas_online,
    decide_resumed_deletions,
)
from barnabas.controller.decide.requests import ControlBatch
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.decide.steps import Decision
from barnabas.controller.events import (
    BrokerIdsTouched,
    LeaderAndIsrAnswered,
    LogDirEventsTouched,
    RegistrationTouched,
)
from barnabas.controller.handlers.reassignments import complete_moves, resume_moves
from barnabas.controller.handlers.topic_deletion import go_on_deleting
from barnabas.controller.image import loading
from barnabas.controller.image.state import BrokerChanged, BrokerJoined, BrokerLeft, DirectoryReported, LiveBroker
from barnabas.controller.store import paths
from barnabas.controller.store.store import Delete, NoNode
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_name
from barnabas.wire.topics import TopicPartition

# What a broker may answer about one partition without anything being wrong; "stale": it knows this leader epoch.
ORDINARY_ANSWERS = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR)

COUNTED_A_SLICE = 1000  # partitions that are only listed: about a millisecond

logger = logging.getLogger(__name__)


async def broker_ids_touched(context: ControllerContext, event: BrokerIdsTouched) -> None:
    """Brokers that joined, restarted unnoticed, or died; those that joined first, for they may lead what others led."""
    change = compare_brokers(context.image.brokers, await read_brokers(context))
    if change.joined:
        await _brokers_up(context, change.joined)
    if change.bounced:
        await _brokers_down(context, [broker.broker_id for broker in change.bounced])
        await _brokers_up(context, change.bounced)
    if change.left:
        await _brokers_down(context, change.left)


async def registration_touched(context: ControllerContext, event: RegistrationTouched) -> None:
    """A live broker changed its endpoints; its death is another event's matter."""
    known, path = context.image.brokers.get(event.broker_id), paths.broker(event.broker_id)
    stat = await context.store.exists(path)
    if known is None or stat is None or stat.czxid != known.epoch:
        return
    try:
        data, stat = await context.store.get(path, context.watch(event))
    except NoNode:
        return
    broker = loading.live_broker(event.broker_id, data, stat)
    if broker is None or broker.epoch != known.epoch or broker == known:
        return
    context.replay(BrokerChanged(broker))
    context.channels.change(broker)
    announcement = ControlBatch()
    announcement.add_metadata()
    await context.tell(announcement)


async def read_brokers(context: ControllerContext) -> dict[int, LiveBroker]:
    """The registered brokers; what becomes of them is watched."""
    return await loading.read_brokers(
        context.store,
        context.watch(BrokerIdsTouched()),
        lambda broker_id: context.watch(RegistrationTouched(broker_id)),
        context.image.brokers,
    )


async def _brokers_up(context: ControllerContext, brokers: Sequence[LiveBroker]) -> None:
    """Announce them, send them everything, start their replicas, and elect leaders where there was none."""
    joined = {broker.broker_id: broker for broker in brokers}
    logger.info("brokers joined: %s", ", ".join(map(str, joined)))
    others = [broker_id for broker_id in context.image.brokers if broker_id not in joined]
    for broker in brokers:
        context.replay(BrokerJoined(broker))
        context.channels.add(broker)
    announcement = ControlBatch()
    announcement.add_metadata()
    await context.tell(announcement, metadata_to=others)
    for every in in_slices(context.image.partitions(), COUNTED_A_SLICE):
        announcement.add_metadata(topic_partition for topic_partition, _ in every)
        await trio.lowlevel.checkpoint()
    await context.tell(announcement, metadata_to=list(joined))
    for part in in_slices(context.image.replicas_on(joined), PARTITIONS_IN_A_BATCH):
        waiting = [topic_partition for topic_partition, _ in part if topic_partition in context.image.leaderless]
        await context.elect(dict.fromkeys(waiting), await context.decide(decide_replicas_online, part))
    await context.elect(partitions_without_leader(context.image), Decision())
    await resume_moves(context, joined)
    await context.commit(decide_resumed_deletions(context.image, joined))
    await go_on_deleting(context)


async def _brokers_down(context: ControllerContext, broker_ids: Sequence[int]) -> None:
    """Elect leaders for what they led; the others learn at least that they are gone."""
    logger.info("brokers left: %s", ", ".join(map(str, broker_ids)))
    for broker_id in broker_ids:
        context.channels.remove(broker_id)
        context.replay(BrokerLeft(broker_id))
    await context.commit(Decision(), tell_brokers=True)
    await _replicas_lost(context, context.image.replicas_on(dict.fromkeys(broker_ids)))


async def _replicas_lost(context: ControllerContext, replicas: Iterable[Replica]) -> None:
    for part in in_slices(replicas, PARTITIONS_IN_A_BATCH):
        affected = dict.fromkeys(topic_partition for topic_partition, _ in part)
        # A leader that writes its ISR itself may have taken the lost replica back: its note of that comes later.
        changed = await context.read_states_again(affected) if context.level.leaders_write_states else []
        await context.elect(affected, await context.decide(decide_replicas_lost, part))
        await complete_moves(context, changed)
    await go_on_deleting(context)


# Disks ---------------------------------------------------------------------------------------------------------------


async def leader_and_isr_answered(context: ControllerContext, event: LeaderAndIsrAnswered) -> None:
    """A replica whose disk failed is offline though its broker lives; other errors are the broker's own matter."""
    if not context.image.is_current(event.broker):
        return
    broker_id = event.broker.broker_id
    if event.response.error_code != ErrorCode.NONE:
        logger.warning("broker %d refused LeaderAndIsr: %s", broker_id, error_name(event.response.error_code))
        return
    failed = context.image.failed_disks.get(broker_id, {})
    lost: list[Replica] = []
    refused: dict[int, int] = {}  # code -> how often
    for topic_partition, code in _partition_errors(context, event.response):
        if code == ErrorCode.KAFKA_STORAGE_ERROR and topic_partition not in failed:
            context.replay(DirectoryReported(topic_partition, broker_id, works=False))
            lost.append((topic_partition, broker_id))
        elif code == ErrorCode.NONE and topic_partition in failed:
            context.replay(DirectoryReported(topic_partition, broker_id, works=True))
        elif code not in ORDINARY_ANSWERS:
            refused[code] = refused.get(code, 0) + 1
    for code, count in refused.items():
        logger.warning("broker %d did not take its role in %d partitions: %s", broker_id, count, error_name(code))
    if lost:
        logger.warning("broker %d lost the disk of %d replicas", broker_id, len(lost))
        await _replicas_lost(context, lost)


def _partition_errors(
    context: ControllerContext, response: m.LeaderAndIsrResponse
) -> Iterable[tuple[TopicPartition, int]]:
    """The answers about partitions that still exist; before version 5 they name their topic, then its id."""
    named = [(error.topic_name, error) for error in response.partition_errors]
    for topic in response.topics:
        name = context.image.topic_names.get(topic.topic_id)
        if name is not None:
            named += [(name, error) for error in topic.partition_errors]
    for name, error in named:
        topic_partition = TopicPartition(name, error.partition_index)
        if context.image.find_partition(topic_partition) is not None:
            yield topic_partition, error.error_code


async def log_dir_events_touched(context: ControllerContext, event: LogDirEventsTouched) -> None:
    """Ask the brokers that lost a directory by telling them their roles again: the answers say what is lost."""
    names = await context.store.children(paths.LOG_DIR_EVENTS, context.watch(event))
    broker_ids = dict.fromkeys(await loading.read_log_dir_events(context.store, names))
    await context.write([[Delete(f"{paths.LOG_DIR_EVENTS}/{name}")] for name in names])
    for part in in_slices(context.image.replicas_on(broker_ids), PARTITIONS_IN_A_BATCH):
        await context.commit(await context.decide(decide_replicas_online, part))
