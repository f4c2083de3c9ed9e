"""Chooses the replica that a consumer should read from (pure): KIP-392.

A consumer sends its rack. With `replica.selector.class` = RackAwareReplicaSelector, a leader in another rack answers
with the id of an in-sync follower in the consumer's rack. The consumer then fetches from that follower, up to the
follower's high watermark, which is about one fetch behind the leader's.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.replication.isr import Follower

if TYPE_CHECKING:
    from barnabas.world.metadata import BrokerInfo

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def choose_replica(
    consumer_rack: str,
    fetch_offset: int,
    leader_rack: str | None,
    in_sync: Collection[int],
    followers: Iterable[Follower],
    brokers: "Mapping[int, BrokerInfo]",
) -> int | None:
    """The follower that the consumer should read from; None if it should stay with the leader."""
    if not consumer_rack or leader_rack == consumer_rack:
        return None
    near = [
        each
        for each in followers
        # A follower without the fetch offset would answer OFFSET_OUT_OF_RANGE, and the consumer would come back.
        if each.broker_id in in_sync
        and each.log_start_offset <= fetch_offset <= each.log_end_offset
        and each.broker_id in brokers
        and brokers[each.broker_id].rack == consumer_rack
    ]
    # This is the most caught-up follower, as in Kafka's RackAwareReplicaSelector; the id makes the
    # choice repeatable.
    best = max(near, key=lambda each: (each.log_end_offset, each.caught_up_ms, each.broker_id), default=None)
    return None if best is None else best.broker_id
