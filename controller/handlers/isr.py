"""ISR changes: AlterPartition requests, and the notifications of older leaders (reference B.10, C.6).

From metadata version 2.7-IV2 on leaders send AlterPartition to the controller, which writes the state node.

Below it a leader writes the state node itself, and then a notification at /isr_change_notification that names the
partitions. The controller reads their states again, sends UpdateMetadata to all brokers, and removes the notification.
"""

import trio

from barnabas.controller.context import ControllerContext
from barnabas.controller.decide.isr import IsrChange, decide_isr_change
from barnabas.controller.decide.leaders import LeaderRules, decide_moved_leaders
from barnabas.controller.decide.requests import ControlBatch
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.decide.steps import Decision, Step
from barnabas.controller.events import AlterPartitionAsked, IsrChangeNotificationsTouched
from barnabas.controller.handlers.reassignments import complete_moves
from barnabas.controller.image import loading
from barnabas.controller.image.state import Leadership, LeadershipChanged
from barnabas.controller.store import paths
from barnabas.controller.store.store import Delete
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

Outcome = Step | Leadership | ErrorCode


async def alter_partition_asked(context: ControllerContext, event: AlterPartitionAsked) -> None:
    """Validate and write the requested changes."""
    broker = context.image.brokers.get(event.broker_id)
    # The broker epoch must be that of the image: a request of an earlier registration may name an
    # ISR from before a restart, and a later registration is not in the image yet. A live leader
    # repeats the request.
    if broker is None or broker.epoch != event.broker_epoch:
        event.answer(ErrorCode.STALE_BROKER_EPOCH)
        return
    rules = await context.leader_rules()
    outcomes: list[Outcome] = []
    for part in in_slices(event.changes):
        outcomes += [_decide(context, event.broker_id, *change, rules) for change in part]
        await trio.lowlevel.checkpoint()
    changed = [outcome for outcome in outcomes if isinstance(outcome, Step)]
    # All brokers are sent the new ISR as metadata, not as a role: the leader gets it with the response, and the leader
    # epoch stays, so no follower has to start again.
    overtaken = await _write(context, changed)
    # The answer is given now: the states are written, whatever becomes of this term, and the
    # leader need not wait for the rest.
    event.answer([_answer(context, outcome, overtaken) for outcome in outcomes])
    # The leader of an overtaken partition has an outdated partition epoch, with which every request of it is refused.
    # It is sent its role under the next leader epoch, or it would wait for a LeaderAndIsr that never comes.
    await context.elect(overtaken, Decision(), choose=decide_moved_leaders)
    # A reassignment waits for its target to be in the ISR.
    await complete_moves(context, dict.fromkeys(_topic_partition(step) for step in changed))


def _decide(
    context: ControllerContext, broker_id: int, topic: bytes | str, index: int, change: IsrChange, rules: LeaderRules
) -> Outcome:
    # If the id is not in the image, the topic was deleted, and possibly created again under another
    # id.
    name = context.image.topic_names.get(topic) if isinstance(topic, bytes) else topic
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return decide_isr_change(context.image, TopicPartition(name, index), broker_id, change, rules)


async def _write(context: ControllerContext, steps: list[Step]) -> dict[TopicPartition, None]:
    """Commit; returns the partitions whose state another broker had written."""
    refused = await context.commit(Decision(list(steps)))
    # A refused step may have been written by our own first attempt, whose answer was lost. Such a step is replayed and
    # sent like the others.
    ours = Decision()
    overtaken = await context.read_refused(refused, ours)
    await context.commit(ours)
    return dict.fromkeys(overtaken)


def _answer(
    context: ControllerContext, outcome: Outcome, overtaken: dict[TopicPartition, None]
) -> Leadership | ErrorCode:
    if not isinstance(outcome, Step):
        return outcome
    leadership = context.image.partition(_topic_partition(outcome)).leadership
    if leadership is None or _topic_partition(outcome) in overtaken:
        return ErrorCode.INVALID_UPDATE_VERSION
    return leadership


async def isr_change_notifications_touched(context: ControllerContext, event: IsrChangeNotificationsTouched) -> None:
    """Read the states that leaders wrote themselves."""
    # The notifications are read at every metadata version: in a rolling upgrade some brokers still
    # have the older one.
    names = await context.store.children(paths.ISR_CHANGES, context.watch(event))
    # The watch also fires when this controller removes the notifications.
    if not names:
        return
    named = await loading.read_isr_change_notifications(context.store, names)
    image = context.image
    # A notification may be older than the topic's deletion.
    known = [each for each in named if image.find_partition(each) is not None and not image.is_deleting(each.topic)]
    changed = await context.read_states_again(known)
    announcement = ControlBatch()
    announcement.add_metadata(changed)
    await context.tell(announcement)
    await complete_moves(context, changed)
    # The notifications are removed last: if this controller fails before, the next one reads every
    # state, and removes them itself.
    await context.write([[Delete(f"{paths.ISR_CHANGES}/{name}")] for name in names])


def _topic_partition(step: Step) -> TopicPartition:
    if not isinstance(step.record, LeadershipChanged):
        raise TypeError(f"{step.record} is no change of an ISR")
    return step.record.topic_partition
