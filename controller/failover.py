"""The first event of every term: read the whole cluster and bring it in order (reference B.2).

Announcing the live brokers comes before any role, for a follower looks up its leader's address in what it was last
told. Then every live broker is told the roles of all its replicas: a broker that knows them ignores the repetition, and
one that missed something learns it. Leaders are elected where they died while nobody was in office.
"""

from itertools import starmap
from typing import TYPE_CHECKING

from barnabas.controller import loading, paths
from barnabas.controller.decisions import decide_replicas_lost, decide_replicas_online
from barnabas.controller.events import LogDirEventsTouched, Startup, TopicsTouched
from barnabas.controller.membership import read_brokers
from barnabas.controller.requests import ControlBatch
from barnabas.controller.state import BrokerJoined, LeadershipChanged
from barnabas.controller.store import Delete
from barnabas.controller.topic_changes import read_new_topics
from barnabas.controller.topic_deletion import go_on_deleting, read_deletion_marks

if TYPE_CHECKING:
    from barnabas.controller.controller import Controller


async def startup(controller: "Controller", event: Startup) -> None:
    """Announce who is alive, read everything, tell all their roles, and repair what happened without a controller."""
    await _drop_notifications(controller)
    brokers = await read_brokers(controller)
    for broker in brokers.values():
        controller.replay(BrokerJoined(broker))
        controller.channels.add(broker)
    announcement = ControlBatch()
    announcement.add_metadata()
    controller.tell(announcement)  # before any role, for a follower looks up its leader's address there
    new = await read_new_topics(
        controller, await controller.store.children(paths.TOPICS, controller.watch(TopicsTouched()))
    )
    states = await loading.read_states(controller.store, new)
    await controller.replay_many(starmap(LeadershipChanged, states.items()))
    await read_deletion_marks(controller)
    if controller.image.deletions:  # gone for clients from now on, even while a dead broker halts the deletion
        announcement.add_metadata(partition for partition, _ in controller.image.partitions(controller.image.deletions))
        controller.tell(announcement)
    decision = decide_replicas_online(controller.image, brokers)
    assigned = dict.fromkeys(replica for partition in new for replica in controller.image.partition(partition).replicas)
    dead = {broker_id: None for broker_id in assigned if broker_id not in brokers}
    decision.extend(decide_replicas_lost(controller.image, controller.image.replicas_on(dead)))
    await controller.elect(new, decision)
    await go_on_deleting(controller)


async def _drop_notifications(controller: "Controller") -> None:
    """What brokers reported to the last controller: this one asks every broker anyway."""
    reported = await controller.store.children(paths.LOG_DIR_EVENTS, controller.watch(LogDirEventsTouched()))
    changes = await controller.store.children(paths.ISR_CHANGES)
    await controller.write(
        [
            *([Delete(f"{paths.LOG_DIR_EVENTS}/{name}")] for name in reported),
            *([Delete(f"{paths.ISR_CHANGES}/{name}")] for name in changes),
        ]
    )
