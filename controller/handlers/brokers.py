"""Brokers that join, leave, restart or change their endpoints, and failed log directories (reference B.9).

A broker is alive while its registration exists; the registration's czxid, the broker epoch, distinguishes one
registration from the next. A failed disk is reported in two steps: the broker writes a notification to the store; the
controller then sends it LeaderAndIsr again, and the response has KAFKA_STORAGE_ERROR for the lost replicas. A replica
on a failed disk is treated like one on a dead broker. A broker of ours writes the same notification some time after it
could not make a log for want of file descriptors: the response then shows which replicas work again.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

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
from barnabas.controller.decide.steps import Decision, TellLeaderAndIsr
from barnabas.controller.events import (
    BrokerIdsTouched,
    LeaderAndIsrAnswered,
    LogDirEventsTouched,
    RegistrationTouched,
)
from barnabas.controller.handlers.reassignments import resume_moves
from barnabas.controller.handlers.topic_deletion import go_on_deleting
from barnabas.controller.image import loading
from barnabas.controller.image.state import BrokerChanged, BrokerJoined, BrokerLeft, DirectoryReported, LiveBroker
from barnabas.controller.store import paths
from barnabas.controller.store.store import Delete, NoNode
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_name
from barnabas.wire.topics import TopicPartition

# Normal error codes in a LeaderAndIsr response. STALE_CONTROLLER_EPOCH: the broker already has this leader epoch.
ORDINARY_ANSWERS = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR)

COUNTED_A_SLICE = 1000  # partitions that are only listed: about a millisecond

logger = logging.getLogger(__name__)


async def broker_ids_touched(context: ControllerContext, event: BrokerIdsTouched) -> None:
    """Handle brokers that joined, bounced or left."""
    change = compare_brokers(context.image.brokers, await read_brokers(context))
    # Joined brokers come first: a partition whose leader left may have an ISR member among them.
    if change.joined:
        await _brokers_up(context, change.joined)
    # A bounced broker may have lost records that its machine had not synced. It must come back as a follower, so it
    # leaves the ISRs and its leaderships first, as if its death had been noticed.
    if change.bounced:
        await _brokers_down(context, [broker.broker_id for broker in change.bounced])
        await _brokers_up(context, change.bounced)
    if change.left:
        await _brokers_down(context, change.left)


async def registration_touched(context: ControllerContext, event: RegistrationTouched) -> None:
    """A live broker changed its endpoints. If it is gone, `BrokerIdsTouched` handles that."""
    known = context.image.brokers.get(event.broker_id)
    path = paths.broker(event.broker_id)

    # The watch also fires when the node is removed, and the broker may have registered again since. A new registration
    # is read, and watched, by `BrokerIdsTouched`; this event must not replace the broker epoch in the image.
    stat = await context.store.exists(path)
    if known is None or stat is None or stat.czxid != known.epoch:
        return
    try:
        data, stat = await context.store.get(path, context.watch(event))
    except NoNode:
        return

    # The epochs are compared once more, because the node may have been replaced between the two
    # reads.
    broker = loading.live_broker(event.broker_id, data, stat)
    if broker is None or broker.epoch != known.epoch or broker == known:
        return
    context.replay(BrokerChanged(broker))
    context.channels.change(broker)

    # No role changes, but followers must connect to the new endpoints, which they read from UpdateMetadata.
    announcement = ControlBatch()
    announcement.add_metadata()
    await context.tell(announcement)


async def read_brokers(context: ControllerContext) -> dict[int, LiveBroker]:
    """Read the registered brokers, and watch their nodes."""
    return await loading.read_brokers(
        context.store,
        context.watch(BrokerIdsTouched()),
        lambda broker_id: context.watch(RegistrationTouched(broker_id)),
        context.image.brokers,
    )


async def _brokers_up(context: ControllerContext, brokers: Sequence[LiveBroker]) -> None:
    """Announce the brokers, send them the full metadata, start their replicas, and elect leaders where none is."""
    joined = {broker.broker_id: broker for broker in brokers}
    logger.info("brokers joined: %s", ", ".join(map(str, joined)))
    others = [broker_id for broker_id in context.image.brokers if broker_id not in joined]
    # All brokers join the image before the first request, because each request names every live
    # broker.
    for broker in brokers:
        context.replay(BrokerJoined(broker))
        context.channels.add(broker)
    announcement = ControlBatch()
    announcement.add_metadata()
    # Endpoints are sent before roles: a follower that is sent a leader which is not in its metadata
    # starts no fetcher.
    await context.tell(announcement, metadata_to=others)
    # A broker that has just started has an empty metadata cache, so it is sent every partition.
    for every in in_slices(context.image.partitions(), COUNTED_A_SLICE):
        announcement.add_metadata(topic_partition for topic_partition, _ in every)
        await trio.lowlevel.checkpoint()
    await context.tell(announcement, metadata_to=list(joined))
    await _replicas_back(context, context.image.replicas_on(joined), joined)


async def _replicas_back(
    context: ControllerContext, replicas: Iterable[Replica], broker_ids: Mapping[int, object]
) -> None:
    """Start replicas of these brokers, elect leaders where none is, and go on with what has waited for them."""
    for part in in_slices(replicas, PARTITIONS_IN_A_BATCH):
        # Leaders are elected in the batch that starts the replicas: these may be the only ones
        # that can lead the partitions.
        waiting = [topic_partition for topic_partition, _ in part if topic_partition in context.image.leaderless]
        await context.elect(dict.fromkeys(waiting), await context.decide(decide_replicas_online, part))
    # As in Kafka, leaders are also elected for partitions that these brokers do not hold.
    await context.elect(partitions_without_leader(context.image), Decision())
    # Reassignments to a dead broker or disk, and deletions of its replicas, have waited for it.
    await resume_moves(context, broker_ids)
    await context.commit(decide_resumed_deletions(context.image, broker_ids))
    await go_on_deleting(context)


async def _brokers_down(context: ControllerContext, broker_ids: Sequence[int]) -> None:
    """Elect new leaders for their partitions, and send all other brokers the list of live brokers."""
    logger.info("brokers left: %s", ", ".join(map(str, broker_ids)))
    for broker_id in broker_ids:
        # The queued requests are dropped: they carry the epoch of the registration that is gone.
        context.channels.remove(broker_id)
        context.replay(BrokerLeft(broker_id))
    # The list of live brokers is sent even if the brokers that left held no replicas. Their death
    # is noted in no node: a controller that is elected before the new leaders are written does not
    # find their registrations either, and elects the leaders.
    await context.commit(Decision(), tell_brokers=True)
    await _replicas_lost(context, context.image.replicas_on(dict.fromkeys(broker_ids)))


async def _replicas_lost(context: ControllerContext, replicas: Iterable[Replica]) -> None:
    # The replicas are listed first, because the iterable reads the image, and the loop changes it.
    for part in in_slices(list(replicas), PARTITIONS_IN_A_BATCH):
        affected = dict.fromkeys(topic_partition for topic_partition, _ in part)
        # Below 2.7-IV2 a leader writes its ISR itself, and may have added the lost replica again
        # before the controller is notified. Without this read the replica would stay in that ISR.
        # States of topics that are being deleted do not count any more.
        kept = [each for each in affected if not context.image.is_deleting(each.topic)]
        if context.metadata_version.leaders_write_states:
            await context.read_states_again(kept)
        await context.elect(affected, await context.decide(decide_replicas_lost, part))
    await go_on_deleting(context)


# Log directories -------------------------------------------------------------------------------------------------


async def leader_and_isr_answered(context: ControllerContext, event: LeaderAndIsrAnswered) -> None:
    """Take replicas on failed log directories out of service, and those that work again into it.

    Other errors are only logged.
    """
    # An answer of an earlier registration is ignored: the broker has been sent its roles again,
    # and may have other disks now.
    if not context.image.is_current(event.broker):
        return
    broker_id = event.broker.broker_id

    # Usually the controller epoch or the broker epoch is outdated. Neither needs a repair: an
    # outdated controller epoch ends the term at its next write, and for a new registration of the
    # broker there is an event on its way.
    if event.response.error_code != ErrorCode.NONE:
        logger.warning("broker %d refused LeaderAndIsr: %s", broker_id, error_name(event.response.error_code))
        return
    failed = context.image.failed_disks.get(broker_id, {})
    lost: list[Replica] = []
    recovered: list[Replica] = []
    refused: dict[int, int] = {}  # code -> how often
    for topic_partition, code in _partition_errors(context, broker_id, event.response):
        # Every role that is sent to a failed disk gets this error again; only the first one is news.
        if code == ErrorCode.KAFKA_STORAGE_ERROR and topic_partition not in failed:
            context.replay(DirectoryReported(topic_partition, broker_id, works=False))
            lost.append((topic_partition, broker_id))
        # As in Kafka, a replica whose role was accepted counts as online again. Leaders are then
        # elected at once; Kafka's controller waits until a broker joins.
        elif code == ErrorCode.NONE and topic_partition in failed:
            context.replay(DirectoryReported(topic_partition, broker_id, works=True))
            recovered.append((topic_partition, broker_id))
        elif code not in ORDINARY_ANSWERS:
            refused[code] = refused.get(code, 0) + 1

    for code, count in refused.items():
        logger.warning("broker %d did not take its role in %d partitions: %s", broker_id, count, error_name(code))
    if lost:
        logger.warning("broker %d lost the disk of %d replicas", broker_id, len(lost))
        await _replicas_lost(context, lost)
    if recovered:
        logger.info("%d replicas of broker %d work again", len(recovered), broker_id)
        await _replicas_back(context, recovered, {broker_id: None})


def _partition_errors(
    context: ControllerContext, broker_id: int, response: m.LeaderAndIsrResponse
) -> Iterable[tuple[TopicPartition, int]]:
    """The error of each partition in the response of which this broker still has a replica."""
    # Before version 5 a response has topic names, since then topic ids.
    named = [(error.topic_name, error) for error in response.partition_errors]
    for topic in response.topics:
        name = context.image.topic_names.get(topic.topic_id)
        if name is not None:
            named += [(name, error) for error in topic.partition_errors]
    for name, error in named:
        topic_partition = TopicPartition(name, error.partition_index)
        # Since the request was sent the topic may have been removed, or a reassignment may have dropped the replica.
        partition = context.image.find_partition(topic_partition)
        if partition is not None and broker_id in partition.replica_statuses:
            yield topic_partition, error.error_code


async def log_dir_events_touched(context: ControllerContext, event: LogDirEventsTouched) -> None:
    """Send their requests again to the brokers that lost a directory, or could not make a log for want of descriptors.

    The responses name the replicas that are lost, and those that work again.
    """
    image = context.image
    names = await context.store.children(paths.LOG_DIR_EVENTS, context.watch(event))
    reporting = await loading.read_log_dir_events(context.store, names)

    # The notifications may be removed before the roles are sent: if this controller fails in
    # between, the next one sends every broker all its roles, and the responses name the lost
    # replicas.
    await context.write([[Delete(f"{paths.LOG_DIR_EVENTS}/{name}")] for name in names])

    # A broker that is about to stop is left out: it has been asked to stop its replicas.
    asked = {each: None for each in reporting if each in image.brokers and each not in image.shutting_down}
    for part in in_slices(image.replicas_on(asked), PARTITIONS_IN_A_BATCH):
        roles = ControlBatch()
        for topic_partition, broker_id in part:
            # A replica that is being deleted gets no role, whose answer would show whether it
            # works. So it counts as working; the answer to StopReplica will show whether it does.
            if image.is_deleting(topic_partition.topic):
                context.replay(DirectoryReported(topic_partition, broker_id, works=True))
            elif image.partition(topic_partition).leadership is not None:
                roles.add(TellLeaderAndIsr(topic_partition, (broker_id,)))
        await context.tell(roles)

    await context.commit(decide_resumed_deletions(image, asked))
    await go_on_deleting(context)
