"""The settings that a seed draws: brokers, topics and clients, with weights (pure).

Every run has a topic for each guarantee, so that each guarantee is tested under each set of faults:

    steady    acks=all and min.insync.replicas=2: nothing acknowledged is lost, whichever process dies
    synced    the same with flush.messages=1: the same, also when machines lose power
    lax       one in-sync replica is enough, and an unclean election is allowed: losses are permitted, disorder is not
    brief     deleted and recreated under its name

Some properties of the brokers differ from run to run: those that select other code, but do not change the guarantees.
"""

import random
from typing import NamedTuple

from barnabas.testing.simulation.admin import TopicPlan

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
STEADY, SYNCED, LAX, BRIEF = "steady", "synced", "lax", "brief"
ACCOUNTS = "accounts"  # a topic that transactions write
BALANCES = "balances"  # the same, compacted


class SecuredPlan(NamedTuple):
    """How everybody logs in."""

    broker_mechanism: str
    client_mechanism: str
    session_ms: int


class RunPlan(NamedTuple):
    """One run."""

    brokers: int
    properties: dict[str, str]
    racks: bool
    topics: list[TopicPlan]
    writers: int  # for each topic
    readers: int
    members: int  # of each group
    groups: int
    write_pause_seconds: float
    admin_pause_seconds: float
    directories: tuple[str, ...] = ()  # between which the administrator moves replicas
    transactional_ids: int = 0  # of writers
    processors: int = 0  # that read, process and write
    processor_session_ms: int = 3000  # as members of their group
    rivals: int = 0  # how many of the writers have a rival of the same id
    transaction_timeout_ms: int = 60_000
    has_bookkeeper: bool = False  # that deletes pending offsets
    has_patient_writer: bool = False  # whose first transaction lasts for most of the run
    never: tuple[str, ...] = ()  # faults that do not happen
    levels: tuple[str, ...] = ()  # inter.broker.protocol.version of each broker; none: all are of the default
    hostile: int = 0  # clients that use up every limit
    secured: SecuredPlan | None = None  # everybody logs in, and ACLs say who may do what


def draw_plan(rng: random.Random) -> RunPlan:
    """The run of a seed."""
    segment_bytes = str(rng.choice((2048, 8192, 1 << 20)))
    properties = {
        "replica.lag.time.max.ms": str(rng.choice((1500, 4000, 10_000))),
        "replica.fetch.wait.max.ms": str(rng.choice((250, 500, 1000))),
        "replica.fetch.backoff.ms": str(rng.choice((50, 300, 1000))),
        "replica.fetch.max.bytes": str(rng.choice((300, 4096, 1 << 20))),
        "num.replica.fetchers": str(rng.choice((1, 1, 2))),
        "log.segment.bytes": segment_bytes,
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": str(rng.choice((1, 2))),
        "controlled.shutdown.enable": rng.choice(("true", "true", "false")),
        "auto.leader.rebalance.enable": rng.choice(("true", "false")),
        "leader.imbalance.check.interval.seconds": "7",
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((500, 5000))),
        "min.insync.replicas": "2",
        "log.retention.check.interval.ms": "5000",
        "file.delete.delay.ms": "1000",
    }
    racks = rng.random() < 0.5
    if racks:
        properties["replica.selector.class"] = RACK_AWARE
    partitions = rng.choice((1, 1, 2))
    topics = [
        TopicPlan(STEADY, partitions, 3, {"min.insync.replicas": "2"}),
        TopicPlan(SYNCED, 1, 3, {"min.insync.replicas": "2", "flush.messages": "1"}),
        TopicPlan(LAX, 1, rng.choice((2, 3)), {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}),
        TopicPlan(BRIEF, 1, 3, {"min.insync.replicas": rng.choice(("1", "2"))}, is_volatile=True),
    ]
    return RunPlan(
        brokers=rng.choice((3, 3, 3, 4)),
        properties=properties,
        racks=racks,
        topics=topics,
        writers=1,
        readers=1,
        members=rng.choice((1, 2, 2, 3)),
        groups=1,
        write_pause_seconds=rng.choice((1.0, 2.0, 3.0)),
        admin_pause_seconds=rng.choice((2.0, 4.0, 8.0)),
    )
