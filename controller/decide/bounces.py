"""Finds ISR members that lost records in a machine crash while there was no controller (pure).

Theory of operation
-------------------
An ISR member has every acknowledged record as long as its machine runs: what it wrote but did not sync is in the
machine's memory. A machine that crashes loses a part of that. If the broker comes back as a follower, it fetches the
missing records from the leader.

An active controller ensures that: a dead broker is removed from the ISRs (`decide_leaders`), and one that registers
again before its death was noticed is treated as dead (`handlers/brokers.py`). Only its leader can add it again. But a
new controller may find such a broker in an ISR. If this broker became the leader, the other replicas would truncate
their logs to its log.

The store shows which brokers these are. Let m be the zxid at which a state node with broker B in the ISR was written: B
was in sync then. B's registration names k, the broker epoch since which B has lost nothing, because its machine was not
restarted since or because it was shut down cleanly (`broker/cluster/boot_mark.py`). A broker epoch is a zxid, too. If
k <= m, then B still has every record that it had at m, even if its process or session ended since. If k > m, B was away
in between and may have lost records: it *bounced*.

Two cases are not covered, as in Kafka, which has no such rule at all; `flush.messages=1` covers both. All members of an
ISR died at once, and the one whose machine crashed is the first to come back: it is elected. And a state that the last
controller wrote after B had registered but before it was notified, if that controller then died.
"""

from collections.abc import Mapping

from barnabas.controller.image.state import ClusterImage
from barnabas.wire.topics import TopicPartition


def bounced_members(image: ClusterImage, topic_partition: TopicPartition, written_zxid: int) -> Mapping[int, None]:
    """The ISR members that bounced since this zxid, to be removed from the ISR; none if no other member is alive."""
    leadership = image.partition(topic_partition).leadership
    isr = () if leadership is None else leadership.state.isr
    # A dead member cannot be elected, and `decide_leaders` removes it if a live one is left.
    live = [member for member in isr if image.is_reachable(topic_partition, member)]
    # For a registration without `kept_since` (Kafka's brokers), this is the broker epoch: such a broker is trusted only
    # since its registration.
    bounced = {member: None for member in live if image.brokers[member].kept_since > written_zxid}
    # There must be a leader. If all live members bounced they stay, and Kafka's rule applies: the first of them leads.
    #
    #       ISR     bounced since the state was written  alive        removed
    #       1 2 3   2                                    1 2 3        2
    #       1 2 3   1 (the leader), 2                    1 2 3        1 2: 3 leads
    #       1 2 3   2                                    2            none: 1 and 3 are dead, 2 leads alone
    #       1 2 3   1 2 3                                1 2 3        none: all of them bounced
    #       1       1                                    1 2 3        none: 1 alone was in sync
    return bounced if len(bounced) < len(live) else {}


def leader_bounced(image: ClusterImage, topic_partition: TopicPartition, written_zxid: int) -> bool:
    """Whether the leader of a state that was written at this zxid has bounced since."""
    # Such a leader, if it stays, gets a new leader epoch, which Kafka does not do: the leader will assign the lost
    # offsets to new records, and only the leader epoch shows followers that these differ from the old ones.
    leadership = image.partition(topic_partition).leadership
    leader = None if leadership is None else image.brokers.get(leadership.state.leader)
    return leader is not None and leader.kept_since > written_zxid
