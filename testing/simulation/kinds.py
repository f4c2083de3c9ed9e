"""Kinds of histories (pure): `make sim KIND=directories`, or several at once: `make sim KIND=directories+twice`.

A kind changes the run of a seed: properties of the brokers, faults that are always drawn, and operations of the
administrator. The rules are the same. Without `KIND` a seed draws two kinds and combines them, because faults are found
where two parts of a broker meet.

    plain         what every history has: faults of all common kinds, and an administrator
    directories   two log directories a broker, moves between them; a disk error takes one directory
    levels        inter.broker.protocol.version from 2.3 on: one for all brokers, or two, often on both sides of 2.8
    crowds        faults of one broker happen to all, or to two at once; long pauses; short timeouts
    moments       faults at bad moments: power fails while there is no controller, a directory during a truncation
    transactions  writers with transactional ids, some of them two at once, and readers of committed records
    stranded      the same; a coordinator hears clients only, and another one takes its place
    twice         names and ids are used twice: topics are recreated and moved all the time, also while brokers cannot
                  be reached; producers have the ids of others
    hostile       a client uses up every limit in the cheapest way; the others do not notice
    settings      min.insync.replicas and retention of topics change while they are used; syncs are slow
    secured       all clients log in, sessions end, ACLs and credentials change; some have no right, or a wrong password
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.testing.simulation.admin import TopicPlan
from barnabas.testing.simulation.faults import MACHINE_CRASHES
from barnabas.testing.simulation.plan import ACCOUNTS, BALANCES, BRIEF, STEADY, SYNCED, RunPlan, SecuredPlan

DIRECTORIES = ("/data-a", "/data-b")
OLD_LEVELS = ("2.3", "2.4", "2.5", "2.6", "2.7-IV0", "2.7-IV1", "2.7-IV2")  # topics have no ids
NEW_LEVELS = ("2.8", "3.0", "3.1", "3.2", "3.4", "3.5", "3.7", "3.9")
TABLE_SHARE, BOOKS_SHARE, PATIENT_SHARE = 0.4, 0.3, 0.1  # of the histories with transactions
SLOW_MOVES_SHARE = 0.5
SHORT_RETENTION_SHARE, SHORT_RETENTION_MS = 0.5, 1000  # of tombstones and markers
TABLE_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "500", "min.cleanable.dirty.ratio": "0.1"}
LOSING_NOTHING = {"delete_records": 0, "grow": 0, "recreate": 0}  # so it is known what readers of committed records see
LEADERS_WRITE_BELOW = "2.7-IV2"  # below it leaders write ISRs themselves, under the controller epoch of their role


class Kind(NamedTuple):
    """A kind of history."""

    shape: Callable[[RunPlan, random.Random], RunPlan]
    faults: tuple[str, ...] = ()  # that every history of the kind has
    without: tuple[str, ...] = ()  # that none has
    operations: Mapping[str, int] = {}  # of the administrator, with other weights here; the usual ones sum up to 17


def _with_directories(plan: RunPlan, rng: random.Random) -> RunPlan:
    """In some histories moves take seconds, so that something happens in the middle of one."""
    properties = plan.properties | {"log.dirs": ",".join(DIRECTORIES)}
    if rng.random() < SLOW_MOVES_SHARE:
        properties["replica.alter.log.dirs.io.max.bytes.per.second"] = "2000"
    return plan._replace(properties=properties, directories=DIRECTORIES)


def _with_levels(plan: RunPlan, rng: random.Random) -> RunPlan:
    """Topics are known by their names here, so none is deleted and made again under its name."""
    sides = rng.choice(((OLD_LEVELS, NEW_LEVELS), (OLD_LEVELS, NEW_LEVELS), (OLD_LEVELS, OLD_LEVELS), (OLD_LEVELS,)))
    pair = [rng.choice(side) for side in sides]
    levels = tuple(rng.choice(pair) for _ in range(plan.brokers))
    return plan._replace(levels=levels, topics=[each._replace(is_volatile=False) for each in plan.topics])


def _crowded(plan: RunPlan, rng: random.Random) -> RunPlan:
    properties = plan.properties | {
        "replica.lag.time.max.ms": rng.choice(("600", "1500")),
        "replica.fetch.wait.max.ms": "250",
        "zookeeper.session.timeout.ms": rng.choice(("2000", "6000", "15000")),
    }
    return plan._replace(properties=properties)


def _at_moments(plan: RunPlan, rng: random.Random) -> RunPlan:
    """The checkpoint that fails is often written."""
    plan = _with_directories(plan, rng)
    return plan._replace(properties=plan.properties | {"replica.high.watermark.checkpoint.interval.ms": "200"})


def _given_twice(plan: RunPlan, rng: random.Random) -> RunPlan:
    """Where nothing may be lost, a twin is never right. Who is not among a topic's replicas when it is deleted, may be
    away, keep the old log, and be given a replica of the next one."""
    topics = list(plan.topics)
    if BRIEF not in {each.name for each in topics}:
        topics.append(TopicPlan(BRIEF, 1, 2, {"min.insync.replicas": "1"}, is_volatile=not plan.levels))
    topics = [
        each._replace(
            has_twin=each.name == SYNCED, replication_factor=2 if each.is_volatile else each.replication_factor
        )
        for each in topics
    ]
    return plan._replace(topics=topics, admin_pause_seconds=rng.choice((0.3, 0.6)))


def _hostile(plan: RunPlan, rng: random.Random) -> RunPlan:
    """With limits that one client reaches."""
    properties = plan.properties | {
        "queued.max.request.bytes": rng.choice(("300000", "600000")),
        "socket.request.max.bytes": "300000",
        "group.members.max.bytes": rng.choice(("200000", "500000")),
        "group.max.session.timeout.ms": "1800000",
    }
    return plan._replace(properties=properties, hostile=rng.choice((1, 1, 2)))


def _secured(plan: RunPlan, rng: random.Random) -> RunPlan:
    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    secured = SecuredPlan(rng.choice(mechanisms), rng.choice(mechanisms), rng.choice((3000, 8000)))
    return plan._replace(secured=secured)


def _with_transactions(plan: RunPlan, rng: random.Random) -> RunPlan:
    """No topic loses anything: what readers of committed records see is known to the end."""
    properties = plan.properties | {
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": rng.choice(("1", "2")),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": rng.choice(("500", "2000")),
        "replica.fetch.wait.max.ms": rng.choice(("500", "1000")),
        "group.min.session.timeout.ms": "1000",
        "request.timeout.ms": rng.choice(("1000", "30000")),
    }
    partitions = rng.choice((1, 2))
    topics = [TopicPlan(name, partitions, 3, {"min.insync.replicas": "2"}) for name in (STEADY, ACCOUNTS)]
    never = list(MACHINE_CRASHES)
    if rng.random() < TABLE_SHARE:
        properties["log.cleaner.backoff.ms"] = "2000"
        topics.append(TopicPlan(BALANCES, 1, 3, {"min.insync.replicas": "2"} | TABLE_CONFIGS))
    has_patient_writer = rng.random() < PATIENT_SHARE
    if has_patient_writer:
        # This is longer than a batch is sent again and again, and shorter than the patient writer's
        # transaction; with wrong clocks it would be neither.
        properties["producer.id.expiration.ms"] = "30000"
        properties["producer.id.expiration.check.interval.ms"] = "2000"
        never.append("skew-clock")

    if rng.random() < SHORT_RETENTION_SHARE:
        topics = [each.with_config("delete.retention.ms", str(SHORT_RETENTION_MS)) for each in topics]
        never.append("skew-clock")
    return plan._replace(
        properties=properties,
        topics=topics,
        members=0,
        processors=2,
        transactional_ids=rng.choice((1, 2, 2)),
        rivals=rng.choice((0, 1, 1)),
        transaction_timeout_ms=rng.choice((2000, 5000)),
        write_pause_seconds=4.0,
        has_bookkeeper=rng.random() < BOOKS_SHARE,
        has_patient_writer=has_patient_writer,
        never=tuple(never),
    )


def _stranded(plan: RunPlan, rng: random.Random) -> RunPlan:
    """Members of a group stay members of the stranded coordinator and of its successor."""
    plan = _with_transactions(plan, rng)
    properties = plan.properties | {"offsets.topic.num.partitions": "1", "zookeeper.session.timeout.ms": "2000"}
    return plan._replace(properties=properties, processor_session_ms=20_000)


def _plain(plan: RunPlan, rng: random.Random) -> RunPlan:
    return plan


PLAIN = "plain"

# Combined kinds shape a run in this order: the first ones replace its topics, the others change
# some of them.
KINDS: Mapping[str, Kind] = {
    PLAIN: Kind(_plain),
    "transactions": Kind(
        _with_transactions,
        faults=("hold-connections", "delay", "pause-decider", "isolate-decider", "late-markers", "late-proofs"),
        operations=LOSING_NOTHING,
    ),
    "stranded": Kind(_stranded, faults=("strand-coordinator",), operations=LOSING_NOTHING),
    "directories": Kind(
        _with_directories,
        faults=("directory-error", "error-in-a-move", "slow-disk", "slow-syncs"),
        without=("disk-error",),
        operations={"move_between_directories": 5},
    ),
    "moments": Kind(
        _at_moments,
        faults=("error-in-a-cut", "crash-unseen"),
        without=("disk-error", "crash-machine"),
    ),
    "levels": Kind(_with_levels, faults=("restart-two", "crash-process")),
    "crowds": Kind(_crowded, faults=("expire-all", "pause-long", "crash-all", "restart-two")),
    "twice": Kind(
        _given_twice,
        faults=("left-behind", "pause-long", "isolate", "crash-process"),
        operations={"recreate": 12, "reassign": 5, "reassign_volatile": 20},
    ),
    "settings": Kind(_plain, faults=("slow-syncs", "late-watches"), operations={"alter_guarantees": 12}),
    "hostile": Kind(_hostile, faults=("delay", "kill-controller")),
    "secured": Kind(_secured, faults=("leave-store", "expire-session", "late-watches", "lose-store-answer")),
}
NOT_BOTH = {"transactions", "stranded"}  # the second is a variant of the first


def draw_kind(rng: random.Random) -> str:
    """The two kinds of a seed for which none is asked for, as `combined` takes them."""
    while True:
        pair = rng.sample([each for each in KINDS if each != PLAIN], 2)
        if set(pair) != NOT_BOTH:
            return "+".join(sorted(pair, key=list(KINDS).index))


def combined(name: str) -> Kind:
    """The kind of this name, or all kinds of `a+b` in one; ValueError for a name that is unknown."""
    if unknown := [each for each in name.split("+") if each not in KINDS]:
        raise ValueError(f"no kind of history is called {' or '.join(unknown)}; there are {', '.join(KINDS)}")
    kinds = [KINDS[each] for each in KINDS if each in name.split("+")]

    def shape(plan: RunPlan, rng: random.Random) -> RunPlan:
        for kind in kinds:
            plan = kind.shape(plan, rng)
        return plan

    without = _all_of([kind.without for kind in kinds])
    return Kind(
        shape,
        faults=tuple(each for each in _all_of([kind.faults for kind in kinds]) if each not in without),
        without=without,
        operations={name: weight for kind in kinds for name, weight in kind.operations.items()},
    )


def _all_of(names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for some in names for each in some))
