"""Well-behaved parties beside attackers, each of which has to be answered within a second.

python -m compat_tests.hostile.served PORT     ends at a line on standard input, and prints the longest waits

A producer with records of 900 kB, a consumer in a group that commits and rejoins, an administrator that describes 1,500
topics, and what the controller sends about 3,000 partitions. Each has connections of its own, and opens another one
every few requests, as new clients do.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from compat_tests.raw import RawClient, ask, create_topic, eventually, produce_request

TOPIC = "ordinary"
PACE_SECONDS = 0.2
REQUESTS = 10  # of one connection
TIMEOUT_SECONDS = 60.0
RETRY_SECONDS = 0.1  # retry.backoff.ms

Step = Callable[[RawClient], None]


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"error code {code}")


def produce(client: RawClient) -> None:
    batch = bytes(build_batch([(None, bytes(100_000))] * 9, timestamp_ms=int(time.time() * 1000)).data)
    (topic,) = client.ask(produce_request(TOPIC, batch, acks=1), 9, m.ProduceResponse).responses
    _check(topic.partition_responses[0].error_code)


def consume(client: RawClient) -> None:
    """One generation of a group with one member, which commits and leaves."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(100))
    join = m.JoinGroupRequest(
        group_id="good",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    join.member_id = _joined(client, join).member_id
    joined = _joined(client, join)
    _check(joined.error_code)
    member = {"group_id": "good", "member_id": joined.member_id}
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    sync = m.SyncGroupRequest(**member, generation_id=joined.generation_id, assignments=[assignment])
    _check(ask(client, sync, 3).error_code)
    _check(ask(client, m.HeartbeatRequest(**member, generation_id=joined.generation_id), 3).error_code)
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[row])]
    commit = m.OffsetCommitRequest(**member, generation_id_or_member_epoch=joined.generation_id, topics=topics)
    _check(ask(client, commit, 7).topics[0].partitions[0].error_code)
    _check(ask(client, m.LeaveGroupRequest(**member), 1).error_code)


def _joined(client: RawClient, join: m.JoinGroupRequest) -> m.JoinGroupResponse:
    """The answer, once there is memory for a member; until then clients ask again."""
    while (answer := ask(client, join, 4)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        time.sleep(RETRY_SECONDS)
    return answer


def describe(client: RawClient) -> None:
    topics = [m.MetadataRequest.MetadataRequestTopic(name=f"unknown-{each}") for each in range(1500)]
    ask(client, m.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)


def control(client: RawClient) -> None:
    """A LeaderAndIsr of an earlier controller, so it is decoded, and refused."""
    state = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    roles = [state(partition_index=each, leader=0, isr=[0], replicas=[0]) for each in range(3000)]
    topic = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name="big", topic_id=bytes(15) + b"1", partition_states=roles
    )
    ask(client, m.LeaderAndIsrRequest(controller_id=0, controller_epoch=0, topic_states=[topic]), 5)


PARTIES: dict[str, Step] = {
    "producer": produce,
    "consumer": consume,
    "administrator": describe,
    "controller": control,
}


class Party(threading.Thread):
    """Repeats its step, and remembers how long it took at most."""

    def __init__(self, port: int, step: Step, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.milliseconds: list[float] = []
        self.errors: list[str] = []
        self._port = port
        self._step = step
        self._stopped = stop

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with RawClient(self._port, timeout=TIMEOUT_SECONDS) as client:
                    for _ in range(REQUESTS):
                        began = time.perf_counter()
                        try:
                            self._step(client)
                        finally:
                            self.milliseconds.append(round((time.perf_counter() - began) * 1000, 1))
                        if self._stopped.wait(PACE_SECONDS):
                            return
            except (OSError, RuntimeError) as error:
                self.errors.append(repr(error))
                self._stopped.wait(PACE_SECONDS)


def main() -> None:
    port = int(sys.argv[1])
    os.nice(-5)  # what is measured is the broker, not the turns that the kernel gives to this process
    create_topic(port, TOPIC, retention_bytes="100000000", segment_bytes="50000000")
    stop = threading.Event()
    with RawClient(port) as client:
        eventually(lambda: ask(client, m.FindCoordinatorRequest(key="good"), 3).error_code, lambda code: code == 0)
        for step in PARTIES.values():
            step(client)
    parties = {name: Party(port, step, stop) for name, step in PARTIES.items()}
    print("ready", flush=True)
    for party in parties.values():
        party.start()
    sys.stdin.readline()
    stop.set()
    for party in parties.values():
        party.join(TIMEOUT_SECONDS)
    results = {name: {"ms": party.milliseconds, "errors": party.errors[:3]} for name, party in parties.items()}
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
