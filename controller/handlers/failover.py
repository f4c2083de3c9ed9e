"""The first event of every term: read the whole cluster and repair its state (reference B.2).

Every live broker is sent the roles of all its replicas: a broker that has them already ignores the repetition, and one
that missed a request gets its content now. Partitions whose leader died while there was no controller get a new one.
Brokers that restarted in that time do not count as in sync if they may have lost records (bounces.py).
"""

from collections.abc import Iterable, Mapping

from barnabas.controller.context import PARTITIONS_IN_A_BATCH, ControllerContext
from barnabas.controller.decide.leaders import decide_leaders_of_new_term
from barnabas.controller.decide.replicas import decide_replicas_lost, decide_replicas_online
from barnabas.controller.decide.requests import ControlBatch
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.events import (
    IsrChangeNotificationsTouched,
    LogDirEventsTouched,
    PreferredElectionsTouched,
    ReassignmentsTouched,
    Startup,
    TopicsTouched,
    WorkLeftBehind,
)
from barnabas.controller.handlers.brokers import read_brokers
from barnabas.controller.handlers.features import set_up_features
from barnabas.controller.handlers.reassignments import resume_moves
from barnabas.controller.handlers.topic_deletion import go_on_deleting, read_deletion_marks
from barnabas.controller.handlers.topics import read_new_topics
from barnabas.controller.image import loading
from barnabas.controller.image.state import BrokerJoined, LeadershipChanged
from barnabas.controller.store import paths
from barnabas.controller.store.store import Delete
from barnabas.wire.topics import TopicPartition


async def startup(context: ControllerContext, event: Startup) -> None:
    """Announce the live brokers, read the cluster, send all roles, and repair what changed without a controller."""
    await set_up_features(context)

    # Notifications are removed before anything is read: a change is written before its
    # notification, so the reads below see it. In the opposite order a notification whose change
    # was not read could be removed.
    await _drop_notifications(context)

    # Each folder is read with a watch, and before the nodes in it. So a change that these reads miss fires a watch, and
    # its event is handled after this one.
    brokers = await read_brokers(context)
    for broker in brokers.values():
        context.replay(BrokerJoined(broker))
        context.channels.add(broker)
    announcement = ControlBatch()
    announcement.add_metadata()

    # Endpoints are sent before roles: a follower that is sent a leader which is not in its metadata
    # starts no fetcher.
    await context.tell(announcement)
    new = await read_new_topics(context, await context.store.children(paths.TOPICS, context.watch(TopicsTouched())))
    states = await loading.read_states(context.store, new)
    await context.replay_many(LeadershipChanged(each, found.leadership) for each, found in states.items())

    # Deletion marks are read before any role is sent or leader elected: a role would make a broker
    # create a log again that it has deleted already.
    await read_deletion_marks(context)

    # Clients must not see these topics any more, even while a dead broker halts the deletion.
    if context.image.deletions:
        announcement.add_metadata(partition for partition, _ in context.image.partitions(context.image.deletions))
        await context.tell(announcement)
    await _take_up(context, new, states)

    # Requests in the store are events of their own: here a request that cannot be handled would end every term.
    for request in (WorkLeftBehind(), ReassignmentsTouched(), PreferredElectionsTouched()):
        context.put(request)


async def work_left_behind(context: ControllerContext, event: WorkLeftBehind) -> None:
    """Go on with the deletions and reassignments that the last controller did not complete."""
    await go_on_deleting(context)
    await resume_moves(context)


async def _take_up(
    context: ControllerContext,
    topic_partitions: Iterable[TopicPartition],
    states: Mapping[TopicPartition, loading.FoundState],
) -> None:
    """Start replicas that are on live brokers, stop the others, and elect leaders where that leaves none."""
    image = context.image
    # A thousand partitions at a time are decided on, written and sent, so that the first of them have leaders while the
    # last are waiting.
    for part in in_slices(topic_partitions, PARTITIONS_IN_A_BATCH):
        replicas = [(each, broker_id) for each in part for broker_id in image.partition(each).replicas]
        decision = await context.decide(decide_replicas_online, [each for each in replicas if each[1] in image.brokers])
        dead = [each for each in replicas if each[1] not in image.brokers]
        decision.extend(await context.decide(decide_replicas_lost, dead))
        written_zxids = {each: states[each].written_zxid for each in part if each in states}
        await context.elect(part, decision, choose=decide_leaders_of_new_term(written_zxids))


async def _drop_notifications(context: ControllerContext) -> None:
    """Remove the notifications of failed log directories and of changed ISRs."""
    # The notifications need no handling: this controller reads every state, and sends every broker
    # all its roles, whose responses name the replicas on failed log directories.
    reported = await context.store.children(paths.LOG_DIR_EVENTS, context.watch(LogDirEventsTouched()))
    changes = await context.store.children(paths.ISR_CHANGES, context.watch(IsrChangeNotificationsTouched()))
    await context.write(
        [
            *([Delete(f"{paths.LOG_DIR_EVENTS}/{name}")] for name in reported),
            *([Delete(f"{paths.ISR_CHANGES}/{name}")] for name in changes),
        ]
    )
