"""One live fault run: a cluster, load, faults drawn by a seed, and the check of all guarantees at the end.

The order: start, create the topics, load, faults for so many seconds, all healed. Within `RECOVERY_SECONDS` of the last
healing every ISR is full, every group stable, and every transactional id has committed a transaction that it began
since then. Then the producers end (every record's fate is known), the members read to the end and end, a consumer reads
everything from the leaders, all processes are killed, and the directories are compared with the ledger.
"""

import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from compat_tests.cluster.checker import (
    Finding,
    Partition,
    Place,
    Records,
    check,
    counts,
    longest_gap,
    name_of,
)
from compat_tests.cluster.faults import draw_plan
from compat_tests.cluster.ledger import Ledger, read_ledger
from compat_tests.cluster.live import LiveCluster, NotWhole, await_none
from compat_tests.cluster.load import GROUP, ConfluentLoad, Load, TransactionalLoad, VerifiableLoad
from compat_tests.cluster.replicas import read_from_leaders, read_replicas
from compat_tests.cluster.striking import Striker
from compat_tests.cluster.transactions import Readings, check_transactions
from compat_tests.cluster.view import INTERNAL, READ_COMMITTED, READ_UNCOMMITTED

TOPIC = "ledger"
PARTITIONS = 4
RECOVERY_SECONDS = 30.0
LAST_WORDS_SECONDS = 60.0
LOADS: dict[str, Callable[[LiveCluster, int], Load]] = {
    "confluent": lambda cluster, seed: ConfluentLoad(cluster, TOPIC, PARTITIONS),
    "verifiable": lambda cluster, seed: VerifiableLoad(cluster, TOPIC, PARTITIONS),
    "transactions": lambda cluster, seed: TransactionalLoad(cluster, TOPIC, PARTITIONS, seed),
}


class Result(NamedTuple):
    """What a run came to; a line of the results file."""

    seed: int
    kind: str
    load: str
    seconds: float
    verdict: str
    findings: list[list[str]]
    faults: list[str]
    counts: dict[str, int]
    longest_gap_s: float
    recovery_s: float
    starts: dict[str, int]


def run(
    kind: str,
    seed: int,
    seconds: float,
    directory: pathlib.Path,
    *,
    load: str = "confluent",
    settings: Mapping[str, str] | None = None,
    namespaces: bool | None = None,
    is_secured: bool = False,
) -> Result:
    """One run in this directory, which keeps the ledgers, the logs and the data."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = draw_plan(seed, seconds)
    findings: list[Finding] = []
    with LiveCluster(kind, directory, settings=settings, namespaces=namespaces, is_secured=is_secured) as cluster:
        ledger = Ledger(directory / "ledger-test.jsonl")
        clients = LOADS[load](cluster, seed)
        for topic, partitions in clients.topics.items():
            cluster.create_topic(topic, partitions)
        clients.start()
        try:
            await_first_ack(directory)
            striker = Striker(cluster, ledger, TOPIC, GROUP, seed, clients.transactional_ids)
            healed_at = striker.run(plan, seconds)
            clients.settle()
            recovery_s, late = await_recovery(cluster, clients, healed_at)
            findings += late
            finish(cluster, clients)
            findings += await_decided(cluster, clients)
            group_offsets = note_committed(cluster, ledger)
            ends = ends_of(cluster, clients.topics)
            from_leaders = read_from_leaders(cluster.bootstrap, ends)
            stable_ends = ends_of(cluster, clients.topics, READ_COMMITTED)
            committed = read_from_leaders(cluster.bootstrap, stable_ends, "read_committed")
        finally:
            clients.kill()
        starts = {node.party: node.starts for node in cluster.nodes}
    events = read_ledger(directory.glob("ledger-*.jsonl"))
    data_dirs = {broker: directory / f"broker-{broker}" / "data" for broker in cluster.broker_ids}
    findings += check(events, what_lies_there(data_dirs, clients.topics, from_leaders, ends))
    if clients.transactional_ids:
        decided = read_replicas(data_dirs, clients.topics, committed=True)
        readings = Readings(committed, from_leaders, decided, group_offsets)
        findings += check_transactions(events, TOPIC, readings)
    return Result(
        seed=seed,
        kind=kind,
        load=load,
        seconds=seconds,
        verdict="kept" if not findings else "broken",
        findings=[list(finding) for finding in findings],
        faults=[fault.name for fault in plan],
        counts=counts(events),
        longest_gap_s=round(longest_gap(events), 2),
        recovery_s=round(recovery_s, 1),
        starts=starts,
    )


def await_first_ack(directory: pathlib.Path, seconds: float = 30.0) -> None:
    """Return when a record was acknowledged: the load is on."""

    def nothing() -> list[str]:
        acked = any('"acked"' in path.read_text() for path in directory.glob("ledger-*.jsonl"))
        return [] if acked else ["nothing was acknowledged"]

    await_none(nothing, seconds)


def await_recovery(cluster: LiveCluster, clients: Load, healed_at: float) -> tuple[float, list[Finding]]:
    """How long after the healing all was whole again, and a finding if that was too long (it is waited for further).

    A replica that nothing is heard of stays in the ISR for `replica.lag.time.max.ms`, and nothing is committed
    meanwhile: an ISR is full when it is so on paper *and* the last stable offset rises under the load, above what was
    the high watermark. So no transaction of the time before has remained open.
    """
    first_ends: dict[Place, int] = {}

    def wrong() -> list[str]:
        found = cluster.view.what_is_not_whole(len(cluster.broker_ids))
        if not found:
            if not first_ends:
                first_ends.update(ends_of(cluster, {**clients.topics, **cluster.view.count_partitions(INTERNAL)}))
            found = [why for place, end in first_ends.items() for why in behind(place, end)]
        if not found:
            state, members = cluster.view.group_state(GROUP)
            if (state, members) != ("Stable", clients.members):
                found = [f"group {GROUP} is {state} with {members} members"]
        return found or clients.late_ids(healed_at)

    def behind(place: Place, end: int) -> Iterator[str]:
        stable = cluster.view.latest_offset(*place, READ_COMMITTED)
        if stable < end or (stable == end and place[0] in clients.topics):
            yield f"{name_of(place)} is still stable up to {stable}, it ended at {end}"

    try:
        await_none(wrong, max(healed_at + RECOVERY_SECONDS - time.time(), 1.0))
        return time.time() - healed_at, []
    except NotWhole as error:
        finding = Finding("late", str(error))
    try:
        await_none(wrong, LAST_WORDS_SECONDS)
    except NotWhole as error:
        return float("inf"), [finding, Finding("stuck", f"{error}")]
    return time.time() - healed_at, [finding]


def finish(cluster: LiveCluster, clients: Load) -> None:
    """End the load in order, when the group has read everything."""
    clients.stop_producing()
    ends: dict[Place, int] = {}
    await_none(lambda: ends.update(ends_of(cluster, {TOPIC: PARTITIONS})) or [], RECOVERY_SECONDS)
    by_number = {partition: end for (_, partition), end in ends.items()}
    await_none(lambda: clients.what_is_unread(by_number), LAST_WORDS_SECONDS)
    clients.stop()


def await_decided(cluster: LiveCluster, clients: Load) -> list[Finding]:
    """Nothing is undecided in any partition; a finding if something stays so."""
    topics = {**clients.topics, **cluster.view.count_partitions(INTERNAL)}
    try:
        await_none(lambda: cluster.view.open_partitions(topics), RECOVERY_SECONDS)
    except NotWhole as error:
        return [Finding("open", str(error))]
    return []


def ends_of(cluster: LiveCluster, topics: Mapping[str, int], isolation: int = READ_UNCOMMITTED) -> dict[Place, int]:
    """Where the partitions end; Unanswered while a new leader does not know its high watermark."""
    places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
    return {place: cluster.view.latest_offset(*place, isolation) for place in places}


def note_committed(cluster: LiveCluster, ledger: Ledger) -> dict[int, int]:
    """The last word about the group's offsets, asked by the test itself."""
    asked = time.time()
    offsets = cluster.view.committed(GROUP, TOPIC, range(PARTITIONS))
    for partition, offset in offsets.items():
        where = {"topic": TOPIC, "partition": partition, "offset": offset}
        ledger.write("resumed", member="test", group=GROUP, asked=asked, **where)
    return offsets


def what_lies_there(
    data_dirs: Mapping[int, pathlib.Path],
    topics: Iterable[str],
    from_leaders: Mapping[Place, Records],
    ends: Mapping[Place, int],
) -> dict[Place, Partition]:
    """Every replica's records, and as that of broker 0 what a consumer was handed by the leaders."""
    held = read_replicas(data_dirs, topics)
    partitions = {}
    for place, records in from_leaders.items():
        replicas = {broker: held.get(place, {}).get(broker, {}) for broker in data_dirs}
        partitions[place] = Partition({0: records, **replicas}, ends[place])
    return partitions
