"""The faults of the matrix: what is armed before a client's program begins, and what it stands for."""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.testing.faults.faults import Fault, Faults

TOPIC = "letters"  # that the programs write to
GROUP = "readers"  # and read through


class Kind(NamedTuple):
    """One fault."""

    what: str  # for a reader of the table
    arm: Callable[[Faults], Fault]
    may_miss: bool = False  # some clients never send the request


FAULTS: dict[str, Kind] = {
    "acknowledgement lost": Kind(
        "a Produce is done, and its connection is closed in place of the answer",
        lambda faults: faults.drop("Produce", "after", topic=TOPIC, times=1),
    ),
    "request lost": Kind(
        "a Produce is not done, and its connection is closed",
        lambda faults: faults.drop("Produce", "before", topic=TOPIC, times=1),
    ),
    "half an acknowledgement": Kind(
        "a Produce is done, and half of its answer is sent",
        lambda faults: faults.drop("Produce", "midway", topic=TOPIC, times=1),
    ),
    "leader moved": Kind(
        "two Produce are refused with NOT_LEADER_OR_FOLLOWER",
        lambda faults: faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=TOPIC, times=2),
    ),
    "timed out but done": Kind(
        "a Produce is done, and answered REQUEST_TIMED_OUT",
        lambda faults: faults.fail("Produce", "REQUEST_TIMED_OUT", topic=TOPIC, after=True, times=1),
    ),
    "too few replicas": Kind(
        "two Produce are refused with NOT_ENOUGH_REPLICAS",
        lambda faults: faults.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=TOPIC, times=2),
    ),
    "corrupt on the way in": Kind(
        "one bit of a Produce's batch is changed before the broker checks it",
        lambda faults: faults.corrupt("Produce", topic=TOPIC, times=1),
    ),
    "slow acknowledgement": Kind(
        "a Produce is answered after three seconds",
        lambda faults: faults.delay("Produce", 3.0, topic=TOPIC, times=1),
    ),
    "throttled": Kind(
        "every Produce says a throttle time of half a second",
        lambda faults: faults.throttle("Produce", 500, topic=TOPIC, times=3),
    ),
    "no leader yet": Kind(
        "three Metadata name no leader of the topic",
        lambda faults: faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic=TOPIC, times=3),
    ),
    "corrupt on the way out": Kind(
        "one bit of a batch is changed in one Fetch",
        lambda faults: faults.corrupt("Fetch", topic=TOPIC, times=1),
    ),
    "half a Fetch": Kind(
        "half of the answer to a Fetch is sent",
        lambda faults: faults.drop("Fetch", "midway", topic=TOPIC, times=1),
    ),
    "coordinator away": Kind(
        "three FindCoordinator are answered COORDINATOR_NOT_AVAILABLE",
        lambda faults: faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", group=GROUP, times=3),
    ),
    "coordinator moved": Kind(
        "two JoinGroup are refused with NOT_COORDINATOR",
        lambda faults: faults.fail("JoinGroup", "NOT_COORDINATOR", group=GROUP, times=2),
    ),
    "commit lost": Kind(
        "an OffsetCommit is done, and its connection is closed in place of the answer",
        lambda faults: faults.drop("OffsetCommit", "after", group=GROUP, times=1),
        may_miss=True,
    ),
    "an old broker": Kind(
        "ApiVersions is that of Apache Kafka 2.8",
        lambda faults: faults.as_kafka("2.8"),
    ),
}
