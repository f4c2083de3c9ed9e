"""Members of an ISR that came back with less than they had while no controller was active to see it: pure.

Theory of operation
-------------------
A member of an ISR holds every acknowledged record as long as its machine runs: what it wrote but did not sync is in the
machine's memory. A machine that crashes loses a part of that, and the broker comes back with a log that is too short.
Replication mends it, provided the broker comes back as a follower: the leader still has the records.

An active controller sees to that. A broker that dies leaves the ISRs (`decide_leaders`), one that
registers again before its death was noticed is taken to have died (`handlers/brokers.py`), and either way it is in sync
again only when its leader says so. What a controller must not do is *begin* its term with such a broker in an ISR, for
it might make it the leader, and then the others would cut their logs to fit.

The store shows it. A state node that names broker B in its ISR was written by a broker that took B to be in sync, at
zxid m. B's registration says since which broker epoch, the zxid k of an earlier registration, B has lost nothing: its
machine runs on, or it was shut down cleanly (`broker/cluster/boot_mark.py`). If k <= m, then B still has what it had
when it was vouched for, whether its process or its session ended since. If k > m, B was away in between and may have
lost records: it *bounced*. A broker that says nothing, as Kafka's own do, is believed from its registration on: k is
its broker epoch then.

`bounced_members` are dropped from an ISR by a new controller whenever a member is left that lives and did not bounce.
Where none is left, they stay: there must be a leader, and Kafka's rule, the first of the ISR that lives, applies. If
that is the leader itself, it leads under a new epoch (`leader_bounced`), which Kafka does not see to: the offsets that
it lost it gives to other records, and followers that have the former ones tell them apart by nothing but the epoch.

      ISR     has forgotten since the state was written  alive        the new controller drops
      1 2 3   2                                          1 2 3        2
      1 2 3   1 (who leads), 2                           1 2 3        1 2: 3 leads
      1 2 3   2                                          2            none: 1 and 3 are dead, 2 leads alone
      1 2 3   1 2 3                                      1 2 3        none: all of them have forgotten
      1       1                                          1 2 3        none: 1 alone was in sync

Two things this does not cover, nor does Kafka, which has no such rule: members of an ISR that all died at once, if the
one whose machine crashed is the first to come back, for it is elected then; and a state that the last controller wrote
between the moment when B registered and the moment when it heard of that, if it died in between. `flush.messages=1`
covers both.
"""

from collections.abc import Mapping

from barnabas.controller.image.state import ClusterImage
from barnabas.wire.topics import TopicPartition


def bounced_members(image: ClusterImage, topic_partition: TopicPartition, written_zxid: int) -> Mapping[int, None]:
    """Whom to drop from the ISR of a state that was written at this zxid: they would lead with a log that is too short.

    None, where no other member lives.
    """
    leadership = image.partition(topic_partition).leadership
    isr = () if leadership is None else leadership.state.isr
    live = [member for member in isr if image.is_reachable(topic_partition, member)]
    bounced = {member: None for member in live if image.brokers[member].kept_since > written_zxid}
    return bounced if len(bounced) < len(live) else {}


def leader_bounced(image: ClusterImage, topic_partition: TopicPartition, written_zxid: int) -> bool:
    """Whether the leader named by a state that was written at this zxid is back with less than it had."""
    leadership = image.partition(topic_partition).leadership
    leader = None if leadership is None else image.brokers.get(leadership.state.leader)
    return leader is not None and leader.kept_since > written_zxid
