"""Leaders that want, or have written, other in-sync replicas (reference B.10, C.6).

From 2.7-IV2 on they ask the controller by AlterPartition.

A change is written at once and sent to all brokers as metadata, not as a new role: the leader learns it by the answer,
and its epoch stays. Where the store holds a state that this controller has not written the leader is refused, and then
sent its role again under the next epoch; otherwise it would wait for ever for one that fits.

At older levels of `inter.broker.protocol.version` a leader writes the state node itself and then leaves a note at
/isr_change_notification, which names the partitions. The controller reads their states again, tells everybody, and
removes the note. It does so at every level, for the brokers of a cluster take a new one by and by.
"""

import trio

from barnabas.controller.context import ControllerContext
from barnabas.controller.decide.isr import IsrChange, decide_isr_change
from barnabas.controller.decide.leaders import LeaderRules, decide_moved_leaders
from barnabas.controller.decide.requests import ControlBatch
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.decide.steps import Decision, Step
from barnabas.controller.events import IsrChangeNotesTouched, IsrChangesAsked
from barnabas.controller.handlers.reassignments import complete_moves
from barnabas.controller.image import loading
from barnabas.controller.image.state import Leadership, LeadershipChanged
from barnabas.controller.store import paths
from barnabas.controller.store.store import Delete
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

Outcome = Step | Leadership | ErrorCode


async def isr_changes_asked(context: ControllerContext, event: IsrChangesAsked) -> None:
    """Write the changes that fit what is known."""
    broker = context.image.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        event.answer(ErrorCode.STALE_BROKER_EPOCH)
        return
    rules = await context.leader_rules()
    outcomes: list[Outcome] = []
    for part in in_slices(event.changes):
        outcomes += [_decide(context, event.broker_id, *change, rules) for change in part]
        await trio.lowlevel.checkpoint()
    changed = [outcome for outcome in outcomes if isinstance(outcome, Step)]
    overtaken = await _write(context, changed)
    event.answer([_answer(context, outcome, overtaken) for outcome in outcomes])
    await context.elect(overtaken, Decision(), choose=decide_moved_leaders)
    await complete_moves(context, dict.fromkeys(_topic_partition(step) for step in changed))


def _decide(
    context: ControllerContext, broker_id: int, topic: bytes | str, index: int, change: IsrChange, rules: LeaderRules
) -> Outcome:
    name = context.image.topic_names.get(topic) if isinstance(topic, bytes) else topic
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return decide_isr_change(context.image, TopicPartition(name, index), broker_id, change, rules)


async def _write(context: ControllerContext, steps: list[Step]) -> dict[TopicPartition, None]:
    """Commit; returns the partitions whose state another broker had written."""
    refused = await context.commit(Decision(list(steps)))
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


async def isr_change_notes_touched(context: ControllerContext, event: IsrChangeNotesTouched) -> None:
    """Read again what leaders wrote themselves."""
    names = await context.store.children(paths.ISR_CHANGES, context.watch(event))
    if not names:
        return  # we have just removed them
    noted = await loading.read_isr_changes(context.store, names)
    image = context.image
    known = [each for each in noted if image.find_partition(each) is not None and not image.is_deleting(each.topic)]
    changed = await context.read_states_again(known)
    announcement = ControlBatch()
    announcement.add_metadata(changed)
    await context.tell(announcement)
    await complete_moves(context, changed)
    await context.write([[Delete(f"{paths.ISR_CHANGES}/{name}")] for name in names])


def _topic_partition(step: Step) -> TopicPartition:
    if not isinstance(step.record, LeadershipChanged):
        raise TypeError(f"{step.record} is no change of an ISR")
    return step.record.topic_partition
