"""What tests share with `test_replicas.py`."""

from barnabas.wire import messages as m

State = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState


TOPIC_ID = b"0123456789abcdef"


def roles(machine, topic, partitions, *, version=7, topic_id=TOPIC_ID, controller_epoch=1, broker_epoch=-1, **state):
    """LeaderAndIsr for these partitions of a topic, led by this broker unless said otherwise."""
    me = machine.serving.broker_id
    fields = {"leader": me, "leader_epoch": 0, "isr": [me], "replicas": [me], "is_new": True} | state
    states = [State(partition_index=index, controller_epoch=controller_epoch, **fields) for index in partitions]
    common = {"controller_id": me, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
    if version < 2:
        for each in states:
            each.topic_name = topic
        return m.LeaderAndIsrRequest(**(common | {"broker_epoch": -1}), ungrouped_partition_states=states)
    identified = {"topic_id": topic_id} if version >= 5 else {}
    grouped = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=topic, partition_states=states, **identified)
    return m.LeaderAndIsrRequest(**common, topic_states=[grouped])


def codes_of(answer) -> list[int]:
    """The error of each partition, or of the whole."""
    rows = [row for topic in answer.topics for row in topic.partition_errors] or answer.partition_errors
    return [row.error_code for row in rows] or [answer.error_code]
