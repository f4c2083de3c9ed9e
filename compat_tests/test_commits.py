"""Many offset commits, a cleaning and a restart: how soon the committed offsets are served again.

After a clean stop, that is: after SIGKILL the segments that were being written are checked first, and the time is only
printed. BARNABAS_COMMITS says how many commits; ten million, by 1,000 groups, were meant, and take some minutes:

    BARNABAS_COMMITS=10000000 make test ARGS="compat_tests/test_commits.py -s"

Measured so on two cores: 668 MB of commits in 107 s, cleaned to 29 MB in 25 s with 92 MB resident; then ready 0.3 s and
a group's offsets 0.4 s after the start, those of all groups after 1.8 s; after SIGKILL 1.2 and 2.5 s.
"""

import os
import pathlib
import time
from collections.abc import Callable

from barnabas.storage.checkpoint import read_checkpoint
from barnabas.storage.osdisk import OsDisk
from barnabas.testing.running.processes import resident_bytes_of
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from compat_tests.brokers import BrokerProcess
from compat_tests.raw import RawClient, create_topic

COMMITS = int(os.environ.get("BARNABAS_COMMITS", "200000"))
GROUPS = 1000 if COMMITS > 1_000_000 else 100
PARTITIONS = 100  # that each group commits for, with one request
ROUNDS = max(COMMITS // GROUPS // PARTITIONS, 2)
PIPELINED = 20
SEGMENT_BYTES = max(COMMITS // 10, 100_000)  # one or two dozen segments a partition of the group topic
SERVED_SECONDS = 1.0 if COMMITS >= 10_000_000 else 5.0  # on a machine that does nothing else, or runs all tests
CLEANING_SECONDS = 600.0
IN_PROGRESS = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def group_name(number: int) -> str:
    return f"consumer-group-{number}"


def commit_request(group: int, round_number: int) -> m.OffsetCommitRequest:
    partitions = [
        m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=round_number * 1000 + partition, committed_metadata=""
        )
        for partition in range(PARTITIONS)
    ]
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=partitions)
    return m.OffsetCommitRequest(group_id=group_name(group), topics=[topic])


def commit_all(port: int) -> None:
    """Every group commits for all its partitions, round after round."""
    with RawClient(port) as client:
        await_coordinator(client)
        under_way = 0
        for round_number in range(ROUNDS):
            for group in range(GROUPS):
                if under_way == PIPELINED:
                    read_commit(client)
                    under_way -= 1
                client.request(commit_request(group, round_number), 7)
                under_way += 1
        for _ in range(under_way):
            read_commit(client)


def read_commit(client: RawClient) -> None:
    """The answer to the oldest commit under way, which must be that all is well."""
    frame = client.receive_frame()
    response = m.decode(m.OffsetCommitResponse, 7, frame, 4)
    assert {each.error_code for topic in response.topics for each in topic.partitions} == {0}


def await_coordinator(client: RawClient) -> None:
    """The group topic is made when it is first asked for."""
    deadline = time.monotonic() + 30
    while client.ask(m.FindCoordinatorRequest(key="any"), 2, m.FindCoordinatorResponse).error_code:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fetch_offsets(client: RawClient, group: int) -> dict[int, int] | ErrorCode:
    """What a group has committed."""
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=list(range(PARTITIONS)))
    response = client.ask(m.OffsetFetchRequest(group_id=group_name(group), topics=[topic]), 5, m.OffsetFetchResponse)
    if response.error_code:
        return ErrorCode(response.error_code)
    return {each.partition_index: each.committed_offset for topic in response.topics for each in topic.partitions}


def fetch_until_served(client: RawClient, group: int) -> dict[int, int]:
    """The same, once the group is loaded."""
    deadline = time.monotonic() + 120
    while (found := fetch_offsets(client, group)) is IN_PROGRESS:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert not isinstance(found, ErrorCode), found
    return found


def await_clean(broker: BrokerProcess) -> None:
    """Wait until every sealed segment of the group topic is clean."""
    deadline = time.monotonic() + CLEANING_SECONDS

    def is_clean() -> bool:
        checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
        clean = read_checkpoint(OsDisk(), str(checkpoint)) if checkpoint.exists() else {}
        known = {str(key): offset for key, offset in clean.items()}
        return all(known.get(path.name, 0) == newest_base(path) for path in partitions_of(broker))

    while not is_clean():
        assert time.monotonic() < deadline, broker.log_text()[-2000:]
        time.sleep(0.05)


def partitions_of(broker: BrokerProcess) -> list[pathlib.Path]:
    return sorted(broker.data_dir.glob("__consumer_offsets-*"))


def newest_base(directory: pathlib.Path) -> int:
    return max(int(path.name[:20]) for path in directory.glob("*.log"))


def size_of(broker: BrokerProcess) -> int:
    return sum(path.stat().st_size for each in partitions_of(broker) for path in each.glob("*.log"))


def timed(what: str, act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    seconds = time.monotonic() - began
    print(f"{what}: {seconds:.2f} s")
    return seconds


def restart(broker: BrokerProcess, how: str) -> float:
    """End the broker, and start it; how long it takes from the start until each group's offsets are served."""
    (broker.kill if how == "killed" else broker.stop)()
    began = time.monotonic()
    broker.start()
    ready = time.monotonic() - began
    with RawClient(broker.port) as client:
        found = fetch_until_served(client, GROUPS - 1)
        first = time.monotonic() - began
        for group in range(GROUPS):
            found = fetch_until_served(client, group)
            assert found == {partition: (ROUNDS - 1) * 1000 + partition for partition in range(PARTITIONS)}
    last = time.monotonic() - began
    print(f"{how}: ready after {ready:.2f} s, one group's offsets after {first:.2f} s, all after {last:.2f} s")
    return first


def test_offsets_are_served_within_a_second_of_a_restart(start_broker):
    settings = {"offsets_topic_segment_bytes": SEGMENT_BYTES, "log_cleaner_backoff_ms": 200}
    broker = start_broker(**settings, log_cleaner_enable="false")
    create_topic(broker.port, "orders", PARTITIONS)
    timed(f"\n{COMMITS} commits by {GROUPS} groups", lambda: commit_all(broker.port))
    print(f"{size_of(broker)} bytes, {resident_bytes_of(broker.pid)} resident")
    assert broker.stop() == 0
    broker.properties["log.cleaner.enable"] = "true"
    before = size_of(broker)
    began = time.monotonic()
    broker.start()
    await_clean(broker)
    seconds = time.monotonic() - began
    print(f"cleaned in {seconds:.2f} s, {before / seconds / 1e6:.1f} MB/s, {resident_bytes_of(broker.pid)} resident")
    print(f"{size_of(broker)} bytes are left")
    assert size_of(broker) < before / 2
    restart(broker, "killed")
    assert min(restart(broker, "stopped") for _ in range(3)) < SERVED_SECONDS
