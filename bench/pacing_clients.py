"""Clients that send at a fixed rate and time each answer.

    python -m bench.pacing_clients WHAT PORT TOPIC COUNT SECONDS

Each runs in a process of its own, over plain sockets with frames that are encoded beforehand, and prints one line of
JSON: how many requests it sent and its latencies. A request has its time; one that is late because the client was busy
counts from that time on, so waiting is not left out.
"""

import heapq
import json
import random
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Record, build_batch
from bench.load import Case, Client, batch_of, frame, produce_frame

RATE = 2000.0  # requests a second, over all connections
PACED_RATE = 1000.0
TIMEOUT_SECONDS = 30.0
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
FIND_VERSION = 2
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION = 5, 3, 3, 7
LIST_OFFSETS_VERSION = 5
SPREAD_MS = 1  # between the timestamps of the batches of `lookups`
LOOKUP_BATCHES, LOOKUP_RECORDS = 2000, 900


class Sent(NamedTuple):
    """A request under way: when it should have left, and its kind."""

    at: float
    kind: str


class Line:
    """A connection on which requests wait for their answers, in order."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)
        self.socket: socket.socket = self.client.socket
        self.under_way: deque[Sent] = deque()
        self._buffer = bytearray()

    def send(self, request: bytes, kind: str, at: float) -> None:
        self.socket.sendall(request)
        self.under_way.append(Sent(at, kind))

    def receive(self) -> Iterator[Sent]:
        """The requests whose answers have come."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the broker closed a connection")
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) >= 4 + int.from_bytes(self._buffer[:4], "big"):
            del self._buffer[: 4 + int.from_bytes(self._buffer[:4], "big")]
            yield self.under_way.popleft()


Schedule = Iterator[tuple[float, Line, bytes, str]]  # seconds from the start, connection, request, kind


def run(lines: list[Line], schedule: Schedule) -> dict[str, list[float]]:
    """Send as scheduled; the latencies in ms, by kind of request."""
    selector = selectors.DefaultSelector()
    for line in lines:
        selector.register(line.socket, selectors.EVENT_READ, line)
    latencies: dict[str, list[float]] = {}
    began = time.perf_counter()
    under_way = 0
    following = next(schedule, None)
    while following is not None or under_way:
        now = time.perf_counter() - began
        while following is not None and following[0] <= now:
            at, line, request, kind = following
            line.send(request, kind, at)
            under_way += 1
            following = next(schedule, None)
        wait = TIMEOUT_SECONDS if following is None else max(following[0] - (time.perf_counter() - began), 0)
        ready = selector.select(wait)
        if not ready and following is None:
            raise RuntimeError(f"{under_way} requests were not answered")
        came = time.perf_counter() - began
        for key, _ in ready:
            for sent in key.data.receive():
                under_way -= 1
                latencies.setdefault(sent.kind, []).append((came - sent.at) * 1000)
    return latencies


def connections(port: int, topic: str, count: int, seconds: float) -> dict[str, list[float]]:
    """`count` connections that together send RATE small Produce requests a second."""
    request = produce_frame(topic, batch_of(Case("", 1, 100)), acks=1)
    lines = [Line(port) for _ in range(count)]
    total = int(RATE * seconds)
    return run(lines, ((number / RATE, lines[number % count], request, "produce") for number in range(total)))


def paced(port: int, topic: str, count: int, seconds: float) -> dict[str, list[float]]:
    """One connection that sends one record each millisecond."""
    request = produce_frame(topic, batch_of(Case("", 1, 100)))
    line = Line(port)
    total = int(PACED_RATE * seconds)
    return run([line], ((number / PACED_RATE, line, request, "produce") for number in range(total)))


def back_to_back(
    port: int, topic: str, count: int, seconds: float, trusted: str | None = None
) -> dict[str, list[float]]:
    """One connection that sends the next record when the last one is acknowledged; with TLS if `trusted` is given."""
    request, client, latencies = produce_frame(topic, batch_of(Case("", 1, 100))), Client(port, trusted), []
    ends_at = time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends_at:
        client.ask_frame(request)
        latencies.append((time.perf_counter() - began) * 1000)
    return {"produce": latencies}


def groups(port: int, topic: str, count: int, seconds: float) -> dict[str, list[float]]:
    """`count` groups with one member each, which sends a heartbeat and a commit a second."""
    members = []
    for number in range(count):
        line = Line(port)
        group_id = f"{topic}-{number}"
        members.append((line, *requests_of(line.client, group_id, topic)))

    def schedule() -> Schedule:
        # A heap, as each member has two series of its own, which begin at a random time of the first second.
        rng = random.Random(1)
        heap = []
        for number, (_, heartbeat, commit) in enumerate(members):
            heap.append((rng.random(), number, heartbeat, "heartbeat"))
            heap.append((rng.random(), number, commit, "commit"))
        heapq.heapify(heap)
        while heap[0][0] < seconds:
            at, number, request, kind = heap[0]
            yield at, members[number][0], request, kind
            heapq.heapreplace(heap, (at + 1, number, request, kind))

    return run([line for line, _, _ in members], schedule())


def requests_of(client: Client, group_id: str, topic: str) -> tuple[bytes, bytes]:
    """Join the group as its only member; the frames of a heartbeat and of a commit."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(10))
    member_id, joined = "", m.JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    # The first answer is MEMBER_ID_REQUIRED; before it a broker may still have to create and load the group topic.
    while joined.error_code and time.monotonic() < deadline:
        if joined.error_code in LOADING:
            client.ask_frame(frame(m.FindCoordinatorRequest(key=group_id), FIND_VERSION))
        request = m.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = m.decode(m.JoinGroupResponse, JOIN_VERSION, client.ask_frame(frame(request, JOIN_VERSION)), 4)
        member_id = joined.member_id
    if joined.error_code:
        raise RuntimeError(f"joining {group_id} failed: {joined}")
    named = {"group_id": group_id, "generation_id": joined.generation_id, "member_id": member_id}
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
    client.ask_frame(frame(m.SyncGroupRequest(**named, assignments=[assignment]), SYNC_VERSION))
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = m.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=member_id,
        topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    return frame(m.HeartbeatRequest(**named), HEARTBEAT_VERSION), frame(commit, COMMIT_VERSION)


def lookups(port: int, topic: str, count: int, seconds: float) -> dict[str, list[float]]:
    """Fill a log with batches of rising timestamps, then look up random ones, one after the other."""
    client, first_ms = Client(port), int(time.time() * 1000) - LOOKUP_BATCHES * LOOKUP_RECORDS * SPREAD_MS
    for number in range(LOOKUP_BATCHES):
        base_ms = first_ms + number * LOOKUP_RECORDS * SPREAD_MS
        client.ask_frame(produce_frame(topic, timed_batch(base_ms)))
    rng, latencies = random.Random(1), []
    ends_at = time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        wanted = first_ms + rng.randrange(LOOKUP_BATCHES * LOOKUP_RECORDS * SPREAD_MS)
        partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=wanted)
        topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
        request = frame(m.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), LIST_OFFSETS_VERSION)
        began = time.perf_counter()
        answer = client.ask_frame(request)
        latencies.append((time.perf_counter() - began) * 1000)
        found = m.decode(m.ListOffsetsResponse, LIST_OFFSETS_VERSION, answer, 4).topics[0].partitions[0]
        if found.error_code or found.timestamp != wanted:
            raise RuntimeError(f"a lookup of {wanted} found {found}")
    return {"lookup": latencies}


def timed_batch(base_ms: int) -> bytes:
    """LOOKUP_RECORDS records of 100 bytes, SPREAD_MS apart."""
    records = [Record(number, base_ms + number * SPREAD_MS, None, bytes(100), []) for number in range(LOOKUP_RECORDS)]
    return bytes(build_batch(records, timestamp_ms=base_ms).data)


PROGRAMS: dict[str, Callable[..., dict[str, list[float]]]] = {
    "connections": connections,
    "paced": paced,
    "back-to-back": back_to_back,
    "groups": groups,
    "lookups": lookups,
}


def main() -> None:
    what, port, topic, count, seconds, *more = sys.argv[1:]
    latencies = PROGRAMS[what](int(port), topic, int(count), float(seconds), *more)
    print(json.dumps({kind: sorted(values) for kind, values in latencies.items()}), flush=True)


if __name__ == "__main__":
    main()
