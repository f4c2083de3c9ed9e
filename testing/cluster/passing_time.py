"""What a jump of the clock must not do to the brokers of a cluster (shell).

A broker that waits for the response of another one gives up after a time, and a leader takes a follower out of the ISR
that has not caught up for a time. Both times are about silence. In a jump no broker was silent, except for those that
are frozen or cut off: for all others these times begin after the jump.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.testing.cluster.network import Links

if TYPE_CHECKING:
    from barnabas.broker.call import Broker
    from barnabas.replication.isr import Pulse


def spare_the_living(brokers: "Mapping[int, Broker]", links: Links, seconds: float) -> None:
    """The time is going to jump by so many seconds; these brokers run. On their loop."""
    for broker_id, broker in brokers.items():
        for peer in broker.peers:
            address = peer.address
            other = None if address is None else links.ports.get(address.port)
            if other is not None and other in brokers and links.are_open(broker_id, other):
                peer.extend(seconds)
        _spare_followers(broker_id, broker, brokers, links, 1000 * seconds)


def _spare_followers(
    broker_id: int, broker: "Broker", brokers: "Mapping[int, Broker]", links: Links, jump_ms: float
) -> None:
    pulses: list[Pulse] = []
    for partition in broker.replicas:
        for follower in partition.followers.values():
            if follower.broker_id in brokers and links.are_open(broker_id, follower.broker_id):
                follower.last_caught_up_ms += jump_ms
                follower.fetched_ms += jump_ms
                # The partitions of a fetch session share one pulse.
                if not any(each is follower.pulse for each in pulses):
                    pulses.append(follower.pulse)
    for pulse in pulses:
        pulse.last_fetch_ms += jump_ms
