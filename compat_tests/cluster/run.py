"""One live fault run: a cluster, load, faults drawn by a seed, and the check of all guarantees at the end.

The order: start, create the topic, load, faults for so many seconds, all healed. Within `RECOVERY_SECONDS` of the last
healing every ISR is full and every group stable. Then the producers end (every record's fate is known), the members
read to the end and end, a consumer reads everything from the leaders, all processes are killed, and the directories
are compared with the ledger.
"""

import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from compat_tests.cluster.checker import Finding, Partition, Place, Records, check, counts, longest_gap
from compat_tests.cluster.faults import draw_plan
from compat_tests.cluster.ledger import Event, Ledger, read_ledger
from compat_tests.cluster.live import LiveCluster, NotWhole, await_none
from compat_tests.cluster.load import GROUP, MEMBERS, ConfluentLoad, Load, VerifiableLoad
from compat_tests.cluster.replicas import read_from_leaders, read_replicas
from compat_tests.cluster.striking import Striker

TOPIC = "ledger"
PARTITIONS = 4
RECOVERY_SECONDS = 30.0
LAST_WORDS_SECONDS = 60.0
LOADS: dict[str, Callable[[LiveCluster], Load]] = {
    "confluent": lambda cluster: ConfluentLoad(cluster, TOPIC, PARTITIONS),
    "verifiable": lambda cluster: VerifiableLoad(cluster, TOPIC),
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
) -> Result:
    """One run in this directory, which keeps the ledgers, the logs and the data."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = draw_plan(seed, seconds)
    findings: list[Finding] = []
    with LiveCluster(kind, directory, settings=settings, namespaces=namespaces) as cluster:
        ledger = Ledger(directory / "ledger-test.jsonl")
        cluster.create_topic(TOPIC, PARTITIONS)
        clients = LOADS[load](cluster)
        clients.start()
        try:
            await_first_ack(directory)
            healed_at = Striker(cluster, ledger, TOPIC, GROUP, seed).run(plan, seconds)
            recovery_s, late = await_recovery(cluster, healed_at, stable_groups=True)
            findings += late
            from_leaders, ends = finish(cluster, clients, ledger)
        finally:
            clients.kill()
        starts = {node.party: node.starts for node in cluster.nodes}
    events = read_ledger(directory.glob("ledger-*.jsonl"))
    findings += check(events, what_lies_there(directory, cluster.broker_ids, from_leaders, ends))
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


def await_recovery(cluster: LiveCluster, healed_at: float, stable_groups: bool) -> tuple[float, list[Finding]]:
    """How long after the healing all was whole again, and a finding if that was too long (it is waited for further).

    A replica that nothing is heard of stays in the ISR for `replica.lag.time.max.ms`, and nothing is committed
    meanwhile: an ISR is full when it is so on paper *and* the high watermark rises under the load.
    """
    first_ends: dict[int, int] = {}

    def wrong() -> list[str]:
        ends = _ends(cluster)
        found = cluster.view.what_is_not_whole(len(cluster.broker_ids))
        if not found:
            if not first_ends:
                first_ends.update(ends)
            found = [f"{TOPIC}-{each} still ends at {end}" for each, end in ends.items() if end <= first_ends[each]]
        if not found and stable_groups:
            state, members = cluster.view.group_state(GROUP)
            if (state, members) != ("Stable", MEMBERS):
                found = [f"group {GROUP} is {state} with {members} members"]
        return found

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


def finish(cluster: LiveCluster, clients: Load, ledger: Ledger) -> tuple[dict[Place, Records], dict[int, int]]:
    """End the load in order; what a consumer then gets from the leaders, and where the partitions end."""
    clients.stop_producing()
    ends: dict[int, int] = {}
    await_none(lambda: ends.update(_ends(cluster)) or [], RECOVERY_SECONDS)
    await_none(lambda: _unread(cluster.directory, ends), LAST_WORDS_SECONDS)
    clients.stop()
    _note_committed(cluster, ledger)
    return read_from_leaders(cluster.bootstrap, TOPIC, ends), ends


def _ends(cluster: LiveCluster) -> dict[int, int]:
    """Where the partitions end; Unanswered while a new leader does not know its high watermark."""
    return {partition: cluster.view.latest_offset(TOPIC, partition) for partition in range(PARTITIONS)}


def _unread(directory: pathlib.Path, ends: Mapping[int, int]) -> list[str]:
    """The partitions that no member has read to the end."""
    furthest: dict[int, int] = {}
    for event in read_ledger(directory.glob("ledger-[cw]*.jsonl")):
        if event["event"] == "read":
            furthest[event["partition"]] = max(furthest.get(event["partition"], 0), event["offset"] + 1)
    return [
        f"{TOPIC}-{partition} was read to {furthest.get(partition, 0)} of {end}"
        for partition, end in ends.items()
        if furthest.get(partition, 0) < end
    ]


def _note_committed(cluster: LiveCluster, ledger: Ledger) -> None:
    """The last word about the group's offsets, asked by the test itself."""
    asked = time.time()
    for partition, offset in cluster.view.committed(GROUP, TOPIC, range(PARTITIONS)).items():
        where = {"topic": TOPIC, "partition": partition, "offset": offset}
        ledger.write("resumed", member="test", group=GROUP, asked=asked, **where)


def what_lies_there(
    directory: pathlib.Path,
    brokers: tuple[int, ...],
    from_leaders: Mapping[Place, Records],
    ends: Mapping[int, int],
) -> dict[Place, Partition]:
    """Every replica's records, and as that of broker 0 what a consumer was handed by the leaders."""
    data_dirs = {broker: directory / f"broker-{broker}" / "data" for broker in brokers}
    held = read_replicas(data_dirs, [TOPIC])
    partitions = {}
    for place, records in from_leaders.items():
        replicas = {broker: held.get(place, {}).get(broker, {}) for broker in brokers}
        partitions[place] = Partition({0: records, **replicas}, ends[place[1]])
    return partitions


def faults_of(events: list[Event]) -> list[dict[str, Any]]:
    """What was done and to whom, for a reader of the ledger."""
    return [event for event in events if event["event"] in ("fault", "healed")]
