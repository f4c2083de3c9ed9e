"""Answering the leaders that want other in-sync replicas: AlterPartition on the controller (reference B.10).

A change is written at once and told to everybody's metadata, not as a new role: the leader learns it by the answer, and
its epoch stays. Where the store holds a state that nobody here has written the leader is refused, and then told its
role anew under the next epoch, lest it wait for ever for one that fits.
"""

from barnabas.controller.events import IsrChangesAsked
from barnabas.controller.isr_changes import IsrChange, decide_isr_change
from barnabas.controller.leaders import LeaderRules, decide_moved_leaders
from barnabas.controller.office import Office
from barnabas.controller.reassigning import complete_moves
from barnabas.controller.state import Leadership, LeadershipChanged
from barnabas.controller.steps import Decision, Step
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

Outcome = Step | Leadership | ErrorCode


async def isr_changes_asked(office: Office, event: IsrChangesAsked) -> None:
    """Write the changes that fit what is known."""
    broker = office.image.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        event.answer(ErrorCode.STALE_BROKER_EPOCH)
        return
    rules = await office.leader_rules()
    outcomes = [_decide(office, event.broker_id, *change, rules) for change in event.changes]
    changed = [outcome for outcome in outcomes if isinstance(outcome, Step)]
    overtaken = await _write(office, changed)
    event.answer([_answer(office, outcome, overtaken) for outcome in outcomes])
    await office.elect(overtaken, Decision(), choose=decide_moved_leaders)
    await complete_moves(office, dict.fromkeys(_topic_partition(step) for step in changed))


def _decide(
    office: Office, broker_id: int, topic: bytes | str, index: int, change: IsrChange, rules: LeaderRules
) -> Outcome:
    name = office.image.topic_names.get(topic) if isinstance(topic, bytes) else topic
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return decide_isr_change(office.image, TopicPartition(name, index), broker_id, change, rules)


async def _write(office: Office, steps: list[Step]) -> dict[TopicPartition, None]:
    """Commit; returns the partitions whose state somebody else had written."""
    refused = await office.commit(Decision(list(steps)))
    ours = Decision()
    overtaken = await office.read_refused(refused, ours)
    await office.commit(ours)
    return dict.fromkeys(overtaken)


def _answer(office: Office, outcome: Outcome, overtaken: dict[TopicPartition, None]) -> Leadership | ErrorCode:
    if not isinstance(outcome, Step):
        return outcome
    leadership = office.image.partition(_topic_partition(outcome)).leadership
    if leadership is None or _topic_partition(outcome) in overtaken:
        return ErrorCode.INVALID_UPDATE_VERSION
    return leadership


def _topic_partition(step: Step) -> TopicPartition:
    if not isinstance(step.record, LeadershipChanged):
        raise TypeError(f"{step.record} is no change of an ISR")
    return step.record.topic_partition
